"""What was fitted, as winners files have it: rows of numbers, which are read back with doubt."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from math import isfinite, log2

from autotopk import doubt
from autotopk.candidate import Candidate
from autotopk.forest import Forest
from autotopk.key import TuningKey
from autotopk.prediction import (
    OTHER_ORDER,
    OTHER_WIDTH,
    PLAIN,
    Example,
    Model,
    Point,
    Region,
    operation_of,
)

RESIDUAL_UNIT, NOBODY = 1e-4, -1
"""Of the numbers that residuals are stored as; in place of a `Point.first`, or `off`, that there is not."""

MOST_RESIDUAL = 50.0

ROW_NUMBERS = 20_000
"""Of points, which are stored in rows of some more: so many rows are read sooner than one of each point."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Some numbers of a fit, as a winners file has them."""

    device: str
    """Fingerprint."""
    kind: str
    """See `kind_of`."""
    part: str
    """"strategy": coefficients, then the largest terms; "forest": `Forest.numbers`; "candidate": points it was
    measured at; "points": `_stored` one after another, with places among strategies, then candidates; "regions": cell,
    bound, points around, and so on; "offs": `Point.off` of all points in their order; "levels": `doubt.numbers_of`;
    "example": rows, cols, k, whether sorted, then terms there."""
    name: str
    """Of the strategy or candidate; of an example, dtype and candidate; else a number, in order."""
    numbers: tuple[float, ...]

    def row(self) -> tuple[str, str, str, str, str]:
        """As stored."""
        return self.device, self.kind, self.part, self.name, json.dumps(self.numbers, separators=(",", ":"))

    @classmethod
    def of(cls, row: Sequence[str]) -> "Fitted":
        """The inverse. Raises ValueError where the numbers are none."""
        device, kind, part, name, numbers = row
        return cls(device, kind, part, name, numbers_in(numbers))


def numbers_in(text: str) -> tuple[float, ...]:
    """Those of a JSON array, integers as they are. Raises ValueError on anything else."""
    try:
        found = json.loads(text)
        if type(found) is list and _are_finite(found) and all(map(isfinite, found)):  # integers beyond floats raise
            return tuple(found)
    except (OverflowError, RecursionError) as error:
        raise ValueError("not JSON, or of numbers beyond all limits") from error
    raise ValueError("not a JSON array of finite numbers")


def all_numbers_in(texts: Sequence[str]) -> Sequence[Sequence[float]]:
    """Those of each of many JSON arrays, read as one, which takes a third of the time. Raises ValueError as that."""
    try:
        found: list[list[float]] = json.loads(f"[{','.join(texts)}]")
        whole = len(found) == len(texts) and {*map(type, found)} <= {list}
        if whole and _are_finite(list(chain.from_iterable(found))):
            return found
    except (ValueError, OverflowError, RecursionError):
        pass
    return list(map(numbers_in, texts))  # says which is none


def _are_finite(found: Sequence[object]) -> bool:
    if not _NUMBERS.issuperset(map(type, found)):
        return False
    numbers: Sequence[float] = found  # type: ignore[assignment]
    return isfinite(sum(numbers)) or all(map(isfinite, numbers))  # a sum is sooner, and seldom infinite by itself


_NUMBERS = frozenset({int, float})


def rows_of(model: Model, device: str, kind: str) -> list[Fitted]:
    """A model as it is stored, to five digits."""
    strategies, candidates = sorted(model.strategies), sorted(model.candidates)
    places = {name: at for at, name in enumerate([*strategies, *candidates])}
    found = [Fitted(device, kind, "strategy", name, _short(model.strategies[name])) for name in strategies]
    found += [Fitted(device, kind, "forest", name, model.forests[name].numbers) for name in sorted(model.forests)]
    found += [Fitted(device, kind, "candidate", name, (model.candidates[name],)) for name in candidates]
    rows: list[list[int]] = [[]]
    for point in model.points:
        if len(rows[-1]) >= ROW_NUMBERS:
            rows.append([])
        rows[-1] += _stored(point, places)
    found += [Fitted(device, kind, "points", f"{at:06}", tuple(row)) for at, row in enumerate(rows) if row]
    if any(one.off is not None for one in model.points):
        offs = [NOBODY if one.off is None else round(one.off / RESIDUAL_UNIT) for one in model.points]
        parts = [tuple(offs[at : at + ROW_NUMBERS]) for at in range(0, len(offs), ROW_NUMBERS)]
        found += [Fitted(device, kind, "offs", f"{at:06}", part) for at, part in enumerate(parts)]
    if model.levels:
        found.append(Fitted(device, kind, "levels", "0", _short(doubt.numbers_of(model.levels))))
    for example in model.examples:
        key = example.key
        its = _short((key.rows, key.cols, key.k, int(key.sorted), *example.terms))
        found.append(Fitted(device, kind, "example", f"{key.dtype} {example.candidate}", its))
    for row in sorted({cell[0] for cell in model.regions}):
        numbers = [number for cell, one in sorted(model.regions.items()) if cell[0] == row for number in (*cell, *one)]
        found.append(Fitted(device, kind, "regions", f"{row:06}", _short(numbers)))
    return found


