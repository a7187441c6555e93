"""Publish what an oracle measured: `python scripts/sweep.py FILE [DATABASE]`, after `autotopk tune --effort oracle`.

FILE gets every point of this device's workloads in the database with its ratio to torch.topk; a table says how far from
the best the shortlists are. `tests/tuning/test_sweep.py` replays the published file.
"""

import json
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import exp, fsum, log
from pathlib import Path
from typing import Any

import torch

from autotopk import settings
from autotopk.candidate import Candidate, knobs_json
from autotopk.cli import bench
from autotopk.device import Device, device_of
from autotopk.tuning.candidates import candidates
from autotopk.tuning.log import Log
from autotopk.tuning_db.store import Store
from autotopk.workloads import Workload, tagged

Ratios = Mapping[Candidate, float | None]
"""Of the time of torch.topk; None of what failed."""


def ratios(found: Log) -> Ratios:
    """As raced where they were, else as screened."""
    return {
        one: found.raced.get(one, last).ratio if last.status == "ok" else None for one, last in found.latest.items()
    }


def to_json(workload: Workload, points: Ratios) -> dict[str, Any]:
    """By strategy, the names of its knobs, and a row of their values and the ratio for each point, the best first."""
    strategies: defaultdict[str, list[tuple[dict[str, Any], float | None]]] = defaultdict(list)
    for candidate, ratio in sorted(points.items(), key=lambda one: (one[1] is None, one[1], one[0])):
        strategies[candidate.strategy].append((candidate.knobs, ratio and float(f"{ratio:.5g}")))
    return {
        **{name: getattr(workload, name) for name in ("rows", "cols", "k", "dtype", "sorted")},
        "strategies": {
            name: {"knobs": list(found[0][0]), "points": [[*knobs.values(), ratio] for knobs, ratio in found]}
            for name, found in sorted(strategies.items())
        },
    }


def text(document: Mapping[str, Any], swept: Mapping[Workload, Ratios]) -> str:
    """The document and, a line each, the workloads."""
    lines = (json.dumps(to_json(workload, points), separators=(",", ":")) for workload, points in swept.items())
    head = json.dumps(document, indent=1).removesuffix("\n}")
    return head + ',\n "workloads": [\n' + ",\n".join(lines) + "\n ]\n}\n"


def from_json(recorded: Mapping[str, Any]) -> tuple[Workload, Ratios]:
    """The inverse of `to_json`."""
    told = dict(recorded)
    points: dict[Candidate, float | None] = {}
    for name, found in told.pop("strategies").items():
        for *values, ratio in found["points"]:
            points[Candidate(name, knobs_json(dict(zip(found["knobs"], values, strict=True))))] = ratio
    return Workload(**told), points


def device_in(document: Mapping[str, Any]) -> Device:
    """The device that was measured."""
    told = {name: value for name, value in document["device"].items() if name != "fingerprint"}
    return Device(**{**told, "capability": tuple(told["capability"])})


def best(points: Ratios, among: Iterable[Candidate] | None = None) -> float:
    """The least ratio, perhaps only among some; infinite where none of those has one."""
    found = (points.get(one) for one in (points if among is None else among))
    return min((ratio for ratio in found if ratio is not None), default=float("inf"))


def regret_of_quick(workload: Workload, points: Ratios, device: Device) -> float:
    """How much slower than the best of all is the best of the shortlists, as a fraction."""
    return best(points, candidates(workload.problem(device.type), device)) / best(points) - 1


def geometric_mean(regrets: Iterable[float]) -> float:
    """Of fractions."""
    logs = [log(1 + regret) for regret in regrets]
    return exp(fsum(logs) / len(logs)) - 1


def table(swept: Mapping[Workload, Ratios], device: Device) -> Iterator[str]:
    """A line a workload, and one of all."""
    yield f"{'workload':40} {'points':>6} {'failed':>6} {'quick':>7}  best"
    for workload, points in swept.items():
        winner = min((one for one in points if points[one] is not None), key=lambda one: points[one] or 0.0)
        failed = sum(ratio is None for ratio in points.values())
        quick = f"{regret_of_quick(workload, points, device):+.1%}"
        yield f"{workload!s:40} {len(points):6} {failed:6} {quick:>7}  {points[winner]:.4f} {winner}"
    mean = geometric_mean(regret_of_quick(one, points, device) for one, points in swept.items())
    yield f"{sum(map(len, swept.values()))} points; quick is {mean:.2%} slower than the best in geometric mean"


def main(file: Path, database: Path) -> None:
    """Write the file and print the table."""
    document = bench.document([], torch.device("cuda"), shlex.join(["python", *sys.argv]))
    device, baseline = device_of(torch.device("cuda")), document["versions"]["baseline"]
    swept = {}
    with Store.open(database, read_only=True) as store:
        for workload in tagged("sweep"):
            found = Log.of(store.evidence(device.fingerprint, workload.key), baseline)
            if found.latest:
                swept[workload] = ratios(found)
    for name in ("rows", "summary"):
        del document[name]
    file.write_text(text(document, swept))
    print("\n".join(table(swept, device)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else settings.database_path())
