"""The script that checks and times top-k over ranks, on two ranks of a CPU."""

import subprocess
import sys


def test_two_ranks() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, "-m", "scripts.distributed", "--small", "--calls", "3"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("exact, the same on all ranks") == 2
    assert done.stdout.count("floor") == 2
