"""Tuners that are disturbed, each in a process of its own: forked from this one, which has imported everything once.

python scenario.py (kill | interrupt | together) FOLDER writes JSON about what happened; the database is in FOLDER.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import TextIO

import optuna  # noqa: F401  # saves every tuner the import
import torch

from autotopk.tuning.events import CandidateMeasured, Event
from autotopk.tuning.tuner import tune
from autotopk.workloads import Workload, grid

WORKLOADS = grid([2, 4], [64, 128, 256], [3])
KILLS = 10
TOGETHER = WORKLOADS[:2]
"""What two tuners share, who both have to measure it."""


def start(folder: Path, workloads: list[Workload] = WORKLOADS) -> tuple[int, TextIO]:
    """A tuner's process, and what it prints: a line for each stored measurement, then its outcome."""
    ours, theirs = os.pipe()
    if pid := os.fork():
        os.close(theirs)
        return pid, os.fdopen(ours)
    os.close(ours)

    def tell(event: Event) -> None:
        if isinstance(event, CandidateMeasured):
            os.write(theirs, f"{event.measurement.uuid}\n".encode())

    report = tune(
        workloads,
        store_path=folder / "tuning.sqlite",
        winners_path=folder / "winners.sqlite",
        device=torch.device("cpu"),
        strategies=["torch_fallback"],
        on_event=tell,
    )
    os.write(theirs, f"{report.outcome}\n".encode())
    os._exit(0)


def finish(pid: int, output: TextIO) -> tuple[int, list[str]]:
    """Exit code, negative for a signal, and all lines."""
    with output:
        lines = output.read().split()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), lines


def disturb(folder: Path, number: int, draw: random.Random) -> tuple[int, list[str]]:
    """Send a signal at a random moment: while it starts, or after some measurements."""
    pid, output = start(folder)
    lines = [output.readline().strip() for _ in range(draw.randint(0, 8))]
    time.sleep(draw.uniform(0, 0.5))
    os.kill(pid, number)
    code, rest = finish(pid, output)
    return code, [line for line in [*lines, *rest] if line]


def main(scenario: str, folder: Path) -> None:
    """Play a scenario."""
    draw = random.Random(1)
    match scenario:
        case "kill":
            runs = [disturb(folder, signal.SIGKILL, draw) for _ in range(KILLS)]
            runs.append(finish(*start(folder)))
        case "interrupt":
            pid, output = start(folder)
            lines = [output.readline().strip() for _ in range(5)]
            os.kill(pid, signal.SIGINT)
            code, rest = finish(pid, output)
            runs = [(code, lines + rest)]
        case "together":
            tuners = [start(folder, TOGETHER), start(folder, TOGETHER)]
            runs = [finish(*tuner) for tuner in tuners]
        case _:
            raise ValueError(f"scenario {scenario!r} is not kill, interrupt or together")
    sys.stdout.write(json.dumps(runs))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
