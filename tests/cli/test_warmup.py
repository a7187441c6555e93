"""`autotopk warmup`: shapes, tags and misses, a table or JSON."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL, Cli, process


def test_shapes(cli: Cli) -> None:
    told = cli("warmup", "4x256x8", "4x256x8:int8", "--device", "cpu")
    assert "4x256 float32 k=8 (largest, sorted) on cpu" in told.stdout
    assert "4x256 int8 k=8 (largest, sorted) on cpu" in told.stdout
    assert told.stdout.count("torch.topk") == 2
    assert told.stderr.endswith("2 torch; torch's operators serve them, nothing is to be compiled\n")


def test_json(cli: Cli) -> None:
    told = json.loads(cli("warmup", "4x256x8", "--tag", "ci", "--device", "cpu", "--json").stdout)
    first, *others = told["problems"]
    assert len(others) == 20
    assert (first["problem"]["rows"], first["origin"], first["step"]) == (4, "torch", "torch")
    assert told["device"].startswith("cpu|")


def test_misses(cli: Cli, tmp_path: Path) -> None:
    misses = tmp_path / "misses"
    missed = process("explain", *SMALL, "--device", "cpu", cache=tmp_path, AUTOTOPK_MISSES=str(misses))
    assert missed.returncode == 0, missed.stderr
    [row] = json.loads(cli("warmup", "--misses", misses, "--device", "cpu", "--json").stdout)["problems"]
    assert (row["problem"]["rows"], row["problem"]["cols"], row["problem"]["k"]) == (4, 256, 8)


@pytest.mark.parametrize("options", [(), ("--winners-only",)])
def test_what_is_deployed(cli: Cli, tuned_cache: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    """A bundle and a winners file name the problems that they have winners for."""
    file = tmp_path / "winners.sqlite"
    cli("export", file, *options)
    rows = json.loads(cli("warmup", file, "--device", "cpu", "--json").stdout)["problems"]
    assert {(row["problem"]["cols"], row["problem"]["sorted"], row["step"]) for row in rows} == {
        (256, True, "exact"),
        (256, False, "exact"),
    }


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["4x256"], "'4x256' is no file and not ROWSxCOLSxK[:DTYPE]"),
        (["4x256x8:float33"], "dtype 'float33' is not one of"),
        (["4x256x257"], "1 <= k <= cols, got 4x256, k=257"),
        (["--tag", "nonsense"], "--tag 'nonsense' is not one of"),
        (["--misses", "/no/such/file"], "/no/such/file"),
    ],
)
def test_mistakes_cost_a_line(cli: Cli, arguments: list[str], named: str) -> None:
    told = cli("warmup", *arguments, "--device", "cpu", code=2).stderr
    assert named in told
    assert len(told.splitlines()) == 1
