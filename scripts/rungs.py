"""What kernels that are not shipped would gain: `python -m scripts.rungs [COUNT [SEED]]`, by predictions alone.

At shapes drawn as `scripts.regret` draws them, the least predicted time of rungs beside the least of rungs and
shortlists, by the family of the latter; and the shapes where most is lost. Predictions are those that are shipped, of
an H200; no GPU is needed.
"""

from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Sequence
from math import fsum, log
from statistics import geometric_mean
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from autotopk import registry
from autotopk.candidate import TORCH_TOPK
from autotopk.device import Device
from autotopk.prediction import Model
from autotopk.runtime.winners import layers, read_layers
from autotopk.strategy import numbers
from autotopk.workloads import Workload, spread

KIND = "topk"


class Lost(NamedTuple):
    """What one shape takes with the kernels that are there, over what it would with all."""

    ratio: float
    workload: Workload
    best: str
    rung: str


def lost(workload: Workload, device: Device, model: Model) -> Lost | None:
    """None where nothing that is shipped serves it."""
    problem, near = workload.problem(device.type), model.near(workload.key)
    best: dict[str, float] = {}
    rung: dict[str, float] = {}
    for strategy in registry.available():
        if strategy.name not in model.strategies or not strategy.is_able(problem, device):
            continue
        time_us, ladder = model.of(strategy.name, near), strategy.ladder(problem, device)
        for config in dict.fromkeys([*ladder, *strategy.shortlist(problem, device)]):
            name = str(strategy.candidate(config))
            found = time_us(name, numbers(config), strategy.terms(config, problem, device))
            if found is not None:
                best[name] = found
                if config in ladder or strategy.name == TORCH_TOPK.strategy:
                    rung[name] = found
    if not rung:
        return None
    first, second = min(best, key=best.__getitem__), min(rung, key=rung.__getitem__)
    return Lost(rung[second] / best[first], workload, first, second)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=1000)
    parser.add_argument("seed", nargs="?", type=int, default=201)
    asked = parser.parse_args(arguments)
    fitted = [one for one in read_layers(layers()[2:]).values() if one.models(KIND)]
    device, model = next((one.device, one.models(KIND)[0]) for one in fitted if one.device)
    drawn = (lost(workload, device, model) for workload in spread(asked.count, asked.seed))
    every = [one for one in drawn if one]
    families = defaultdict[str, list[float]](list)
    for one in every:
        families[one.best.split()[0]].append(one.ratio)
    table = Table(title=f"{len(every)} shapes, {geometric_mean([one.ratio for one in every]):.3f} times the least")
    for column in ("quickest", "shapes", "with what is there", "above 1.1"):
        table.add_column(column)
    for name, ratios in sorted(families.items(), key=lambda one: -fsum(map(log, one[1]))):
        table.add_row(
            name, str(len(ratios)), f"{geometric_mean(ratios):.3f}", str(sum(ratio > 1.1 for ratio in ratios))
        )
    console = Console(width=200)
    console.print(table)
    for one in sorted(every, key=lambda one: -one.ratio)[:20]:
        console.print(f"{one.ratio:.2f} {one.workload}: {one.best}, there {one.rung}", highlight=False)


if __name__ == "__main__":
    main()
