"""Regret on shapes that nobody tuned: `python scripts/regret.py [COUNT [SEED]] [--budget S] [--db FILE] [--json FILE]`.

Shapes are drawn as the tag `grid` draws its own, by another seed. For each of them three candidates and torch.topk are
timed in turn: what dispatch serves with the kernels that are there, what it serves once kernels were built, and the
best of `autotopk tune --effort quick` on that very shape, in a database of its own. Regret is the time of what is
served over that of the best, less the 95 % margin of the difference, and never below 1. With a budget, of which tuning
takes four fifths, as many shapes are tuned as there is time for, those are raced of which all candidates were measured
by then, and it is told how many. With `--db` and `--json` files of an earlier run this one goes on where that ended.
`--small` draws small shapes, for a CPU.
"""

import json
import os
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

import torch
from rich.progress import track

import autotopk
from autotopk.candidate import Candidate
from autotopk.cli import bench
from autotopk.device import Device, device_of
from autotopk.errors import AutotopkError
from autotopk.oracle.reference import problems_with
from autotopk.problem import Problem
from autotopk.runtime.launch import bind
from autotopk.torch_topk import torch_topk
from autotopk.tuning import timing
from autotopk.tuning.candidates import program_of
from autotopk.tuning.race import Race, estimate
from autotopk.tuning.tuner import tune
from autotopk.workloads import Workload, spread

ROUNDS = 9
TUNING = 0.8
"""Share of a budget."""

EACH_S = 0.75
"""Of tuning for a shape, with its kernels' compilation by 16 cores: in less, a budget cuts off candidates."""

AT_ONCE = 40
"""Shapes whose kernels are built before they are raced, so that a budget that ends leaves figures of those before."""

SLOWER = 1.03
"""Times torch.topk's time that is called slower."""


@dataclass(frozen=True)
class Row:
    """Of one shape."""

    workload: str
    best: str
    best_us: float
    step: str
    """How what is served was chosen before anything was built; and after that."""
    served: str
    built_step: str
    built: str
    regret: float
    built_regret: float
    over_torch: float
    """Time of what is served before anything was built, as a multiple of torch.topk's; and after that."""
    built_over_torch: float
    bound: float | None = None
    """Of `built_regret`, as predictions told it; None of what was not predicted, and in records before they did."""


class Served(NamedTuple):
    """What dispatch serves."""

    step: str
    candidate: Candidate
    bound: float | None


def served(problems: Iterable[Problem], device: Device, build: str) -> list[Served]:
    """With AUTOTOPK_BUILD as said; "wait" builds first what it would run."""
    os.environ["AUTOTOPK_BUILD"] = build
    autotopk.reload()
    problems = list(problems)
    if build == "wait":
        autotopk.warmup(problems)
    choices = [autotopk.explain_problem(problem, device).choice for problem in problems]
    return [Served(one.step, one.candidate, one.prediction.bound if one.prediction else None) for one in choices]


def raced(
    problem: Problem, candidates: Iterable[Candidate], place: torch.device
) -> dict[Candidate | None, list[float]]:
    """Microseconds of each of them, and of torch.topk, round by round. Raises RuntimeError for a wrong answer."""
    timer, device = timing.timer_for(timing.random_inputs(problem, place)), device_of(place)
    samples: dict[Candidate | None, timing.Sample] = {}
    samples[None] = timer.prepare(partial(torch_topk, k=problem.k, sorted=problem.sorted))
    for one in dict.fromkeys(candidates):
        run: timing.Run = bind(program_of(one, problem, device), problem, device)
        values, indices = run(x := timer.inputs[0])
        if wrong := problems_with(x, values, indices, problem.k, sorted=problem.sorted):
            raise RuntimeError(f"{one} on {problem}: {'; '.join(wrong)}")
        samples[one] = timer.prepare(run)
    race = Race([one for one in samples if one], ROUNDS, ROUNDS, retire=False)
    times: dict[Candidate | None, list[float]] = {one: [] for one in samples}
    for sample in samples.values():
        sample()
    while order := race.next_round():
        found = {one: samples[one]() for one in order}
        for candidate, us in found.items():
            times[candidate].append(us)
        race.record(found)
    return times


def regret(mine: Sequence[float], best: Sequence[float]) -> float:
    """Of times over the best's, both by rounds."""
    found = estimate(mine, best)
    return max(1.0, found.ratio * (1 - found.margin))


def summary(title: str, regrets: Sequence[float], over_torch: Sequence[float], steps: Iterable[str]) -> str:
    """In one line."""
    counts = ", ".join(f"{count} by {step}" for step, count in Counter(steps).most_common())
    return (
        f"{title}: regret {geometric_mean(regrets):.3f} in geometric mean, {max(regrets):.2f} at worst, above 1.1 in "
        f"{sum(one > 1.1 for one in regrets)} of {len(regrets)}; slower than torch.topk in "
        f"{sum(one > SLOWER for one in over_torch)}; {counts}"
    )


