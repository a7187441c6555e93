"""Shipped kernels on a kind of GPU that is new to them: what they are asked, and what becomes of the answers."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from autotopk import packs, registry
from autotopk.device import H100, Device
from autotopk.errors import AutotopkWarning, MeasurementError, WrongAnswerError
from autotopk.problem import ANSWERS, Answer, MemoryLayout, Problem
from autotopk.program import Extent, KernelProgram
from autotopk.runtime import check_cases, self_check
from autotopk.runtime.check_cases import Case, cases, check, wrong_with
from autotopk.runtime.views import Run
from autotopk.strategy import Config, Strategy
from autotopk.tuning.events import CheckingKernels, Event, KernelsChecked
from autotopk.tuning.tuner import _check_kernels
from tests.compilers.small_sources import TravellingSource, pack

Told = list[tuple[int, int, str]]


@dataclass(frozen=True)
class Rung:
    """Serves rows up to a length."""

    cols: int


class Laddered(Strategy):
    """Has a kernel for short rows, and two launches for long ones, in 32 bits and in 64."""

    name = "laddered"
    config_type = Rung

    def __init__(self, log: Path) -> None:
        self.log = log

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        return []

    def shortlist(self, problem: Problem, device: Device) -> Sequence[Config]:
        return self.ladder(problem, device)

    def heuristic(self, problem: Problem, device: Device) -> Config:
        return self.ladder(problem, device)[0]

    def source(self, code: str) -> TravellingSource:
        return TravellingSource(self.log, code)

    def rungs(self, arch: int) -> Iterator[TravellingSource]:
        yield from map(self.source, ("short", "long4", "long8", "finish"))

    def ladder(self, problem: Problem, device: Device) -> Sequence[Config]:
        return [Rung(64)] if problem.cols <= 64 else [Rung(1 << 20)]

    def program(self, config: Config, problem: Problem, device: Device) -> KernelProgram:
        short = KernelProgram.of(self.source("short"), Extent())
        finish = KernelProgram.of(self.source("finish"), Extent())
        long = KernelProgram.of(self.source(f"long{problem.itemsize}"), Extent())
        return short if config.cols == 64 else KernelProgram(long.launches + finish.launches)


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laddered:
    """The only one, with its kernels packed, on a GPU that is not there."""
    found = Laddered(tmp_path / "log")
    monkeypatch.setattr(registry, "built_in", lambda: [found])
    monkeypatch.setattr(self_check, "cuda_device", lambda index: H100)
    monkeypatch.setenv("AUTOTOPK_PACKS", str(pack(tmp_path / "packs", [*found.rungs(90)])))
    return found


def name(family: Laddered, code: str) -> str:
    return packs.name_of(family.source(code), 90)


def code(family: Laddered, code: str) -> str:
    return family.source(code).compile(90).code


PROBLEMS = [
    Problem.contiguous(2, 64, 5),
    Problem.contiguous(2, 65, 5),
    Problem.contiguous(2, 80, 5),
    Problem.contiguous(2, 99, 5, "int64"),
]


def test_every_kernel_has_a_case(family: Laddered) -> None:
    kernels = [packs.name_of(source, 90) for source in family.rungs(90)]
    all_of_them = cases(H100, kernels, 90, iter(PROBLEMS))
    assert [one.problem for one in all_of_them] == [PROBLEMS[0], PROBLEMS[1], PROBLEMS[3]]
    assert {kernel for one in all_of_them for kernel in one.kernels} == {*kernels}
    assert len(cases(H100, kernels, 90)) == 3  # of the usual problems


def test_every_rung_has_a_case() -> None:
    """Also those that serve a few lengths alone: one without would never be used."""
    names = {packs.name_of(source, 90) for one in registry.built_in() for source in one.rungs(90)}
    assert {kernel for one in cases(H100, names, 90) for kernel in one.kernels} == names


def test_what_is_not_packed_is_not_asked(family: Laddered) -> None:
    assert [one.config for one in cases(H100, [name(family, "short")], 90, iter(PROBLEMS))] == [Rung(64)]


def topk(problem: Problem) -> Run:
    """What a right kernel does."""

    def run(x: Tensor) -> tuple[Tensor, Tensor] | Tensor:
        rows = x.reshape(problem.rows, problem.cols)
        values, indices = torch.topk(rows, problem.k, largest=problem.largest, sorted=True)
        if problem.layout.side_by_side:
            outer = problem.rows // problem.layout.inner
            shape = (outer, problem.layout.inner, problem.k)
            values, indices = (one.view(shape).transpose(1, 2).contiguous() for one in (values, indices))
        return (values, indices) if problem.answer == "pairs" else indices.int()

    return run


LAYOUTS = [
    MemoryLayout(50, vector=2, aligned=True),
    MemoryLayout(53, vector=1),
    MemoryLayout(64, vector=4, aligned=True),
    MemoryLayout(150, col_stride=3, inner=3),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_are_judged_in_every_layout(layout: MemoryLayout, answer: Answer) -> None:
    problem = replace(Problem.contiguous(6, 50, 7, device_type="cpu"), layout=layout, answer=answer)
    x = torch.randn(6, 50)
    assert wrong_with(topk(problem), problem, x) == []
    assert wrong_with(topk(replace(problem, largest=False)), problem, x)


def test_drawn_layouts_are_as_they_say() -> None:
    for at, problem in enumerate(check_cases._problems()):
        layout = problem.layout
        assert layout.extent(problem.rows, problem.cols) * problem.itemsize <= 4 * check_cases.MAX_BYTES
        assert problem.rows % layout.inner == 0
        assert layout.aligned or layout.vector == 1
        if at == 2000:
            break


def test_all_that_a_kernel_answers_is_asked(family: Laddered, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def bound(program: KernelProgram, problem: Problem, device: Device) -> Run:
        asked.append((problem.largest, problem.sorted, problem.answer))
        return topk(problem)

    monkeypatch.setattr(check_cases, "bind", bound)
    case = Case(family, Rung(64), PROBLEMS[0], (name(family, "short"),))
    check(case, H100, torch.device("cpu"))
    assert len(asked) == len({*asked}) == len(case.variants(H100)) >= 4
    monkeypatch.setattr(check_cases, "bind", lambda program, problem, device: topk(PROBLEMS[0]))
    with pytest.raises(WrongAnswerError, match=r"2x64 float32 k=5 .*: "):
        check(case, H100, torch.device("cpu"))


# The process that checks, in place of which another one tells


def telling(monkeypatch: pytest.MonkeyPatch, family: Laddered, *scripts: str) -> None:
    """Let processes run these statements, one after another."""
    names = {code: name(family, code) for code in ("short", "long4", "long8", "finish")}
    code = f"""
