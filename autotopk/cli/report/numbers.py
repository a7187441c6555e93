"""What the report says, computed from records alone: speeds, floors, why candidates lost, noise."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median, quantiles

from autotopk.candidate import TORCH_TOPK
from autotopk.device import Device
from autotopk.key import TuningKey
from autotopk.prediction import CELL, Cell, Model, elements_of, operation_of
from autotopk.problem import DTYPE_BYTES
from autotopk.tuning_db.records import Tried, Winner

DRAM = {"NVIDIA H200": (4.53e12, 0.7), "NVIDIA H100 80GB HBM3": (3.12e12, 1.0)}
"""Of GPUs that were measured, see docs/radix.md: bytes a second that DRAM gives, and microseconds of a launch."""

INDEX_BYTES = 8

LOST_BY = (0.1, 1.0)
"""Bounds between candidates that lost closely, clearly, and by far: how much slower than the best, as a fraction."""


@dataclass(frozen=True)
class Summary:
    """Speeds of winners as multiples of torch.topk's."""

    count: int
    mean: float
    """Geometric."""
    least: float
    most: float
    kept: int
    """Winners that are torch.topk itself."""


@dataclass(frozen=True)
class Share:
    """What a strategy won."""

    strategy: str
    wins: int
    speedup: float
    """Geometric mean over torch.topk."""


@dataclass(frozen=True)
class Losses:
    """What became of the configurations of one strategy, each counted once a workload, by its last measurement."""

    strategy: str
    tried: int
    won: int
    close: int
    """Right, and within `LOST_BY[0]` of the best ratio of its workload."""
    clear: int
    far: int
    """Slower than that by more than `LOST_BY[1]`."""
    screened: int
    """Of those that did not win, given up after the quick look."""
    noisy: int
    failed: dict[str, int]
    """By status."""


@dataclass(frozen=True)
class Spread:
    """Quartiles and ends of a distribution."""

    count: int
    least: float
    lower: float
    middle: float
    upper: float
    most: float


@dataclass(frozen=True)
class Predicted:
    """What is known of shapes that nobody tuned, of one operation, width of elements and order."""

    kind: str
    elements: str
    sorted: bool
    bounds: Spread
    """Of its regions: the time of a choice over that of the best, at most."""
    high: float
    """Which 19 of 20 bounds are no higher than."""
    where: str
    """The region with the highest."""


@dataclass(frozen=True)
class Compared:
    """A workload in two files."""

    key: TuningKey
    fingerprint: str
    old: Winner
    new: Winner

    @property
    def faster(self) -> float:
        """How many times as fast the new one is."""
        return self.old.time_us / self.new.time_us


def speedup(winner: Winner) -> float:
    """How many times as fast as torch.topk; 1 where that is the winner."""
    return 1.0 if winner.candidate == TORCH_TOPK else 1 / winner.ratio


def name_of(winner: Winner) -> str:
    """The strategy that won, or torch.topk."""
    return "torch.topk" if winner.candidate == TORCH_TOPK else winner.candidate.strategy


def floor_us(key: TuningKey, device: Device) -> float | None:
    """Microseconds below which no kernel can be: a launch, one read of the input and one write of values and indices.

    None for a device whose DRAM was not measured.
    """
    if device.name not in DRAM:
        return None
    rate, launch = DRAM[device.name]
    element = DTYPE_BYTES[key.dtype]
    return launch + key.rows * (key.cols * element + key.k * (element + INDEX_BYTES)) / rate * 1e6


def summary(winners: Sequence[Winner]) -> Summary:
    """Of at least one winner."""
    speeds = list(map(speedup, winners))
    kept = sum(one.candidate == TORCH_TOPK for one in winners)
    return Summary(len(speeds), geometric_mean(speeds), min(speeds), max(speeds), kept)


def shares(winners: Iterable[Winner]) -> list[Share]:
    """By strategy, the one that won most first."""
    speeds = defaultdict(list)
    for winner in winners:
        speeds[name_of(winner)].append(speedup(winner))
    found = [Share(name, len(its), geometric_mean(its)) for name, its in speeds.items()]
    return sorted(found, key=lambda share: (-share.wins, share.strategy))


def losses(tried: Iterable[Tried], winners: Iterable[Winner]) -> list[Losses]:
    """What became of everything that was tried on one device, by strategy."""
    last = _last(tried)
    won = {(one.key, one.candidate.strategy, one.candidate.config) for one in winners}
    best = _best(last.values())
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for place, one in last.items():
        counts[one.candidate.strategy].update(_fates(one, place in won, best.get(one.key, 0.0)))
    found = [
        Losses(
            strategy,
            tried=its["tried"],
            won=its["won"],
            close=its["close"],
            clear=its["clear"],
            far=its["far"],
            screened=its["screened"],
            noisy=its["noisy"],
            failed={fate.removeprefix("!"): its[fate] for fate in sorted(its) if fate.startswith("!")},
        )
        for strategy, its in counts.items()
    ]
    return sorted(found, key=lambda one: (-one.won, -one.tried, one.strategy))


