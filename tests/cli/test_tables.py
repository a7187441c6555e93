"""Tables and lines are whole wherever they are printed, and hold nothing that a terminal would obey."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import RenderableType

from autotopk.candidate import Candidate
from autotopk.cli import tables
from autotopk.device import H100
from autotopk.tuning.events import TuneReport, WorkloadResult
from autotopk.workloads import Workload
from tests.tuning_db.examples import measurement, winner

LONG = Candidate("cluster_radix", '{"blocks":16,"capacity":4096,"items":32,"radix_bits":11,"threads":1024,"vector":4}')
TORCHS = Candidate("torch_fallback", '{"chunk":0,"method":"topk"}')
WINNERS = [
    replace(winner(), candidate=LONG, runner_up=LONG, gap=0.123),
    replace(winner(), candidate=TORCHS, ratio=1.16),
]
WORKLOAD = Workload(64, 1024, 8)


def printed(what: RenderableType, monkeypatch: pytest.MonkeyPatch, *, width: int | None = None) -> str:
    """What `tables.console` prints to a terminal of that width, or to a pipe."""
    stream = io.StringIO()
    if width:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(stream, "isatty", lambda: True)
        monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("sys.stdout", stream)
    console = tables.console()
    console.print(what)
    return stream.getvalue()


def words(table: str) -> set[str]:
    return {*table.split()}


@pytest.mark.parametrize("width", [None, 250, 120, 80, 40, 10])
def test_no_word_is_broken_or_cut(width: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    told = printed(tables.winners_table(WINNERS, "title"), monkeypatch, width=width)
    expected = f"64x1024 k=8 float32 sorted {tables.short(LONG)} {tables.KEPT} 2.5 4.00x faster 12.3%"
    assert words(expected) <= words(told)
    assert width in (80, 40, 10) or f"{WINNERS[0].key}  " in told


def test_a_pipe_gets_one_line_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    told = printed(tables.measurements_table([measurement("a" * 250)] * 3, "title"), monkeypatch)
    assert [line.count("a" * 250) for line in told.splitlines()][-3:] == [1, 1, 1]


def test_lines_are_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"published to /{'x' * 300} [bold] :smile:"
    assert printed(line, monkeypatch, width=40) == printed(line, monkeypatch) == line + "\n"


def test_text_of_a_file_is_only_text(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = replace(H100, name="\x1b[2J[/red][bold]GPU")
    told = printed(next(tables.winners_tables([replace(winner(), device=odd)], "source")), monkeypatch)
    assert "\\x1b[2J[/red][bold]GPU" in told
    assert "\x1b" not in told
    failed = replace(measurement("bad", None), error="[/] \x1b]0;title\x07\nsecond line")
    told = printed(tables.measurements_table([failed], "title"), monkeypatch)
    assert "[/] \\x1b]0;title\\x07\\nsecond line" in told


def test_torchs_own_is_kept_and_not_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    told = printed(tables.winners_table(WINNERS[1:], "title"), monkeypatch)
    assert "kept torch.topk: nothing was faster" in told
    assert "slower" not in told
    other = replace(winner(), runner_up=TORCHS)
    assert "torch.topk " in printed(tables.winners_table([other], "title"), monkeypatch).splitlines()[-1]


@pytest.mark.parametrize("outcome", ["failed", "unclear"])
def test_errors_of_workloads_without_a_winner(outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = (
        WorkloadResult(WORKLOAD, outcome, error="too [noisy]\x1b"),  # type: ignore[arg-type]
        WorkloadResult(WORKLOAD, "skipped"),
    )
    report = TuneReport("budget", results, Path("store"), Path("winners"), 1.0)
    told = [printed(part, monkeypatch) for part in tables.tune_report(report)]
    assert told[0] == "64x1024 k=8 float32 sorted: too [noisy]\\x1b\n"
    assert told[-1].startswith("1 workload not done yet; ")


def test_what_was_not_compiled_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    report = TuneReport(
        "finished", (WorkloadResult(WORKLOAD, "tuned", uncompiled=5),) * 2, Path("store"), Path("winners"), 1.0
    )
    *_, last = [printed(part, monkeypatch) for part in tables.tune_report(report)]
    assert (
        last == "10 candidates not compiled in time; the same command again measures more of them, --effort full all\n"
    )
