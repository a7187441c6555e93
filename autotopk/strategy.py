"""The plugin contract: what a strategy must provide so that it can be tuned, chosen, built and launched.

A strategy is one folder (or one module of another distribution) that defines an instance named `strategy`.
Third parties register theirs in the entry-point group `autotopk.strategies`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache, lru_cache
from itertools import product
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints
from zlib import crc32

from autotopk.candidate import Candidate, Knob, knobs_json, parse_knobs
from autotopk.device import Device
from autotopk.errors import UnsupportedProblemError
from autotopk.kernel import KernelSource
from autotopk.problem import DTYPE_BYTES, Answer, Problem
from autotopk.program import Program

Config = Any
"""A frozen dataclass of plain values (int, str, bool, float): the knobs of one strategy."""

KNOB_TYPES = (int, str, bool, float)

RENAMED = {
    "space": "the method is called shortlist now",
    "default": "the method is called heuristic now",
    "indices_alone": 'write features = Features(answers=frozenset({"pairs", "indices"}))',
    "side_by_side": "write features = Features(side_by_side=True)",
    "embeddable": "write features = Features(embeddable=True)",
}
"""Of autotopk before version 0.2."""


@dataclass(frozen=True, slots=True)
class Features:
    """What a family serves at all, whatever the sizes. Asked for anything else, it refuses."""

    dtypes: frozenset[str] = frozenset(DTYPE_BYTES)
    answers: frozenset[Answer] = frozenset({"pairs"})
    """What it can write, see `Query.answer`. A family that cannot write int32 indices alone has its own converted."""
    side_by_side: bool = False
    """It reads and writes rows that are side by side, see `MemoryLayout`."""
    device_types: frozenset[str] = frozenset({"cpu", "cuda"})
    capability: tuple[int, int] = (0, 0)
    """The least compute capability of a CUDA device."""
    stable: frozenset[str] = frozenset()
    """Dtypes of which the lowest columns come first among equals, see `Query.stable`, whatever the configuration."""
    embeddable: bool = False
    """AOTInductor can compile it into a model."""

    def serve(self, problem: Problem, device: Device) -> bool:
        """Whether nothing lies outside."""
        return self.serves(problem.answer, problem.dtype, problem.stable, problem.layout.side_by_side, device)

    def serves(self, answer: str, dtype: str, stable: bool, side_by_side: bool, device: Device) -> bool:
        """The same, of all that is asked of a problem."""
        return (
            answer in self.answers
            and dtype in self.dtypes
            and device.type in self.device_types
            and (device.type != "cuda" or device.capability >= self.capability)
            and (not stable or dtype in self.stable)
            and (self.side_by_side or not side_by_side)
        )

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """What of a problem, or of where it is, lies outside; empty where nothing does."""
        if self.serve(problem, device):
            return []
        reasons = []
        if device.type not in self.device_types:
            reasons.append(f"needs a {' or '.join(sorted(self.device_types)).upper()} device, not {device.name}")
        elif device.type == "cuda" and device.capability < self.capability:
            least = ".".join(map(str, self.capability))
            reasons.append(f"needs a CUDA device of compute capability {least}, not {device.name}")
        if problem.dtype not in self.dtypes:
            reasons.append(f"{problem.dtype} is not one of {', '.join(sorted(self.dtypes))}")
        if problem.answer not in self.answers:
            reasons.append(f"writes {' or '.join(sorted(self.answers))}, not {problem.answer}")
        if problem.stable and problem.dtype not in self.stable:
            reasons.append(f"is not stable for {problem.dtype}")
        if problem.layout.side_by_side and not self.side_by_side:
            reasons.append(f"reads rows whose columns are adjacent, not {problem.layout.col_stride} elements apart")
        return reasons


class Strategy(ABC):
    """One way to compute top-k. Instances hold no state: everything follows from the arguments."""

    name: ClassVar[str]
    """How databases and users call it; a Python identifier."""
    config_type: ClassVar[type]
    """The frozen dataclass of its knobs."""
    preference: ClassVar[int] = 0
    """Where nothing was measured, the able strategy of the highest preference runs."""
    features: ClassVar[Features] = Features()
    """What it serves at all."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for old, new in RENAMED.items():
            if old in vars(cls):
                raise TypeError(f"{cls.__name__}.{old} is of autotopk before 0.2: {new}")

    def reasons_unable(self, problem: Problem, device: Device) -> list[str]:
        """Why it cannot serve the problem on the device: its features, then what it says itself; empty means it can."""
        return self.features.reasons_unsupported(problem, device) or self.reasons_unsupported(problem, device)

    def is_able(self, problem: Problem, device: Device) -> bool:
        """Whether it can: without the words."""
        return self.features.serve(problem, device) and not self.reasons_unsupported(problem, device)

    @abstractmethod
    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Why it cannot serve a problem that its features allow; empty means it can. Imports no compiler."""

    def reasons_unbuildable(self) -> list[str]:
        """Why none of its kernels can be compiled here: only those in the cache are served and tuned."""
        return []

    @abstractmethod
    def shortlist(self, problem: Problem, device: Device) -> Sequence[Config]:
        """Every configuration worth measuring: finite, valid points only, in a stable order."""

    @abstractmethod
    def heuristic(self, problem: Problem, device: Device) -> Config | None:
        """A sane configuration where nothing was measured; None where torch.topk is the better bet."""

    @abstractmethod
    def program(self, config: Config, problem: Problem, device: Device) -> Program:
        """What to run for an able problem. Cheap: nothing is compiled yet."""

    def ladder(self, problem: Problem, device: Device) -> Sequence[Config]:
        """Rungs that serve an able problem, the likeliest first: configurations whose kernels are all among `rungs`.

        Empty where the family has no ladder.
        """
        return ()

    def rungs(self, arch: int) -> Iterator[KernelSource]:
        """Every kernel of the family's ladder for a compute capability (90 for 9.0), each once, in a stable order.

        They are compiled ahead and shipped; together they serve every problem that the family serves there.
        """
        return iter(())

    def terms(self, config: Config, problem: Problem, device: Device) -> Sequence[float]:
        """What its time grows with, as sums of which times are predicted from those measured elsewhere: none negative.

        As many for every problem, in one order and in any units: a launch, rounds of blocks, elements of each. The more
        they tell configurations apart, the better are predictions where nothing was measured. Costs microseconds.
        """
        elements, chosen = problem.rows * problem.cols, problem.rows * problem.k
        rounds = -(-problem.rows // device.processors)
        return 1.0, elements * problem.itemsize, rounds, rounds * problem.cols, rounds * problem.k, chosen

    def valid(self, config: Config, problem: Problem, device: Device) -> bool:
        """Whether a configuration, perhaps measured on another shape, may serve this problem."""
        return config in self.shortlist(problem, device)

    def fitting(self, config: str, problem: Problem, device: Device) -> Config | None:
        """The configuration of a `Candidate` measured elsewhere; None where it may not serve, or is none today."""
        try:
            found = self.parse_config(config)
        except UnsupportedProblemError:
            return None
        return found if self.valid(found, problem, device) else None

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """The values of every knob that are worth measuring; by default those that occur in the shortlist."""
        shortlist = self.shortlist(problem, device)
        names = [field.name for field in fields(self.config_type)]
        return {name: list(dict.fromkeys(getattr(config, name) for config in shortlist)) for name in names}

    def lattice(self, problem: Problem, device: Device) -> Iterator[Config]:
        """The shortlist, then all other valid combinations of the knobs; of those that make one program, the first."""
        offered: set[object] = set()
        for config in self.shortlist(problem, device):
            offered |= {config, self._made(config, problem, device)}
            yield config
        knobs = self.knobs(problem, device)
        for values in product(*knobs.values()):
            try:
                config = self.config_type(**dict(zip(knobs, values, strict=True)))
            except ValueError:
                continue
            if config in offered or not self.valid(config, problem, device):
                continue
            if (made := self._made(config, problem, device)) not in offered:
                offered.add(made)
                yield config

    def _made(self, config: Config, problem: Problem, device: Device) -> object:
        """What tells programs apart; the configuration where making one fails, which is the tuner's to record."""
        try:
            return self.program(config, problem, device)
        except Exception:  # a strategy may be anyone's code
            return config

    def candidate(self, config: Config) -> Candidate:
        """The strategy in one of its configurations, by name."""
        return Candidate(self.name, written(config))

    def parse_config(self, text: str) -> Config:
        """The configuration of a `Candidate`. Raises UnsupportedProblemError on unknown, missing or bad knobs."""
        try:
            return _parsed(self.config_type, text)
        except Exception as error:  # a configuration may refuse in a way of its own
            raise UnsupportedProblemError(f"{text!r} is no configuration of {self.name}: {error}") from error


