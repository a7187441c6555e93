"""Winners to plant, and processes to follow them in."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from autotopk import registry
from autotopk.candidate import Candidate
from autotopk.device import H100, cpu_device
from autotopk.identity import Identity
from autotopk.key import TuningKey
from autotopk.problem import Problem
from autotopk.tuning_db.records import Winner

SORT = '{"chunk":0,"method":"sort"}'
CHUNKED = '{"chunk":512,"method":"chunked"}'


def winner(rows: int, cols: int, k: int, config: str = SORT, **changes: Any) -> Winner:
    """torch_fallback with that configuration, measured twice as fast as torch.topk on this CPU."""
    problem = Problem.contiguous(rows, cols, k, device_type="cpu")
    fields: dict[str, Any] = {
        "device": cpu_device(),
        "key": TuningKey.of(problem),
        "candidate": Candidate("torch_fallback", config),
        "identity": identity_of(config, problem),
        "time_us": 5.0,
        "baseline_us": 10.0,
        "ratio": 0.5,
        "baseline": "aten",
        "measured_at": "2026-01-01T00:00:00+00:00",
    }
    return Winner(**(fields | changes))


def identity_of(config: str, problem: Problem) -> Identity:
    """Of the program that torch_fallback makes of the configuration."""
    strategy = registry.get("torch_fallback")
    return strategy.program(strategy.parse_config(config), problem, cpu_device()).identity(problem, cpu_device().arch)


def environment(cache: Path, **variables: str) -> dict[str, str]:
    """A process's environment with nothing tuned but what the variables bring."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTOPK_")}
    return {**kept, "AUTOTOPK_CACHE_DIR": str(cache), "AUTOTOPK_SHIPPED": "0", **variables}


def python(code: str, variables: dict[str, str]) -> str:
    """What a fresh process prints; it must end well."""
    run = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


FIRST_CALLS = """
import os, sys, torch, warnings
import autotopk.runtime.api
from autotopk import registry
registry.available()  # what all of them import, which takes a second, is imported once
torch.set_num_threads(1)
start, go = os.pipe()
children = []
for _ in range(16):
    if not (child := os.fork()):
        break
    children.append(child)
else:
    os.close(start)
    os.close(go)  # all at once
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(max(codes, key=abs))
os.close(go)
os.read(start, 1)
caught = []
warnings.showwarning = lambda message, category, *_: caught.append(f"{category.__name__}: {message}"[:29])
x = torch.randn(64, 1024, device=os.environ["DEVICE"])
assert torch.equal(autotopk.topk(x, 16).values, torch.topk(x, 16).values)
os.write(1, f"{caught}\\n".encode())
os._exit(0)  # taking torch apart is most of what a process costs
"""
"""Sixteen processes whose first call comes at the same moment; each prints its warnings."""


def coefficients(strategy: str, first: float, others: float = 0.0) -> tuple[float, ...]:
    """As they are fitted: so many microseconds in any case, and more with every term, none of which has a limit."""
    its, problem = registry.get(strategy), Problem.contiguous(64, 5000, 100)
    terms = len(its.terms(its.shortlist(problem, H100)[0], problem, H100))
    return (first, *(others,) * (terms - 1), *(1e30,) * terms)
