"""A tuner's or a benchmark's progress: a line for each workload, and below them a bar where there is a terminal."""

from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from autotopk.candidate import TORCH_TOPK
from autotopk.cli.tables import KEPT, short, times_faster
from autotopk.cli.wording import LONGEST_LINE, counted
from autotopk.errors import inert
from autotopk.tuning.events import (
    CandidateMeasured,
    CheckingKernels,
    Event,
    KernelsChecked,
    TuneStarted,
    WorkloadFinished,
    WorkloadResult,
    WorkloadStarted,
)


class ProgressBar:
    """Shows what a long command is at; without a terminal the lines alone."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[eta]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=None, eta="")
        self._index = 0
        self._new = 1

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def line(self, text: str, style: str = "") -> None:
        """Print a line above the bar, or where there is no terminal alone."""
        self.console.print(inert(text, LONGEST_LINE), style=style, markup=False, soft_wrap=True)

    def step(self, description: str, done: int, total: int) -> None:
        """Move the bar."""
        self._progress.update(self._task, description=description, completed=done, total=total)

    def tuner_event(self, event: Event) -> None:
        """Show an event of the tuner."""
        match event:
            case TuneStarted():
                budget = "" if event.budget_s is None else f", within {_duration(event.budget_s)}"
                self.line(f"tuning {counted(event.workloads, 'workload')} on {inert(event.device.fingerprint)}{budget}")
                for strategy, reasons in event.unbuildable.items():
                    self.line(f"{strategy} steps aside, but for kernels compiled before: {'; '.join(reasons)}")
                self._progress.update(self._task, total=event.workloads)
            case CheckingKernels():
                self.step(f"checking shipped kernels: {event.what}", event.done, event.total)
            case KernelsChecked():
                self.line(checked(event.passed, event.failed))
            case WorkloadStarted():
                self._index, self._new = event.index, max(1, event.new)
                self._progress.update(self._task, description=str(event.workload), completed=event.index)
            case CandidateMeasured():
                self._progress.update(self._task, completed=self._index + min(1.0, event.done / self._new))
            case WorkloadFinished():
                total = self._progress.tasks[self._task].total or 0
                eta = f"about {_duration(event.eta_s)} left" if event.eta_s else ""
                self._progress.update(self._task, completed=event.index + 1, eta=eta)
                self.line(f"[{event.index + 1}/{total:.0f}] {_told(event.result)}" + (eta and f"; {eta}"))


def checked(passed: int, failed: Sequence[str]) -> str:
    """A self-check's result in one line."""
    text = f"{counted(passed, 'shipped kernel')} checked on this GPU and used from now on"
    return f"{text}; not used: {'; '.join(map(inert, failed))}" if failed else text


def _told(result: WorkloadResult) -> str:
    """A workload's result in one line."""
    parts = [f"{result.workload}: {result.outcome}"]
    if winner := result.winner:
        if winner.candidate == TORCH_TOPK:
            parts.append(f"{KEPT}, {winner.time_us:.1f} us")
        else:
            parts.append(f"{short(winner.candidate)} {winner.time_us:.1f} us, {times_faster(winner.ratio)}")
    if tried := sum((result.measured or {}).values()):
        parts.append(f"{tried} tried in {_duration(result.seconds)}")
    if result.uncompiled:
        parts.append(f"{result.uncompiled} not compiled in time")
    if result.error:
        parts.append(inert(result.error))
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.1f} s"
        if seconds < 10
        else f"{seconds:.0f} s"
        if seconds < 100
        else str(timedelta(seconds=round(seconds)))
    )