@lru_cache(1 << 12)  # first calls ask for the same ones again and again
def _parsed(config_type: type, text: str) -> Config:
    """Raises ValueError, and what the type raises."""
    knobs, declared = parse_knobs(text), _declared(config_type)
    if not set(declared) - set(_later(config_type)) <= set(knobs) <= set(declared):
        raise ValueError(f"knobs are {sorted(declared)}")
    for name, value in knobs.items():
        if type(value) not in declared[name]:
            raise ValueError(f"{name}={value!r} is no {' or '.join(one.__name__ for one in declared[name])}")
    return config_type(**knobs)


def later(default: Knob) -> Any:
    """A knob that a family did not have at first, with what it stood for then; for the dataclass of its knobs.

    A configuration is written without it where it has that value, so that what was measured before goes on counting.
    """
    return field(default=default, metadata={_LATER: default})


def check_knobs(config: Config, allowed: Mapping[str, Sequence[Knob]]) -> None:
    """For a `__post_init__`: raises ValueError where a knob is none of its values, or of another type."""
    for name in _knobs_of(type(config)):  # type: ignore[arg-type]  # mypy knows of no hash of types
        value, values = getattr(config, name), allowed[name]
        if type(value) is not type(values[0]) or value not in values:
            raise ValueError(f"{name}={value!r} is not one of {', '.join(map(str, values))}")


