"""From measurements to winners: a pure function, so that every database derives the same from the same evidence."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from math import hypot
from statistics import geometric_mean, median
from types import MappingProxyType
from typing import NamedTuple

from autotopk.candidate import TORCH_TOPK, Candidate
from autotopk.key import TuningKey
from autotopk.tuning_db.records import Measurement, Winner

REPLACE = 0.03
"""How much faster than the incumbent, as a fraction of its ratio, a candidate must be at least."""

SAME = 0.02
"""Most that two candidates differ by, as a fraction, where names decide between them."""


WRONG = 1.2
"""How many times as slow beside another as in the last run a candidate was in one in which something was wrong."""


class Evidence(NamedTuple):
    """A measurement, and what torch.topk was when it was taken (`Environment.baseline`)."""

    measurement: Measurement
    baseline: str
    specimen: str = ""
    """On which processor of the model: a GPU's UUID, a CPU's host; empty where nobody noted it."""
    run: int = 0
    """Whose measurement it is; numbers tell runs apart within one database."""


def derive(
    evidence: Iterable[Evidence], incumbents: Mapping[tuple[str, TuningKey], Candidate] = MappingProxyType({})
) -> dict[str, Winner]:
    """The winner of every device and key, by the uuid of the measurement that decided.

    Before the first run those of `incumbents` had won, by a device's fingerprint and a key.

    1. Measurements are judged in the order they were taken, device by device and key by key.
    2. Of a candidate only the code measured last counts: what it compiles to has changed since.
    3. A status other than "ok" discards what its candidate showed before; measured well later, it is back.
    4. Only races count: the few samples of a screening have no 95 % interval.
    5. Ratios are compared under one baseline alone: that of the last measurement left.
    6. Of each candidate the last measurement left counts; they rank by ratio, then by name.
    7. Only who is faster than torch.topk by all of its own 95 % margin can win, else torch.topk does. Beside
       others torch.topk's ratio is 1, whatever a race against itself said. Where it was not measured, nobody wins.
    8. The incumbent (the same candidate, whatever its code) stays unless the best is faster by 3 %, or where that
       is wider by their joint 95 % margin, or by how far specimens of the model differ on any candidate of the
       key; and by 3 % in the mean of all runs that raced both, since kernels of few microseconds are faster in one
       process and slower in the next, but for runs that contradict the last by a fifth, in which something was wrong.
       Else, of those that no margin tells from the best, at most 2 % slower, the first by name wins: whoever measures
       comes to the same one. The incumbent is who won by what was known when the run before had ended with the key:
       who merges databases need not know in which order they learnt what.
    9. The runner-up is the first of the others; its gap is negative where it was faster but could not win.

    Noisy measurements do not count, and change nothing.
    """
    places: defaultdict[tuple[str, TuningKey], list[Evidence]] = defaultdict(list)
    for one in sorted((one for one in evidence if one.measurement.status != "noisy"), key=_age):  # 1
        places[one.measurement.device.fingerprint, one.measurement.key].append(one)
    winners = {}
    for place, history in places.items():
        chosen, held = None, incumbents.get(place)
        for known in _run_by_run(history):
            standing = _standing(known)  # 2 to 5
            ranking = _rank(standing)  # 6
            chosen = _choose(ranking, standing, held)
            held = chosen and _candidate(chosen)
        if chosen:
            runner_up = next((one for one in ranking if one is not chosen), None)  # 9
            winners[chosen.measurement.uuid] = _winner(chosen, runner_up)
    return winners


def can_win(one: Measurement) -> bool:
    """Whether it is torch.topk's, or its whole 95 % interval lies below torch.topk's time."""
    return one.candidate == TORCH_TOPK or ratio_of(one) * (1 + (one.margin or 0.0)) < 1


def difference(races: Iterable[tuple[Hashable, str, float]]) -> float:
    """How far specimens of a model differ, as a fraction: of candidate, specimen and ratio of races, oldest first.

    The last race on each specimen counts, those on specimens that nobody noted do not.
    """
    ratios: defaultdict[Hashable, dict[str, float]] = defaultdict(dict)
    for candidate, specimen, ratio in races:
        if specimen:
            ratios[candidate][specimen] = ratio
    return max((max(found.values()) / min(found.values()) - 1 for found in ratios.values()), default=0.0)


def winner_of(evidence: Evidence, runner_up: Candidate | None, gap: float | None) -> Winner:
    """A measurement as the winner it became."""
    one = evidence.measurement
    return Winner(
        device=one.device,
        key=one.key,
        candidate=one.candidate,
        identity=one.identity,
        time_us=median(one.samples_us),
        baseline_us=median(one.baseline_us),
        ratio=ratio_of(one),
        baseline=evidence.baseline,
        measured_at=one.measured_at,
        runner_up=runner_up,
        gap=gap,
        adversarial_slowdown=one.adversarial_slowdown,
        margin=one.margin,
    )


def _run_by_run(history: list[Evidence]) -> Iterator[list[Evidence]]:
    """What was known of one device and key at the end of each run, by the last that it measured."""
    runs = list(dict.fromkeys(one.run for one in reversed(history)))[::-1]
    for last in range(1, len(runs) + 1):
        ended = {*runs[:last]}
        yield [one for one in history if one.run in ended]


def _choose(ranking: list[Evidence], standing: list[Evidence], held: Candidate | None) -> Evidence | None:
    """Steps 7 and 8."""
    able = [one for one in ranking if can_win(one.measurement)]
    if not able:
        return None
    best, incumbent = able[0], next((one for one in able if _candidate(one) == held), None)
    apart = difference((_candidate(one), one.specimen, ratio_of(one.measurement)) for one in standing)
    if incumbent and not (
        _replaces(best.measurement, incumbent.measurement, apart) and _run_after_run(best, incumbent, standing)
    ):
        return incumbent
    return min((one for one in able if _same(best.measurement, one.measurement)), key=_candidate)


def _standing(history: list[Evidence]) -> list[Evidence]:
    """Steps 2 to 5 on one device and key, the oldest first."""
    code = {_candidate(one): one.measurement.identity.code for one in history}
    standing: defaultdict[Candidate, list[Evidence]] = defaultdict(list)
    for one in history:
        if one.measurement.identity.code != code[_candidate(one)]:  # 2
            continue
        if one.measurement.status == "ok":
            standing[_candidate(one)].append(one)
        else:
            standing[_candidate(one)].clear()  # 3
    left = [one for turns in standing.values() for one in turns if one.measurement.stage == "race"]  # 4
    if not left:
        return []
    baseline = max(left, key=_age).baseline
    return sorted((one for one in left if one.baseline == baseline), key=_age)  # 5


def _rank(standing: list[Evidence]) -> list[Evidence]:
    """Step 6."""
    last = {_candidate(one): one for one in standing}  # the later overwrites
    return sorted(last.values(), key=lambda one: (ratio_of(one.measurement), _candidate(one)))


def _replaces(best: Measurement, incumbent: Measurement, apart: float) -> bool:
    return ratio_of(best) <= ratio_of(incumbent) * (1 - max(REPLACE, joint_margin(best, incumbent), apart))


def _run_after_run(best: Evidence, incumbent: Evidence, standing: list[Evidence]) -> bool:
    """Whether it is faster in the mean of the runs that raced both, of each the last races, as far as there are any."""
    raced = [
        {one.run: ratio_of(one.measurement) for one in standing if _candidate(one) == candidate}
        for candidate in (_candidate(best), _candidate(incumbent))
    ]
    last = ratio_of(best.measurement) / ratio_of(incumbent.measurement)
    ratios = sorted(raced[0][run] / raced[1][run] for run in raced[0].keys() & raced[1].keys())
    alike = [one for one in ratios if 1 / WRONG <= one / last <= WRONG]
    return not alike or geometric_mean(alike) <= 1 - REPLACE


def _same(best: Measurement, other: Measurement) -> bool:
    return ratio_of(other) <= ratio_of(best) * (1 + min(SAME, joint_margin(best, other)))


def joint_margin(a: Measurement, b: Measurement) -> float:
    """Of two races, at 95 %; torch.topk's ratio to itself has none."""
    return hypot(*(0.0 if one.candidate == TORCH_TOPK else one.margin or 0.0 for one in (a, b)))


def _winner(chosen: Evidence, runner_up: Evidence | None) -> Winner:
    if runner_up is None:
        return winner_of(chosen, None, None)
    gap = ratio_of(runner_up.measurement) / ratio_of(chosen.measurement) - 1
    return winner_of(chosen, _candidate(runner_up), gap)


def _candidate(one: Evidence) -> Candidate:
    return one.measurement.candidate


def _age(one: Evidence) -> tuple[str, bool, str]:
    """Oldest first; of the same instant failures come last, so that they count."""
    return one.measurement.measured_at, one.measurement.status != "ok", one.measurement.uuid


def ratio_of(one: Measurement) -> float:
    """To torch.topk's time, by which candidates rank."""
    if one.candidate == TORCH_TOPK and one.status == "ok":
        return 1.0
    if one.ratio is None:
        raise ValueError(f"measurement {one.uuid} is ok but has no ratio")
    return one.ratio
