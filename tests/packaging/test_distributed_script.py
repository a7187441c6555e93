"""The script that checks and times top-k over ranks, on two ranks of a CPU."""

import json
import subprocess
import sys
from pathlib import Path


def test_two_ranks(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, "-m", "scripts.distributed", "--small", "--calls", "3", "--json", str(figures)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("exact, the same on all ranks") == 2
    assert done.stdout.count("eager, sizes exchanged: ") == done.stdout.count("from idle, sizes exchanged: ") == 2
    rows = json.loads(figures.read_text())["rows"]
    assert [(row["rows"], row["k"]) for row in rows] == [(1, 100), (4, 1500)]
    assert all(len(row["eager_us"]) == 6 for row in rows)
