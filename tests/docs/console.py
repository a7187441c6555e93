"""Commands that pages show: run where a machine without a GPU can in seconds, else held against what there is."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import typer
from sybil import Example
from typer.testing import CliRunner

from autotopk.cli.app import app
from tests.packaging.processes import ROOT, run_python

COMMANDS = typer.main.get_command(app)

PARSED = ("tune", "bench", "--install-completion")
"""They take minutes, or write to the home folder: their arguments are checked, and nothing is run."""

QUICKER = {"scripts.predictions": ("--folds", "2", "--every", "8")}
"""Of modules that take a minute: what makes it seconds."""

RUNNER = ROOT / "autotopk/export/cpp/run_model.cpp"
SYNOPSIS = re.compile(r"[\[\]|]|\b[A-Z]{3,}\b")
"""Of a usage line, which names arguments."""


def lines(text: str) -> Iterator[str]:
    """The commands of a block, their further lines joined; output is left out."""
    command = ""
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield command
            command = line[2:]
        elif command and line.startswith("      "):
            command += " " + line.strip()
        elif command:
            yield command
            command = ""
    if command:
        yield command


def run_block(example: Example) -> None:
    """For sybil: every command of the block, in the folder and with the variables of the process."""
    for line in lines(example.parsed):
        run_line(line)


def run_line(line: str) -> None:
    """Run or check one command; AssertionError says what is wrong."""
    words = shlex.split(line, comments=True)
    variables = {}
    while re.match(r"[A-Z_]+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    program, arguments = words[0], words[1:]
    checks = {
        "autotopk": command,
        "python": script,
        "make": target,
        "openssl": tool,
        "pip": installed,
        "run_model": runner,
    }
    assert program in checks, f"{line}: nobody knows how to check {program}"
    checks[program](arguments, variables)


def command(arguments: list[str], variables: dict[str, str]) -> None:
    """Run one of ours; or parse its arguments, where it takes long; or look for its options, in a line of usage."""
    if SYNOPSIS.search(" ".join(arguments)):
        known = {option for one in subcommand(arguments[0]).params for option in one.opts}
        assert {word.strip("[]") for word in arguments if word.strip("[").startswith("-")} <= known, arguments
    elif arguments[0] in PARSED and "--from-misses" not in arguments:
        if not arguments[0].startswith("--"):
            subcommand(arguments[0]).make_context(arguments[0], arguments[1:]).close()
    else:
        told = CliRunner().invoke(app, [*arguments, *(["--budget", "4"] * (arguments[0] == "tune"))], env=variables)
        allowed = {0, 1} if "--device" in arguments or arguments[0] == "doctor" else {0}  # 1: here is no GPU
        assert told.exit_code in allowed, f"{arguments}: {told.output}{told.exception!r}"


def subcommand(name: str) -> click.Command:
    """One of ours by its name."""
    found: click.Command = vars(COMMANDS)["commands"][name]
    return found


def script(arguments: list[str], variables: dict[str, str]) -> None:
    """Run a program of the folder; of the repository's scripts, which need a GPU, the text must compile."""
    if arguments[0].startswith(("scripts/", "docs/")):
        compile((ROOT / arguments[0]).read_text(), arguments[0], "exec")
    else:
        quicker = QUICKER.get(arguments[1], ()) if arguments[0] == "-m" else ()
        run_python(*arguments, *quicker, cwd=Path.cwd(), path=(ROOT,), **variables)


def target(arguments: list[str], variables: dict[str, str]) -> None:
    """Make must know how, and does not."""
    known = [f"PYTHON={sys.executable}", *arguments]
    told = subprocess.run(["make", "-n", "-C", ROOT, *known], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr


def tool(arguments: list[str], variables: dict[str, str]) -> None:
    """A program of the system, where it is there."""
    if shutil.which("openssl"):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, env=dict(os.environ))


def installed(arguments: list[str], variables: dict[str, str]) -> None:
    """What is installed is declared, see tests/packaging/test_readme.py."""
    assert arguments[0] == "install", arguments


def runner(arguments: list[str], variables: dict[str, str]) -> None:
    """The runner of models, which tests/export compiles and runs: it has the options."""
    sources = "".join(path.read_text() for path in RUNNER.parent.glob("*.cpp"))
    assert all(word in sources for word in arguments if word.startswith("--")), arguments
