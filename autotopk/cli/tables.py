"""How results are printed: consoles, the wording of ratios and configurations, and the tables."""

import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

from rich.console import Console, RenderableType
from rich.text import Text

from autotopk.candidate import TORCH_TOPK, Candidate
from autotopk.cli.bench import Row, summaries
from autotopk.cli.diff import Changed, Differences
from autotopk.cli.doctor import Finding
from autotopk.cli.folding import FoldingTable
from autotopk.cli.verify import Entry, Verified
from autotopk.cli.wording import LONGEST_LINE, counted
from autotopk.errors import inert
from autotopk.runtime.warmup import WarmupReport
from autotopk.tuning.dry_run import DryRun
from autotopk.tuning.events import TuneReport
from autotopk.tuning_db.records import Held, Measurement, Progress, Specimens, Winner

PLAIN_WIDTH = 10_000
"""Columns of a file or a pipe, more than any table needs."""

LEAST_WIDTH = 80
"""Columns that tables are made for even on narrower terminals."""

KEPT = "kept torch.topk: nothing was faster"

UNMEASURED = frozenset({"failed", "unclear"})
"""Outcomes of workloads that have no winner, but an error that says why."""


def console(*, stderr: bool = False) -> Console:
    """Standard output or standard error: lines are printed as they are; tables fold on terminals, or by COLUMNS.

    What is still too wide for a terminal is left for it to wrap: nothing is cut.
    """
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS", "").isdigit() else PLAIN_WIDTH
    made = Console(file=stream, width=width, highlight=False, emoji=False, markup=False, soft_wrap=True)
    if not stderr:  # where the progress bar is, which must fit
        made.width = max(made.width, LEAST_WIDTH)
    return made


def times_faster(ratio: float) -> str:
    """A time as a multiple of torch.topk's, in words: 0.25 is "4.00x faster"."""
    if 0.98 <= ratio <= 1.02:
        return "same"
    return f"{1 / ratio:.2f}x faster" if ratio < 1 else f"{ratio:.2f}x slower"


def short(candidate: Candidate) -> str:
    """A strategy and its knobs as words: `torch_fallback chunk=512 method=chunked`; or torch.topk itself."""
    return "torch.topk" if candidate == TORCH_TOPK else f"{candidate.strategy} {_knobs(candidate)}"


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
        if result.outcome in UNMEASURED:
            yield Text(inert(f"{result.workload}: {result.error or result.outcome}"), style="red")
    counts = ", ".join(f"{count} {status}" for status, count in report.counts().items()) or "nothing new to measure"
    yield f"{report.outcome} after {report.elapsed_s:.0f} s: {counts}"
    yield f"winners published to {report.winners_path}, measurements recorded in {report.store_path}"
    if uncompiled := sum(result.uncompiled for result in report.results):
        told = f"{counted(uncompiled, 'candidate')} not compiled in time"
        yield f"{told}; the same command again measures more of them, --effort full all"
    if open_ := sum(result.outcome in ("partial", "skipped") for result in report.results):
        yield f"{counted(open_, 'workload')} not done yet; the same command again goes on from here"


def dry_run_parts(planned: DryRun) -> Iterator[RenderableType]:
    """What a run of the tuner would measure, and how long."""
    rows = [(one.workload, str(one.candidates), str(one.known), str(one.left)) for one in planned.workloads]
    yield FoldingTable(
        f"{planned.device}: nothing is measured", ("workload", "candidates>", "known>", "to measure>"), rows
    )
    turns = counted(sum(one.left for one in planned.workloads), "candidate")
    limit = "no limit of time" if planned.limit_s is None else f"{planned.limit_s:.0f} s at most"
    if planned.seconds is None:
        yield f"at most {turns}; {limit}; nothing was measured on this device yet that would tell how long"
    else:
        yield f"at most {turns}, about {planned.seconds:.0f} s at the pace of those stored; {limit}"


