"""Help is quick, and mistakes cost one line that names them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import autotopk
from tests.cli.conftest import ROOT, SMALL, Cli

COMMANDS = (
    "tune",
    "drop",
    "show",
    "report",
    "explain",
    "warmup",
    "export",
    "verify",
    "diff",
    "import",
    "bench",
    "doctor",
)


CODE = """
import atexit, sys, time
loaded = lambda: sorted({"torch", "rich", "sqlalchemy", "optuna", "triton", "tilelang"} & {*sys.modules})
atexit.register(lambda: print(time.process_time(), *loaded(), file=sys.stderr))
from autotopk.cli.app import main
sys.argv[0] = "autotopk"
main()
"""
"""The command line in a process that ends by telling its CPU seconds, user and system, and what it loaded."""


def command(*arguments: str, **variables: str) -> tuple[str, float, list[str]]:
    """Standard output, CPU seconds, heavy modules."""
    process = subprocess.run(
        [sys.executable, "-c", CODE, *arguments],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, *modules = process.stderr.split()
    return process.stdout, float(seconds), modules


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["tune", "--help"]], ids=" ".join)
def test_help_is_quick(arguments: list[str]) -> None:
    """0.4 s of CPU time; the best of three runs, as other processes' caches count into one."""
    outputs, seconds, modules = zip(*(command(*arguments) for _ in range(3)), strict=True)
    assert min(seconds) < 0.4
    assert modules == ([], [], [])
    assert outputs[0].startswith("Usage: " if "--help" in arguments else f"autotopk {autotopk.__version__}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_loads_neither_torch_nor_tables(name: str) -> None:
    told, _, modules = command(name, "--help")
    assert told.startswith(f"Usage: autotopk {name} ")
    assert modules == []


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("tune --tag ", {"ci", "seeds", "serving"}),
        ("bench --tag ci,se", {"ci,seeds", "ci,serving"}),
        ("tune --dtype b", {"bfloat16"}),
        ("tune --strategy lane", {"lane_merge"}),
        ("tune --effort ", {"quick", "full", "oracle"}),
        ("tune --device c", {"cpu", "cuda"}),
        ("explain --device H", {"H200"}),
        ("tune --eff", {"--effort"}),
        ("do", {"doctor"}),
    ],
)
def test_shells_complete(words: str, offered: set[str]) -> None:
    told, _, modules = command(
        _AUTOTOPK_COMPLETE="complete_bash",
        COMP_WORDS=f"autotopk {words}",
        COMP_CWORD=str(len(words.split(" "))),
        AUTOTOPK_SHIPPED="1",
    )
    assert offered <= {*told.split()}
    assert "torch" not in modules


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_told_how_to_complete(shell: str) -> None:
    told, _, _ = command(_AUTOTOPK_COMPLETE=f"source_{shell}")
    assert f"_AUTOTOPK_COMPLETE=complete_{shell}" in told


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
        (["tune", "--rows", str(10**23), "--cols", "256", "-k", "8"], f"--rows '{10**23}' is not a whole number"),
        (["tune", "--rows", str(1 << 40), "--cols", str(1 << 40), "-k", "8"], "more than 9223372036854775807 bytes"),
        (["explain", "--rows", str(10**23), "--cols", "256", "-k", "8"], f"{10**23}x256 float32 is more than"),
        (["tune", *SMALL, "--budget", "inf"], "--budget inf"),
        (["tune", *SMALL, "--budget", "nan"], "--budget nan"),
        (["tune", *SMALL, "--budget", "-1"], "--budget -1"),
        (["tune", "--tag", ""], "--tag '' names nothing"),
        (["bench", "--tag", ","], "--tag ',' names nothing"),
        (["tune", *SMALL, "--strategy", ""], "--strategy '' names nothing"),
        (["tune", "--rows", "", "--cols", "8", "-k", "2"], "--rows '' names nothing"),
        (["bench", *SMALL, "--json", "tests"], "--json tests is a folder"),
        (["tune", "--device", "cuda:99999999999999999999"], "'cuda:99999999999999999999'"),
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


def test_mistakes_do_not_reach_the_terminal(cli: Cli) -> None:
    told = cli("tune", "--tag", "\x1b[31m\n" + "x" * 1000, code=2).stderr
    assert told.startswith("error: --tag '\\x1b[31m\\n")
    assert len(told) < 300


def test_lists_of_commands_are_not_cut(cli: Cli) -> None:
    assert "..." not in cli("--help").stdout.partition("Commands:")[2]


def test_bench_does_not_lose_its_rows_to_a_bad_path(cli: Cli, tmp_path: Path) -> None:
    told = cli("bench", *SMALL, "--device", "cpu", "--json", tmp_path / "absent" / "bench.json", code=2)
    assert str(tmp_path / "absent") in told.stderr
