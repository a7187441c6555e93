"""Routers are tuned, missed, warmed up and explained as any workload is."""

import json
from pathlib import Path

import pytest
import torch

import autotopk
from autotopk.candidate import TORCH_TOPK
from autotopk.cli import arguments
from autotopk.device import cpu_device
from autotopk.errors import SelectionError
from autotopk.key import TuningKey
from autotopk.problem import Problem
from autotopk.routing import Routing
from autotopk.runtime import misses
from autotopk.runtime.winners import Winners
from autotopk.tuning.tuner import tune
from autotopk.tuning_db import artifact
from autotopk.tuning_db.store import Store
from autotopk.workloads import Workload, tagged

RULE = "sigmoid+bias:4of8"
WORKLOAD = Workload(4, 64, 5, routing=Routing.parse(RULE))


def test_keys_tell_rules_apart() -> None:
    key, plain = WORKLOAD.key, Workload(4, 64, 5).key
    assert (key.routing, plain.routing) == (RULE, "")
    assert str(key) == f"4x64 k=5 float32 {RULE}"
    assert Workload.of(key) == WORKLOAD
    assert key.distance(plain) == float("inf")
    assert key.bucket() != plain.bucket()
    assert all(bucket[-1] == RULE for bucket in key.buckets_within(1.0))


@pytest.mark.filterwarnings("ignore::autotopk.AutotopkWarning")
def test_winners_of_routers_serve_routers(tmp_path: Path) -> None:
    paths = {"store_path": tmp_path / "tuning.sqlite", "winners_path": tmp_path / "winners.sqlite"}
    report = tune([WORKLOAD, Workload(4, 64, 5)], device=torch.device("cpu"), **paths)  # type: ignore[arg-type]
    assert [result.outcome for result in report.results] == ["tuned", "tuned"]
    with Store.open(paths["store_path"]) as store:
        measured = [one for one in store.measurements() if one.key.routing]
        assert {(one.status, one.candidate) for one in measured} == {("ok", TORCH_TOPK)}
    found, known = artifact.contents(paths["winners_path"]), Winners(cpu_device())
    for row in found.rows:
        known.add(row, found.winner)
    exact = known.exact(WORKLOAD.key)
    assert exact is not None
    assert exact.candidate == TORCH_TOPK
    assert {winner.key.routing for winner in known} == {"", RULE}
    assert list(known.near(TuningKey("float32", 8, 64, 5, True, "softmax"))) == []
    assert [one.key for one in known.near(TuningKey("float32", 8, 64, 5, True, RULE))] == [WORKLOAD.key]


def test_misses_name_the_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "misses.jsonl"
    monkeypatch.setenv("AUTOTOPK_MISSES", str(path))
    autotopk.reload()
    with pytest.warns(autotopk.AutotopkWarning, match=r"nothing like 4x64 k=5 float32 sigmoid\+bias:4of8 was tuned"):
        autotopk.topk_softmax(torch.randn(4, 64), 5, bias=torch.zeros(64), scoring="sigmoid", n_group=8, topk_group=4)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert RULE in [line["routing"] for line in lines]
    assert WORKLOAD in misses.read(path, cpu_device())
    autotopk.reload()


@pytest.mark.filterwarnings("ignore::autotopk.AutotopkWarning")
def test_warmup_takes_routers() -> None:
    report = autotopk.warmup([WORKLOAD, WORKLOAD.problem("cpu")], device="cpu")
    assert [row.origin for row in report.rows] == ["torch"]
    assert len(autotopk.warmup("routing", device="cpu").rows) == len(tagged("routing"))


def test_the_command_line_names_rules() -> None:
    sizes: tuple[list[str], list[str], list[str], list[str], list[str]] = ([], ["4"], ["64"], ["5"], [])
    assert arguments.workloads(*sizes, RULE) == [WORKLOAD]
    assert {one.sorted for one in arguments.workloads(*sizes)} == {True, False}
    for rule, told in (("softmix", "is not SCORING"), ("softmax:2of7", "64 experts are not in n_group=7")):
        with pytest.raises(SelectionError, match=told):
            arguments.workloads(*sizes, rule)
    with pytest.raises(SelectionError, match="--routing needs --rows"):
        arguments.workloads(["ci"], [], [], [], [], RULE)


@pytest.mark.filterwarnings("ignore::autotopk.AutotopkWarning")
def test_explain_names_the_rule() -> None:
    told = autotopk.explain_problem(Problem.contiguous(4, 64, 5, device_type="cpu", routing=Routing()), cpu_device())
    assert str(told).startswith("4x64 float32 k=5 (softmax) on cpu\n  runs torch_fallback")