def measured(
    workloads: Sequence[Workload], place: torch.device, database: Path, budget_s: float | None
) -> Iterator[Row]:
    """Ask, tune and race all shapes, or as many as there is time for."""
    device, until = device_of(place), float("inf") if budget_s is None else time.monotonic() + budget_s
    if budget_s is not None:
        workloads = workloads[: max(1, int(TUNING * budget_s / EACH_S))]
    problems = [workload.problem(place.type) for workload in workloads]
    before = served(problems, device, "never")
    report = tune(
        workloads,
        store_path=database,
        winners_path=database.with_suffix(".winners.sqlite"),
        device=place,
        budget_s=budget_s and TUNING * budget_s,
    )
    whole = [
        one
        for one in report.results
        if one.outcome in ("tuned", "confirmed") and sum((one.measured or {}).values()) >= one.candidates
    ]
    best = {one.workload: one.winner.candidate for one in whole if one.winner}
    tuned = [one for one in zip(workloads, problems, before, strict=True) if one[0] in best]
    after: list[Served] = []
    for number, (workload, problem, (step, mine, _)) in enumerate(track(tuned, description="racing")):
        if time.monotonic() > until:
            break
        if number == len(after):
            after += served([problem for _, problem, _ in tuned[number : number + AT_ONCE]], device, "wait")
        built_step, built, bound = after[number]
        try:
            times = raced(problem, (mine, built, best[workload]), place)
        except (AutotopkError, torch.OutOfMemoryError) as error:
            print(f"{workload}: {timing.first_line(error)}")
            continue
        quickest, torchs = times[best[workload]], times[None]
        yield Row(
            str(workload),
            str(best[workload]),
            min(quickest),
            step,
            str(mine),
            built_step,
            str(built),
            regret(times[mine], quickest),
            regret(times[built], quickest),
            estimate(times[mine], torchs).ratio,
            estimate(times[built], torchs).ratio,
            bound,
        )
        if place.type == "cuda":
            torch.cuda.empty_cache()


def earlier(file: Path | None, seed: int, device: Device) -> list[Row]:
    """What an earlier run left in its file. Raises ValueError where that is of another seed or device."""
    if file is None or not file.exists():
        return []
    found = json.loads(file.read_text())
    if (found["seed"], found["device"]["fingerprint"]) != (seed, device.fingerprint):
        raise ValueError(f"{file} is of seed {found['seed']} and {found['device']['fingerprint']}")
    return [Row(**one) for one in found["rows"]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is asked for."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=500)
    parser.add_argument("seed", nargs="?", type=int, default=1)
    parser.add_argument("--budget", type=float, metavar="SECONDS")
    parser.add_argument("--db", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args(arguments)
    if options.seed == 0:
        parser.error("seed 0 is that of the grid, which is tuned")
    place = torch.device("cuda" if torch.cuda.is_available() and not options.small else "cpu")
    drawn = spread(64 * options.count if options.small else options.count, options.seed)
    small = [one for one in drawn if one.bytes < 1 << 18 and one.k < 256] if options.small else drawn
    rows = earlier(options.json, options.seed, device_of(place))
    left = [one for one in small[: options.count] if str(one) not in {row.workload for row in rows}]
    document = bench.document([], place, " ".join(["python", *sys.argv])) | {"seed": options.seed}
    document.pop("summary")
    with tempfile.TemporaryDirectory() as folder:
        for row in measured(left, place, options.db or Path(folder, "best.sqlite"), options.budget):
            rows.append(row)
            if options.json:  # each at once, so that a run that is killed leaves them
                options.json.write_text(json.dumps(document | {"rows": list(map(asdict, rows))}, indent=1) + "\n")
    print(f"{len(rows)} of {options.count} shapes")
    if not rows:
        parser.exit(1, "no shape was tuned and raced in that time\n")
    for row in sorted(rows, key=lambda one: one.regret, reverse=True)[:10]:
        print(f"{row.regret:.2f} ({row.built_regret:.2f} built) {row.workload}: {row.served} by {row.step}; {row.best}")
    ways = (
        ("with the kernels that are there", "regret", "over_torch", "step"),
        ("once built", "built_regret", "built_over_torch", "built_step"),
    )
    for title, *columns in ways:
        print(summary(title, *([getattr(row, column) for row in rows] for column in columns)))
    if told := [(row.built_regret, row.bound) for row in rows if row.bound is not None]:
        bounds, beyond = sorted(bound for _, bound in told), sum(its > bound for its, bound in told)
        middle, most = bounds[len(bounds) // 2], bounds[int(0.95 * (len(bounds) - 1))]
        print(f"bounds {middle:.3f} in the median, {most:.3f} of 95 %; {beyond} of {len(told)} beyond theirs")


if __name__ == "__main__":
    main()