import json, os, sys, time
names = {names!r}
request = json.loads(sys.stdin.readline())
def tell(status, *codes):
    told = dict(kernels=[names[code] for code in codes], left=2, what=" ".join(codes), why="it is wrong")
    print(json.dumps(dict(told, status=status)), flush=True)
exec({scripts!r}[{{4: 0, 3: 1}}.get(len(request["names"]), 2)])
"""
    monkeypatch.setattr(self_check, "COMMAND", (sys.executable, "-c", code))


SHORT = "tell('begun', 'short'); tell('passed', 'short');"
LONG4 = "tell('begun', 'long4', 'finish'); tell('passed', 'long4', 'finish');"
LONG8 = "tell('begun', 'long8', 'finish'); tell('passed', 'long8', 'finish');"
UNASKED = "tell('unasked', 'long4', 'long8', 'finish');"
END = "tell('finished')"


def used(family: Laddered) -> list[str]:
    return [source.code for source in family.rungs(90) if source.is_cached(90)]


def test_kernels_are_used_after_they_were_right(family: Laddered, monkeypatch: pytest.MonkeyPatch) -> None:
    telling(monkeypatch, family, SHORT + LONG4 + LONG8 + END)
    assert self_check.is_needed(H100)
    assert used(family) == []
    progress: Told = []
    found = self_check.ensure(0, lambda *told: progress.append(told))
    assert found is not None
    assert found.device == H100.fingerprint
    assert progress == [(0, 2, "short"), (1, 3, "long4 finish"), (2, 4, "long8 finish")]
    assert used(family) == ["short", "long4", "long8", "finish"]
    assert not self_check.is_needed(H100)
    assert self_check.ensure(0) is None
    packs.reload()
    assert used(family) == ["short", "long4", "long8", "finish"]
    assert self_check.is_needed(replace(H100, capability=(9, 0), type="cpu")) is False


def test_wrong_kernels_are_not_used(family: Laddered, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two launches together the one that is right elsewhere is kept."""
    failed = "tell('begun', 'long4', 'finish'); tell('failed', 'long4', 'finish');"
    telling(monkeypatch, family, SHORT + failed + LONG8 + END)
    found = self_check.run(0)
    assert found is not None
    assert found.failed == {code(family, "long4"): "long4 finish: it is wrong"}
    assert used(family) == ["short", "long8", "finish"]


