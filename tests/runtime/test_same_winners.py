"""Ranks of a job that have different winners use those of rank 0, each in a process with a cache folder of its own."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import autotopk
from autotopk.runtime.state import Runtime
from autotopk.tuning_db import artifact
from autotopk.tuning_db.records import Winner
from tests.runtime.winners import CHUNKED, SORT, environment, winner

SHAPE = 4, 2048, 8

RANK = """
import json, sys, warnings
import torch
from torch import distributed
import autotopk
from autotopk.runtime.state import default
rank, size, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
warnings.simplefilter("ignore")
distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
x = torch.randn(4, 2048)
before = autotopk.explain(x, 8).choice
digest = autotopk.sync_winners()
after = autotopk.explain(x, 8).choice
assert torch.equal(autotopk.topk(x, 8).values, torch.topk(x, 8).values)
swaps = [default.swaps]
autotopk.warmup([(4, 2048, 8)], device="cpu")
swaps.append(default.swaps)
again = autotopk.sync_winners()
autotopk.reload()
own = autotopk.explain(x, 8).choice
told = [[one.step, str(one.candidate)] for one in (before, after, own)]
print(json.dumps({"digests": [digest, again], "choices": told, "swaps": swaps}))
distributed.destroy_process_group()
"""


def ranks(folder: Path, planted: Sequence[Sequence[Winner]]) -> list[dict[str, Any]]:
    """What each prints that has these winners."""
    processes = []
    for rank, winners in enumerate(planted):
        cache = folder / f"rank{rank}"
        if winners:
            artifact.publish(winners, cache / "winners.sqlite")
        command = [sys.executable, "-c", RANK, str(rank), str(len(planted)), str(folder / "store")]
        processes.append(
            subprocess.Popen(command, env=environment(cache), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    ended = [one.communicate(timeout=120) for one in processes]
    assert not any(one.returncode for one in processes), [error for _, error in ended]
    return [json.loads(told) for told, _ in ended]


def test_all_ranks_choose_as_rank_0_does(tmp_path: Path) -> None:
    """Among them one with other winners, one with none, and one with the same."""
    planted = [[winner(*SHAPE, SORT)], [winner(*SHAPE, CHUNKED)], [], [winner(*SHAPE, SORT)]]
    told = ranks(tmp_path, planted)
    first = told[0]["choices"][0]
    assert first[0] == "exact"
    assert "sort" in first[1]
    assert [one["choices"][1] for one in told] == [first] * 4
    assert [one["choices"][0] for one in told] == [one["choices"][2] for one in told]  # own again after a reload
    assert told[1]["choices"][0] != first
    assert told[2]["choices"][0][0] != "exact"
    assert len({digest for one in told for digest in one["digests"]}) == 1
    assert [one["swaps"] for one in told] == [[False, True]] * 4


def test_a_rank_0_without_winners_takes_them_from_all(tmp_path: Path) -> None:
    told = ranks(tmp_path, [[], [winner(*SHAPE, SORT)]])
    assert told[1]["choices"][0][0] == "exact"
    assert told[0]["choices"][1] == told[1]["choices"][1]
    assert told[1]["choices"][1][0] != "exact"


def test_without_a_process_group() -> None:
    with pytest.raises((RuntimeError, ValueError), match="process group"):
        autotopk.sync_winners()


def test_kernels_of_background_builds_wait_for_all_ranks() -> None:
    runtime, waited = Runtime(), list[str]()
    runtime.agree((), lambda: waited.append("all"))
    assert runtime.known() == {}
    held = runtime.swaps
    runtime.plans("topk").remember("key", torch)  # whatever
    runtime.meet()
    runtime.meet()
    assert waited == ["all"]
    assert (held, runtime.swaps) == (False, True)
    assert not runtime.plans("topk")
