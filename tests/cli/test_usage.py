"""Help is quick, and mistakes cost one line that names them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, SMALL, Cli

COMMANDS = ("tune", "show", "explain", "export", "import", "bench", "doctor")


def test_help_loads_neither_databases_nor_compilers() -> None:
    code = f"""
import sys
from autotopk.cli.app import app
for command in [[], *([command] for command in {COMMANDS!r})]:
    app([*command, "--help"], standalone_mode=False)
print(sorted({{"sqlalchemy", "optuna", "triton", "tilelang"}} & {{*sys.modules}}))
"""
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert process.stdout.splitlines()[-1] == "[]"
    assert process.stdout.count("Usage: ") == 1 + len(COMMANDS)


def test_help_names_every_command(cli: Cli) -> None:
    told = cli("--help").stdout
    assert all(f" {command} " in told for command in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["tune", "--tag", "nonsense"], "'nonsense'"),
        (["tune", "--rows", "4", "--cols", "256"], "-k is missing"),
        (["tune", "--rows", "4,x", "--cols", "256", "-k", "8"], "--rows 'x'"),
        (["tune", "--rows", "4", "--cols", "256", "-k", "257"], "k=257"),
        (["tune", *SMALL, "--dtype", "float31"], "'float31'"),
        (["tune", "--dtype", "float32"], "--dtype needs"),
        (["tune", *SMALL, "--strategy", "nonsense"], "'nonsense'"),
        (["tune", "--device", "tpu"], "'tpu'"),
        (["tune", "--device", "cuda:99"], "'cuda:99'"),
        (["tune", "--from-misses", "absent"], "absent"),
        (["bench", "--tag", "ci,nonsense"], "'nonsense'"),
        (["explain", "--rows", "4", "--cols", "256", "-k", "257"], "k=257"),
        (["explain", *SMALL, "--dtype", "complex64"], "'complex64'"),
        (["explain", *SMALL, "--device", "A100"], "'A100'"),
        (["show", "--db", "absent.sqlite"], "absent.sqlite"),
        (["show", "--all"], "there is no tuning database"),
        (["show", "--db", "pyproject.toml"], "pyproject.toml"),
        (["import", "pyproject.toml"], "pyproject.toml"),
    ],
    ids=" ".join,
)
def test_mistakes_are_named(cli: Cli, arguments: list[str], named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    told = cli(*arguments, code=2)
    assert told.stdout == ""
    (line,) = told.stderr.splitlines()
    assert line.startswith("error: ")
    assert named in line


def test_bench_does_not_lose_its_rows_to_a_bad_path(cli: Cli, tmp_path: Path) -> None:
    told = cli("bench", *SMALL, "--device", "cpu", "--json", tmp_path / "absent" / "bench.json", code=2)
    assert str(tmp_path / "absent") in told.stderr