def winners_tables(winners: Iterable[Winner], source: str) -> Iterator[FoldingTable]:
    """A table of winners for each device."""
    by_device: defaultdict[str, list[Winner]] = defaultdict(list)
    for winner in winners:
        by_device[winner.device.fingerprint].append(winner)
    for device, its in sorted(by_device.items()):
        yield winners_table(its, f"{device}: {source}")


def winners_table(winners: Iterable[Winner], title: str) -> FoldingTable:
    """Which candidate won each workload, against torch.topk and against the second."""
    rows = [
        (
            str(winner.key),
            KEPT if (kept := winner.candidate == TORCH_TOPK) else short(winner.candidate),
            f"{winner.time_us:.1f}",
            "" if kept else times_faster(winner.ratio),
            _runner_up(winner),
            "" if winner.gap is None else f"{winner.gap:.1%}",
        )
        for winner in winners
    ]
    return FoldingTable(title, ("workload", "winner/", "us>", "against torch.topk>", "runner-up/", "gap>"), rows)


def measurements_table(measurements: Iterable[Measurement], title: str) -> FoldingTable:
    """Everything that was tried, with how its turn ended."""
    rows = [
        (
            str(measurement.key),
            short(measurement.candidate),
            measurement.stage,
            measurement.status if measurement.status == "ok" else Text(measurement.status, style="red"),
            _median(measurement.samples_us),
            _median(measurement.baseline_us),
            "" if measurement.ratio is None else f"{measurement.ratio:.3f}",
            measurement.measured_at[:16].replace("T", " "),
            measurement.error or "",
        )
        for measurement in measurements
    ]
    headings = "workload", "candidate/", "stage", "status", "us>", "torch us>", "ratio>", "measured (UTC)", "error/"
    return FoldingTable(title, headings, rows)


def bench_table(measured: Sequence[Row]) -> FoldingTable:
    """What a call costs, ours beside torch.topk's: on the GPU, where there is one, and on the host."""
    gpu = any(row.gpu_us is not None for row in measured)
    times = (*(("GPU us>", "torch>", "ratio>") if gpu else ()), "host us>", "torch>", "ratio>")
    warm = [row for row in measured if row.gpu_us is not None and not row.cold]
    rows = [
        (
            f"{row.rows}x{row.cols} k={row.k} {row.dtype}" + ("*" if row in warm else ""),
            row.routing or ("sorted" if row.sorted else "any"),
            f"{row.strategy} {config_words(row.config)}",
            *((_us(row.gpu_us), _us(row.torch_gpu_us), _ratio(row.gpu_ratio)) if gpu else ()),
            _us(row.host_us),
            _us(row.torch_host_us),
            _ratio(row.host_ratio),
            "yes" if row.exact else Text("NO", style="red"),
        )
        for row in measured
    ]
    caption = f"* {len(warm)} whose inputs stay in L2 from call to call" if warm else ""
    headings = "shape", "order", "strategy/", *times, "exact"
    return FoldingTable("autotopk.topk beside torch.topk", headings, rows, caption)


def bench_parts(rows: Sequence[Row]) -> Iterator[RenderableType]:
    """The table, and what it comes to."""
    if rows:
        yield bench_table(rows)
    yield from bench_summary(rows)


def bench_summary(rows: Sequence[Row]) -> Iterator[RenderableType]:
    """Geometric mean and worst ratio, and every wrong result."""
    for summary in summaries(rows):
        order = "sorted" if summary.sorted else "any order"
        yield (
            f"{order}, {summary.clock} time over torch.topk's: geometric mean {summary.geometric_mean:.2f} "
            f"({times_faster(summary.geometric_mean)}), worst {summary.worst:.2f}"
        )
    for row in rows:
        for problem in row.problems:
            yield Text(inert(f"{row.rows}x{row.cols} k={row.k} {row.dtype}: {problem}"), style="red")