def _stored(point: Point, places: Mapping[str, int]) -> Iterator[int]:
    """Rows, cols, k, width, order; who is first; how many are slow, and who; how many residuals, each behind whose."""
    *sizes, width, order = point.place
    yield from (round(2**size) for size in sizes)
    yield from (round(width / OTHER_WIDTH), round(order / OTHER_ORDER), places.get(point.first, NOBODY))
    yield from (len(point.slow), *(places[name] for name in sorted(point.slow)), len(point.residuals))
    for name, residual in sorted(point.residuals.items()):
        yield from (places[name], round(residual / RESIDUAL_UNIT))


def _points_in(numbers: Sequence[int], names: Sequence[str]) -> Iterator[Point]:
    """The inverse. Raises TypeError, IndexError or ValueError on what is no points, of integers."""

    @cache
    def named(*places: int) -> frozenset[str]:  # the same at most points
        return frozenset([names[one] for one in places])

    at = 0
    while at < len(numbers):
        rows, cols, k, width, order, first, slow = numbers[at : at + 7]
        at += 7 + slow
        behind = numbers[at - slow : at]
        end = at + 1 + 2 * numbers[at]
        whose, residuals = numbers[at + 1 : end : 2], numbers[at + 2 : end : 2]
        if min(first + 1, slow, *behind, *whose) < 0 or not at < end <= len(numbers):
            raise ValueError("points end too soon, or have places below 0")
        yield Point(
            (log2(rows), log2(cols), log2(k), OTHER_WIDTH * width, OTHER_ORDER * order),
            {names[one]: RESIDUAL_UNIT * number for one, number in zip(whose, residuals, strict=True)},
            named(*behind),
            "" if first == NOBODY else names[first],
        )
        at = end


def model_of(rows: Iterable[Sequence[str]]) -> Model:
    """The inverse, of the (..., part, name, numbers) of one kind. Raises ValueError on what is no model."""
    parts: dict[str, dict[str, Sequence[float]]]
    parts = {one: {} for one in ("strategy", "forest", "candidate", "points", "offs", "levels", "regions", "example")}
    rows = list(rows)
    texts = list(dict.fromkeys(row[4] for row in rows))  # many are alike
    numbers_of = dict(zip(texts, all_numbers_in(texts), strict=True))
    for _, _, part, name, text in rows:
        if part not in parts:
            raise ValueError(f"what was fitted has an odd part, {part!r}")
        parts[part][name] = numbers_of[text]
    operation = operation_of(rows[0][1]) if rows else PLAIN
    strategies = {name: tuple(map(float, numbers)) for name, numbers in parts["strategy"].items()}
    model, routing = Model(strategies), "" if operation == PLAIN else operation
    names = [*sorted(parts["strategy"]), *sorted(parts["candidate"])]
    try:
        model.forests = {name: Forest(numbers) for name, numbers in parts["forest"].items()}
        model.candidates = {name: int(points) for name, (points,) in parts["candidate"].items()}
        for _, numbers in sorted(parts["points"].items()):
            model.points += _points_in(numbers, names)  # type: ignore[arg-type]  # told where it is not so
        if offs := [number for _, numbers in sorted(parts["offs"].items()) for number in numbers]:
            for point, off in zip(model.points, offs, strict=True):
                point.off = None if off == NOBODY else _off_of(off)
        model.levels = [level for numbers in parts["levels"].values() for level in doubt.levels_in(numbers)]
        for numbers in parts["regions"].values():
            for *cell, bound, points in zip(*(numbers[at::7] for at in range(7)), strict=True):
                row, col, count, width, order = map(int, cell)
                model.regions[row, col, count, width, order] = Region(bound, int(points))
        for name, (rows_, cols, k, sorted_, *terms) in parts["example"].items():
            dtype, strategy, config = name.split(" ", 2)
            key = TuningKey(dtype, int(rows_), int(cols), int(k), bool(sorted_), routing)
            model.examples.append(Example(key, Candidate(strategy, config), tuple(terms)))
    except (TypeError, IndexError) as error:
        raise ValueError(f"what was fitted is odd: {error}") from error
    if any(max(map(abs, point.residuals.values()), default=0.0) > MOST_RESIDUAL for point in model.points):
        raise ValueError("what was fitted has a residual that no time has")
    return model


def _off_of(number: float) -> float:
    """Raises ValueError where it is no integer of those that are stored."""
    if type(number) is not int or not 0 <= number <= MOST_RESIDUAL / RESIDUAL_UNIT:
        raise ValueError(f"predictions do not differ in {number}")
    return RESIDUAL_UNIT * number


def _short(numbers: Iterable[float]) -> tuple[float, ...]:
    return tuple(one if isinstance(one, int) else float(f"{one:.5g}") for one in numbers)
