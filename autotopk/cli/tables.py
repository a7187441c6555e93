"""How results are printed: consoles, the wording of ratios and configurations, and the tables."""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from autotopk.candidate import Candidate
from autotopk.cli.bench import Row, summaries
from autotopk.cli.doctor import Finding
from autotopk.errors import inert
from autotopk.tuning.events import TuneReport
from autotopk.tuning_db.records import Measurement, Winner

PLAIN_WIDTH = 120
"""Columns of a table that goes to a file or a pipe."""


def console(*, stderr: bool = False) -> Console:
    """Standard output or standard error; as wide as the terminal, else 120 columns."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else PLAIN_WIDTH, highlight=False, emoji=False)


def times_faster(ratio: float) -> str:
    """A time as a multiple of torch.topk's, in words: 0.25 is "4.00x faster"."""
    if 0.98 <= ratio <= 1.02:
        return "same"
    return f"{1 / ratio:.2f}x faster" if ratio < 1 else f"{ratio:.2f}x slower"


def short(candidate: Candidate) -> str:
    """A strategy and its knobs as words: `torch_fallback chunk=512 method=chunked`."""
    return f"{candidate.strategy} {_knobs(candidate)}"


def _knobs(candidate: Candidate) -> str:
    try:
        return config_words(candidate.knobs)
    except ValueError:
        return candidate.config


def config_words(config: Mapping[str, object]) -> str:
    """The knobs of a configuration as words."""
    return " ".join(f"{name}={value}" for name, value in config.items())


def tune_report(report: TuneReport) -> Iterator[RenderableType]:
    """What a run of the tuner came to: winners, failures, and the files that hold them."""
    if winners := [result.winner for result in report.results if result.winner]:
        yield from winners_tables(winners, "winners")
    for result in report.results:
        if result.outcome == "failed":
            yield f"[red]{result.workload}: {escape(inert(result.error or 'failed'))}[/]"
    counts = ", ".join(f"{count} {status}" for status, count in report.counts().items()) or "nothing new to measure"
    yield f"{report.outcome} after {report.elapsed_s:.0f} s: {counts}"
    yield escape(f"winners published to {report.winners_path}, measurements recorded in {report.store_path}")
    if open_ := sum(result.outcome in ("partial", "skipped") for result in report.results):
        yield f"{open_} workloads are not done; the same command again goes on from here"


def winners_tables(winners: Iterable[Winner], source: str) -> Iterator[Table]:
    """A table of winners for each device."""
    by_device: defaultdict[str, list[Winner]] = defaultdict(list)
    for winner in winners:
        by_device[winner.device.fingerprint].append(winner)
    for device, its in sorted(by_device.items()):
        yield winners_table(its, f"{device}: {source}")


def winners_table(winners: Iterable[Winner], title: str) -> Table:
    """Which candidate won each workload, against torch.topk and against the second."""
    table = _table(title, "workload!", "winner", "us>", "against torch.topk>", "runner-up", "gap>")
    for winner in winners:
        table.add_row(
            str(winner.key),
            escape(short(winner.candidate)),
            f"{winner.time_us:.1f}",
            times_faster(winner.ratio),
            escape(_runner_up(winner)),
            "" if winner.gap is None else f"{winner.gap:.1%}",
        )
    return table


def measurements_table(measurements: Iterable[Measurement], title: str) -> Table:
    """Everything that was tried, with how its turn ended."""
    table = _table(
        title, "workload!", "candidate", "stage", "status", "us>", "torch us>", "ratio>", "measured (UTC)", "error"
    )
    for measurement in measurements:
        ok = measurement.status == "ok"
        table.add_row(
            str(measurement.key),
            escape(short(measurement.candidate)),
            measurement.stage,
            measurement.status if ok else f"[red]{measurement.status}[/]",
            _median(measurement.samples_us),
            _median(measurement.baseline_us),
            "" if measurement.ratio is None else f"{measurement.ratio:.3f}",
            escape(measurement.measured_at[:16].replace("T", " ")),
            escape(inert(measurement.error or "")),
        )
    return table


def bench_table(rows: Sequence[Row]) -> Table:
    """What a call costs, ours beside torch.topk's: on the GPU, where there is one, and on the host."""
    gpu = any(row.gpu_us is not None for row in rows)
    times = (*(("GPU us>", "torch>", "ratio>") if gpu else ()), "host us>", "torch>", "ratio>")
    table = _table("autotopk.topk beside torch.topk", "shape!", "order", "strategy", *times, "exact")
    if warm := [row for row in rows if row.gpu_us is not None and not row.cold]:
        table.caption = f"* {len(warm)} whose inputs stay in L2 from call to call"
    for row in rows:
        of_gpu = (_us(row.gpu_us), _us(row.torch_gpu_us), _ratio(row.gpu_ratio)) if gpu else ()
        table.add_row(
            f"{row.rows}x{row.cols} k={row.k} {row.dtype}" + ("*" if row in warm else ""),
            "sorted" if row.sorted else "any",
            escape(f"{row.strategy} {config_words(row.config)}"),
            *of_gpu,
            _us(row.host_us),
            _us(row.torch_host_us),
            _ratio(row.host_ratio),
            "yes" if row.exact else "[red]NO[/]",
        )
    return table


def bench_summary(rows: Sequence[Row]) -> Iterator[str]:
    """Geometric mean and worst ratio, and every wrong result."""
    for summary in summaries(rows):
        order = "sorted" if summary.sorted else "any order"
        yield (
            f"{order}, {summary.clock} time over torch.topk's: geometric mean {summary.geometric_mean:.2f} "
            f"({times_faster(summary.geometric_mean)}), worst {summary.worst:.2f}"
        )
    for row in rows:
        for problem in row.problems:
            yield f"[red]{row.rows}x{row.cols} k={row.k} {row.dtype}: {escape(inert(problem))}[/]"


MARKS = {"ok": "[green]ok[/]      ", "note": "note    ", "warning": "[yellow]warning[/] ", "broken": "[red]broken[/]  "}


def finding_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """The findings of `autotopk doctor` under the headings of their sections."""
    section = None
    for finding in findings:
        if finding.section != section:
            section = finding.section
            yield f"[bold]{section}[/]"
        yield f"  {MARKS[finding.level]}{escape(inert(finding.text, 1000))}"


def _table(title: str, *headings: str) -> Table:
    """A table with those columns; "heading>" is aligned to the right, "heading!" to the left, and neither folds."""
    table = Table(
        title=escape(title), title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for heading in headings:
        right = heading.endswith(">")
        table.add_column(heading.rstrip(">!"), justify="right" if right else "left", no_wrap=heading[-1] in ">!")
    return table


def _runner_up(winner: Winner) -> str:
    """The second, without its strategy where that is the winner's."""
    if winner.runner_up is None:
        return ""
    same = winner.runner_up.strategy == winner.candidate.strategy
    return _knobs(winner.runner_up) if same else short(winner.runner_up)


def _median(samples: Sequence[float]) -> str:
    return f"{sorted(samples)[len(samples) // 2]:.1f}" if samples else ""


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