def warmup_table(report: WarmupReport) -> FoldingTable:
    """What is ready for each problem, and where it came from."""
    rows = [
        (
            str(row.problem),
            short(row.choice.candidate),
            row.choice.step,
            row.origin,
            f"{row.ms:.1f}",
            Text("; ".join(map(inert, row.failed)), style="red"),
        )
        for row in report.rows
    ]
    return FoldingTable(report.device.fingerprint, ("problem", "runs/", "by", "from", "ms>", "not/"), rows)


def verified_table(found: Verified) -> FoldingTable:
    """Whether each winner of a file would be served."""
    several = _several(found.winners)
    asked = ("resolves", "loads", *(("fits",) if found.here else ()), "current")
    rows = [
        (
            entry.workload,
            *((entry.device,) if several else ()),
            short(entry.candidate),
            *(_answer(getattr(entry, question)) for question in asked),
            entry.reason,
        )
        for entry in found.winners
    ]
    headings = ("workload", *(("device/",) if several else ()), "winner/", *asked, "reason/")
    return FoldingTable(found.path if several else f"{found.winners[0].device}: {found.path}", headings, rows)


def differences_table(found: Differences) -> FoldingTable:
    """The winners that two files have not alike."""
    several = _several(found.winners)
    rows = [
        (
            one.workload,
            *((one.device,) if several else ()),
            one.change,
            *(text for winner in (one.old, one.new) for text in _measured(winner)),
        )
        for one in found.winners
    ]
    headings = ("workload", *(("device/",) if several else ()), "change", "old/", "old ratio>", "new/", "new ratio>")
    return FoldingTable("winners" if several else f"{found.winners[0].device}: winners", headings, rows)


def _several(found: Sequence[Entry] | Sequence[Changed]) -> bool:
    """Whether a column has to name devices, rather than the title."""
    return len({one.device for one in found}) != 1


STYLES = {"ok": "green", "note": "", "warning": "yellow", "broken": "red"}


def finding_lines(findings: Iterable[Finding]) -> Iterator[Text]:
    """The findings of `autotopk doctor` under the headings of their sections."""
    section = None
    for finding in findings:
        if finding.section != section:
            section = finding.section
            yield Text(section, style="bold")
        yield Text.assemble("  ", (f"{finding.level:8}", STYLES[finding.level]), inert(finding.text, LONGEST_LINE))


def _answer(answer: bool | None) -> str | Text:
    return "-" if answer is None else "yes" if answer else Text("NO", style="red")


def _measured(winner: Winner | None) -> tuple[str, str]:
    return ("", "") if winner is None else (short(winner.candidate), f"{winner.ratio:.3f}")


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


def fleet_tables(
    progress: Sequence[Progress], held: Sequence[Held], apart: Sequence[Specimens], source: str
) -> Iterator[RenderableType]:
    """How far campaigns are on every device, who holds what, and how far processors of one model differ."""
    if progress:
        rows = [
            (
                *(one.campaign, one.device),
                f"{(one.done + one.failed) / max(1, one.done + one.failed + one.claimed + one.open):.0%}",
                *map(str, (one.done, one.claimed, one.open, one.failed)),
                "" if one.left_s is None else str(timedelta(seconds=round(one.left_s))),
            )
            for one in progress
        ]
        yield FoldingTable(source, ("campaign", "device/", ">", "done>", "claimed>", "open>", "failed>", "left>"), rows)
    if held:
        claims = [(str(one.key), one.device, one.holder, str(one.measured), f"{one.left_s:.0f} s") for one in held]
        yield FoldingTable("claimed", ("workload", "device/", "holder/", "turns>", "lease>"), claims)
    if apart:
        models = [
            (
                *(one.device, str(one.count), str(one.workloads)),
                *("-" if value is None else f"{value:.1%}" for value in (one.median, one.widest)),
                "" if one.key is None else str(one.key),
            )
            for one in apart
        ]
        headings = ("device", "of them>", "workloads>", "differ by>", "at most>", "at/")
        yield FoldingTable("processors of one model", headings, models)
