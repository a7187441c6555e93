"""`autotopk bench`: its table, its JSON, and that it notices a wrong answer."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import autotopk
from autotopk.cli.bench import Row, summaries
from autotopk.device import cpu_device
from tests.cli.conftest import SMALL, Cli

ROW = {
    "rows": int,
    "cols": int,
    "k": int,
    "dtype": str,
    "sorted": bool,
    "strategy": str,
    "config": dict,
    "step": str,
    "gpu_us": type(None),
    "host_us": float,
    "torch_gpu_us": type(None),
    "torch_host_us": float,
    "routing": str,
    "exact": bool,
    "problems": list,
    "cold": bool,
}


def test_table_and_json(cli: Cli, tmp_path: Path) -> None:
    told = cli("bench", *SMALL, "--dtype", "float32,int64", "--device", "cpu", "--json", tmp_path / "bench.json")
    assert "geometric mean" in told.stdout
    document = json.loads((tmp_path / "bench.json").read_text())
    assert document["device"]["fingerprint"] == cpu_device().fingerprint
    assert document["versions"]["torch"] == torch.__version__
    assert {"date", "command", "commit", "summary"} < set(document)
    rows = document["rows"]
    assert [(row["dtype"], row["sorted"]) for row in rows] == [
        ("float32", True),
        ("float32", False),
        ("int64", True),
        ("int64", False),
    ]
    for row in rows:
        assert {name: type(value) for name, value in row.items()} == ROW
        assert row["exact"]
        assert row["problems"] == []
        assert row["host_us"] > 0 < row["torch_host_us"]


def test_json_alone_on_standard_output(cli: Cli) -> None:
    told = json.loads(cli("bench", *SMALL, "--device", "cpu", "--json", "-").stdout)
    assert [row["sorted"] for row in told["rows"]] == [True, False]
    assert not Path("-").exists()


def test_times_what_was_tuned(cli: Cli, tuned_cache: Path, tmp_path: Path) -> None:
    cli("bench", *SMALL, "--device", "cpu", "--json", tmp_path / "bench.json")
    assert {row["step"] for row in json.loads((tmp_path / "bench.json").read_text())["rows"]} == {"exact"}


def test_wrong_answers_are_told(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def smallest(x: torch.Tensor, k: int, sorted: bool) -> Any:
        return torch.topk(x, k, largest=False, sorted=sorted)

    monkeypatch.setattr(autotopk, "topk", smallest)
    told = cli("bench", *SMALL, "--device", "cpu", "--json", tmp_path / "bench.json", code=1)
    assert "4x256 k=8 float32: random: " in told.stdout
    assert not any(row["exact"] for row in json.loads((tmp_path / "bench.json").read_text())["rows"])


def test_memory_that_is_short_costs_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = autotopk.topk

    def short(x: torch.Tensor, k: int, sorted: bool) -> Any:
        if x.shape[0] == 3:
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate [/red] 4 TB")
        return plain(x, k, sorted=sorted)

    monkeypatch.setattr(autotopk, "topk", short)
    told = cli("bench", "--rows", "3,4", "--cols", "256", "-k", "8", "--device", "cpu", code=1)
    assert told.stderr.count("3x256 k=8 float32 sorted: CUDA out of memory.\n") == 1
    assert "Tried" not in told.output
    assert "4x256 k=8 float32" in told.stdout
    assert "3x256" not in told.stdout


def test_memory_that_is_short_for_all_shapes(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(x: torch.Tensor, k: int, sorted: bool) -> Any:
        raise MemoryError

    monkeypatch.setattr(autotopk, "topk", short)
    assert "sorted: MemoryError\n" in cli("bench", *SMALL, "--device", "cpu", code=1).stderr


def test_summary_is_of_each_order_and_clock() -> None:
    def row(order: bool, gpu: float, host: float) -> Row:
        return Row(1, 8, 2, "float32", order, "", "s", {}, "exact", gpu, host, 10.0, 10.0, True, (), True)

    found = summaries([row(True, 1.0, 10.0), row(True, 4.0, 40.0), row(False, 5.0, 20.0)])
    assert [(one.sorted, one.clock, round(one.geometric_mean, 6), one.worst) for one in found] == [
        (True, "gpu", 0.2, 0.4),
        (True, "host", 2.0, 4.0),
        (False, "gpu", 0.5, 0.5),
        (False, "host", 2.0, 2.0),
    ]