def regrets(tried: Iterable[Tried], winners: Iterable[Winner]) -> Spread | None:
    """How much slower winners are than the fastest that was raced on their workload, each by its last race."""
    last = _last(one for one in tried if one.stage == "race")
    best = _best(last.values())
    own = [last.get((one.key, one.candidate.strategy, one.candidate.config)) for one in winners]
    return spread(one.ratio / best[one.key] - 1 for one in own if one and one.status == "ok" and one.ratio is not None)


def predicted(models: Mapping[str, Model]) -> list[Predicted]:
    """Of every operation's model what its regions say, the operation's name first."""
    found = []
    for kind, model in sorted(models.items()):
        places: defaultdict[tuple[int, int], dict[Cell, float]] = defaultdict(dict)
        for cell, region in model.regions.items():
            places[cell[3:]][cell] = region.bound
        for (width, order), bounds in sorted(places.items()):
            spread_, ranked = spread(bounds.values()), sorted(bounds.values())
            if spread_ is not None:
                high, where = ranked[-1 - len(ranked) // 20], _region(max(bounds, key=bounds.__getitem__))
                found.append(Predicted(operation_of(kind), elements_of(width), bool(order), spread_, high, where))
    return found


def _region(cell: Cell) -> str:
    """Its rows, columns and k."""
    edges = [(1 << CELL * one, (1 << CELL * (one + 1)) - 1) for one in cell[:3]]
    rows, cols, k = (f"{least:,} to {most:,}" for least, most in edges)
    return f"{rows} rows, {cols} columns, k {k}"


def _last(tried: Iterable[Tried]) -> dict[tuple[TuningKey, str, str], Tried]:
    """The last measurement of every configuration of a workload."""
    return {(one.key, one.candidate.strategy, one.candidate.config): one for one in tried}


def _best(tried: Iterable[Tried]) -> dict[TuningKey, float]:
    """The least ratio to torch.topk of each workload, among right answers."""
    best: dict[TuningKey, float] = {}
    for one in tried:
        if one.status == "ok" and one.ratio is not None:
            best[one.key] = min(best.get(one.key, one.ratio), one.ratio)
    return best


def _fates(one: Tried, won: bool, best: float) -> Iterator[str]:
    yield "tried"
    if won:
        yield "won"
    elif one.status == "noisy":
        yield "noisy"
    elif one.status != "ok" or one.ratio is None:
        yield f"!{one.status}"
    else:
        behind = one.ratio / best - 1
        yield "close" if behind <= LOST_BY[0] else "clear" if behind <= LOST_BY[1] else "far"
        if one.stage == "screen":
            yield "screened"


def failures(tried: Iterable[Tried], most: int) -> list[tuple[str, str, str, int]]:
    """Strategy, status, error, and how often: the commonest, with a workload's sizes left as they are told."""
    counts = Counter(
        (one.candidate.strategy, one.status, one.error or "") for one in tried if one.status not in ("ok", "noisy")
    )
    return [(*what, count) for what, count in counts.most_common(most)]


def spread(values: Iterable[float | None]) -> Spread | None:
    """Of the values that there are; None where there is none."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    lower, _, upper = quantiles(known, n=4, method="inclusive") if len(known) > 1 else known * 3
    return Spread(len(known), known[0], lower, median(known), upper, known[-1])


def top(winners: Iterable[Winner], value: Callable[[Winner], float | None], most: int) -> list[tuple[Winner, float]]:
    """The winners with the greatest values, of those that have one."""
    known = [(one, found) for one in winners if (found := value(one)) is not None]
    return sorted(known, key=lambda pair: -pair[1])[:most]


def grids(winners: Iterable[Winner]) -> dict[tuple[str, str], dict[int, list[Winner]]]:
    """Winners of one device by (dtype, order or routing rule), and then by k."""
    found: defaultdict[tuple[str, str], defaultdict[int, list[Winner]]] = defaultdict(lambda: defaultdict(list))
    for one in winners:
        order = one.key.routing or ("sorted" if one.key.sorted else "any order")
        found[one.key.dtype, order][one.key.k].append(one)
    ordered = sorted(found.items(), key=lambda part: (part[0][1] not in ("sorted", "any order"), *part[0]))
    return {place: dict(sorted(by_k.items())) for place, by_k in ordered}


def compared(old: Iterable[Winner], new: Iterable[Winner]) -> list[Compared]:
    """The workloads of the same device that both have, the one that lost most speed first."""
    before = {(one.device.fingerprint, one.key): one for one in old}
    pairs = [
        Compared(one.key, one.device.fingerprint, before[place], one)
        for one in new
        if (place := (one.device.fingerprint, one.key)) in before
    ]
    return sorted(pairs, key=lambda pair: pair.faster)