@pytest.mark.parametrize("end", ["os.abort()", "time.sleep(60)"])
def test_what_ends_its_process_is_not_used(family: Laddered, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(self_check, "CASE_S", 0.5)
    begun = "tell('begun', 'long8', 'finish');"
    telling(monkeypatch, family, SHORT + begun + end, "", END)
    found = self_check.run(0)
    assert found is not None
    assert {*found.failed} == {code(family, "long8"), code(family, "finish")}
    assert used(family) == ["short"]


def test_what_was_not_reached_in_time_is_not_used(family: Laddered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "BUDGET_S", 0.5)
    telling(monkeypatch, family, SHORT + "tell('begun', 'long4', 'finish'); time.sleep(60)")
    found = self_check.run(0)
    assert found is not None
    assert found.failed == {}
    assert used(family) == ["short"]


def test_only_what_nobody_has_checked_is_asked(family: Laddered, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = packs.here()
    assert shipped is not None
    shipped.keep_check(90, packs.Check("a GPU", frozenset({code(family, "short")}), {code(family, "long4"): "wrong"}))
    telling(monkeypatch, family, "", "", "assert len(request['names']) == 2;" + LONG8 + END)
    assert self_check.ensure(0) == packs.Check(
        H100.fingerprint, frozenset({code(family, "long8"), code(family, "finish")})
    )
    assert used(family) == ["short", "long8", "finish"]


def test_a_process_that_does_not_start_decides_nothing(family: Laddered, monkeypatch: pytest.MonkeyPatch) -> None:
    telling(monkeypatch, family, "sys.exit(1)")
    with pytest.raises(MeasurementError, match="kernels cannot be checked here"):
        self_check.run(0)
    assert self_check.is_needed(H100)


def test_nothing_is_checked_where_nothing_is_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "cuda_device", lambda index: H100)
    assert not self_check.is_needed(H100)
    assert self_check.run(0) is None


@pytest.mark.parametrize("works", [True, False])
def test_tuning_begins_with_it(family: Laddered, monkeypatch: pytest.MonkeyPatch, works: bool) -> None:
    events: list[Event] = []
    telling(monkeypatch, family, SHORT + UNASKED + END if works else "sys.exit(1)")
    _check_kernels(torch.device("cpu"), events.append)
    assert self_check.is_needed(H100)
    with nullcontext() if works else pytest.warns(AutotopkWarning, match="shipped kernels are not used: "):
        _check_kernels(torch.device("cuda:0"), events.append)
    reason = "no problem was found that it serves on such a GPU"
    assert events == ([CheckingKernels(0, 2, "short"), KernelsChecked(1, (reason,))] if works else [])
    assert self_check.is_needed(H100) is not works


@pytest.mark.gpu
def test_shipped_kernels_are_right_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTOPK_PACKS")
    packs.reload()
    shipped = packs.here()
    capability = torch.cuda.get_device_capability()
    if shipped is None or (pack := shipped.pack(10 * capability[0] + capability[1])) is None:
        pytest.skip("no kernels are shipped for this GPU")
    found = self_check.run(0)
    assert found is not None
    assert not found.failed
    assert len(found.passed) > 0.8 * len(pack.kernels)  # some need more shared memory than every GPU has


def test_kernels_are_asked_for_what_they_serve() -> None:
    """One that sorts nothing answers in any order alone."""
    problem, strategy = Problem.contiguous(64, 32768, 2048, sorted=False), registry.get("block_radix")
    unsorted = [config for config in strategy.ladder(problem, H100) if config.capacity == 0]
    assert unsorted
    for config in unsorted:
        variants = Case(strategy, config, problem, ()).variants(H100)
        assert len(variants) == 4
        assert not any(one.sorted for one in variants)


def test_answers_of_rows_side_by_side_are_laid_out_as_the_oracle_wants() -> None:
    for inner, k in ((1, 5), (7, 1), (7, 5), (14, 5)):
        layout = MemoryLayout(inner * 9, col_stride=inner, inner=inner)
        rows = check_cases._rows(torch.arange(14 * k), layout, 14, k)
        assert rows.shape == (14, k)
        assert rows.is_contiguous()
        assert {*rows[0].tolist()} == {*range(0, k * inner, inner)}