def written(config: Config) -> str:
    """The canonical text of a configuration, see `knobs_json`; kept with it, for it is asked for again and again."""
    text: str | None = getattr(config, _TEXT, None)
    if text is None:
        others = _later(type(config)).items()  # type: ignore[arg-type]  # mypy knows of no hash of types
        told = frozenset([name for name, usual in others if getattr(config, name) != usual])
        names, numbers = _writing(type(config), told)  # type: ignore[arg-type]  # as above
        values = tuple([getattr(config, name) for name in names])
        if _PLAIN.issuperset(map(type, values)):
            text = numbers % tuple([_BOOLS[value] if value is True or value is False else value for value in values])
        else:
            text = knobs_json(dict(zip(names, values, strict=True)))
        with suppress(AttributeError):  # it has slots
            object.__setattr__(config, _TEXT, text)
    return text


def numbers(config: Config) -> tuple[float, ...]:
    """The knobs of a configuration but `later` ones, of words a checksum; kept with it as its text is.

    In the order of their text. What is fitted asks for them by their places, so there may be no more than there were.
    """
    found: tuple[float, ...] | None = getattr(config, _NUMBERS, None)
    if found is None:
        names, _ = _writing(type(config), frozenset())  # type: ignore[arg-type]  # as above
        values = [getattr(config, name) for name in names]
        found = tuple([crc32(value.encode()) if isinstance(value, str) else float(value) for value in values])
        with suppress(AttributeError):
            object.__setattr__(config, _NUMBERS, found)
    return found


_NUMBERS, _LATER = "_autotopk_numbers", "autotopk.later"
_TEXT, _PLAIN, _BOOLS = "_autotopk_text", frozenset({int, bool}), ("false", "true")


@cache
def _writing(config_type: type, told: frozenset[str]) -> tuple[tuple[str, ...], str]:
    """Knobs in the order of their text, of `later` ones those told, and the text around integers and booleans."""
    names = tuple(sorted({*_knobs_of(config_type)} - {*_later(config_type)} | told))
    return names, "{" + ",".join(f'"{name}":%s' for name in names) + "}"


@cache
def _knobs_of(config_type: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(config_type))


@cache
def _later(config_type: type) -> dict[str, Knob]:
    """Those of `later`, and what they were before."""
    return {one.name: one.metadata[_LATER] for one in fields(config_type) if _LATER in one.metadata}


@cache
def _declared(config_type: type) -> dict[str, tuple[type, ...]]:
    """The very types of every knob's values: 512.0 is no int, and neither is True."""
    try:
        annotations = get_type_hints(config_type)
    except NameError:  # names that only a type checker knows
        annotations = {}
    return {field.name: _types(annotations.get(field.name)) for field in fields(config_type)}


def _types(annotation: Any) -> tuple[type, ...]:
    if get_origin(annotation) is Literal:
        return tuple(dict.fromkeys(map(type, get_args(annotation))))
    return (annotation,) if annotation in KNOB_TYPES else KNOB_TYPES
