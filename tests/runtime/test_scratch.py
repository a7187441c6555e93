"""Programs of several launches: where scratch is, what it costs, and to whom it belongs."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import autotopk
from autotopk.device import H100, Device
from autotopk.errors import BuildError
from autotopk.kernel import Kernel, KernelSource, Parameter
from autotopk.problem import Problem
from autotopk.program import MAX_SCRATCH_BYTES, Extent, KernelProgram, Launch, Scratch
from autotopk.runtime import addresses, launch, scratch
from tests.runtime.conftest import Planted, PlantedConfig

PROBLEM = Problem.contiguous(7, 1000, 10)


@dataclass(frozen=True)
class Source(KernelSource):
    """Compiles to nothing that runs."""

    name: str

    def cache_key(self) -> str:
        return self.name

    def compile(self, arch: int) -> Kernel:
        return Kernel(b"code of " + self.name.encode(), self.name, (), 32)


def program(*scratch: Scratch) -> KernelProgram:
    return KernelProgram(
        (Launch(Source("split"), (Extent(4, (("rows", 1),)),)), Launch(Source("merge"), (Extent(),))), scratch
    )


def test_extents_follow_from_the_problem() -> None:
    values = {"rows": 7, "cols": 1000, "k": 10}
    assert Extent().of(values) == 1
    assert Extent(12).of(values) == 12
    assert Extent(3, (("rows", 2), ("cols", 999))).of(values) == 3 * 4 * 2


def test_scratch_lies_aligned_in_one_buffer_of_each_kind() -> None:
    found = program(
        Scratch("counters", Extent(4, (("rows", 1),)), zeroed=True),
        Scratch("keys", Extent(4, (("rows", 1), ("k", 1)))),
        Scratch("places", Extent(4, (("rows", 1), ("k", 1)))),
    )
    places, garbage, zeros = addresses.places_of(found, PROBLEM)
    assert places == {
        "x": (0, 0),
        "values": (1, 0),
        "indices": (2, 0),
        "keys": (3, 0),
        "places": (3, 512),
        "counters": (4, 0),
    }
    assert (garbage, zeros) == (1024, 256)
    assert found.scratch_bytes(PROBLEM) == 28 + 280 + 280
    places, garbage, zeros = addresses.places_of(program(Scratch("counters", Extent(4), zeroed=True)), PROBLEM)
    assert (places["counters"], garbage, zeros) == ((3, 0), 0, 256)


def test_scratch_of_no_bytes_is_a_null_pointer() -> None:
    places, garbage, zeros = addresses.places_of(
        program(Scratch("keys", Extent(0)), Scratch("more", Extent(4))), PROBLEM
    )
    assert (places["keys"], places["more"], garbage, zeros) == ((-1, 0), (3, 0), 256, 0)
    assert addresses.slots([Parameter("keys", "pointer")], places, PROBLEM) == ((-1, 0),)


def test_scratch_must_not_hide_a_tensor() -> None:
    with pytest.raises(BuildError, match="'values' bears the name"):
        addresses.places_of(program(Scratch("values", Extent(4))), PROBLEM)


def test_a_parameter_that_nobody_provides_is_refused() -> None:
    places, _, _ = addresses.places_of(program(Scratch("keys", Extent(4))), PROBLEM)
    asked = Parameter("keys", "pointer"), Parameter("cols", "int32")
    assert addresses.slots(asked, places, PROBLEM) == ((3, 0), "cols")
    with pytest.raises(BuildError, match="no launch provides the parameter 'lengths'"):
        addresses.slots([Parameter("lengths", "pointer")], places, PROBLEM)


def test_too_much_scratch_is_refused() -> None:
    with pytest.raises(BuildError, match=f"needs {MAX_SCRATCH_BYTES + 3} bytes of scratch"):
        launch.bind(
            program(Scratch("keys", Extent((MAX_SCRATCH_BYTES + 7) // 7, (("rows", 1),)))), PROBLEM, H100, index=0
        )


def test_every_launch_and_all_scratch_are_part_of_what_was_measured() -> None:
    keys, more = Scratch("keys", Extent(4)), Scratch("keys", Extent(8))
    programs = [
        program(),
        program(keys),
        program(more),
        program(Scratch("keys", Extent(4), zeroed=True)),
        KernelProgram(program().launches[:1]),
        KernelProgram(program().launches[::-1]),
        KernelProgram((program().launches[0], Launch(Source("merge"), (Extent(2),)))),
    ]
    found = [one.identity(PROBLEM, 90) for one in programs]
    assert len({one.source for one in found}) == len({one.code for one in found}) == len(programs)


def test_explain_tells_its_size(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    def scratched(config: PlantedConfig, problem: Problem, device: Device) -> KernelProgram:
        return program(Scratch("keys", Extent(8, (("rows", 1), ("k", 1)))))

    monkeypatch.setattr(planted, "program", scratched)
    explanation = autotopk.explain(torch.randn(7, 1000), 10)
    assert explanation.to_dict()["scratch_bytes"] == 560
    assert "  with 560 bytes of scratch memory" in str(explanation).splitlines()


@pytest.fixture
def zeros(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The buffers that were made, on the CPU."""
    made: list[Tensor] = []

    def make(size: int, *, dtype: torch.dtype, device: str) -> Tensor:
        made.append(torch.empty(size, dtype=dtype).zero_())
        return made[-1]

    monkeypatch.setattr(torch, "zeros", make)
    monkeypatch.setattr(scratch, "capturing", lambda: False)
    monkeypatch.setattr(scratch, "_kept", {})
    return made


def test_a_stream_keeps_its_buffer_and_shares_it_with_none(zeros: list[Tensor]) -> None:
    first = scratch.zeroed(0, 11, 256)
    assert scratch.zeroed(0, 11, 256) is scratch.zeroed(0, 11, 100) is first
    others = [scratch.zeroed(0, 12, 256), scratch.zeroed(1, 11, 256)]
    assert len({first.data_ptr(), *(one.data_ptr() for one in others)}) == 3
    assert scratch.zeroed(0, 11, 1000).numel() == 1000
    assert len(zeros) == 4


def test_threads_share_none(zeros: list[Tensor]) -> None:
    """Launches of two programs may mix in one stream."""
    mine = scratch.zeroed(0, 11, 256)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(scratch.zeroed, 0, 11, 256).result()
        pool.submit(scratch.drop, 0, 11).result()
    assert other is not mine
    assert scratch.zeroed(0, 11, 256) is mine


def test_a_failure_drops_the_buffer_of_its_stream_alone(zeros: list[Tensor]) -> None:
    mine, other = scratch.zeroed(0, 11, 256), scratch.zeroed(0, 12, 256)
    scratch.drop(0, 11)
    assert scratch.zeroed(0, 11, 256) is not mine
    assert scratch.zeroed(0, 12, 256) is other


def test_a_captured_call_gets_its_own(zeros: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    kept = scratch.zeroed(0, 11, 256)
    monkeypatch.setattr(scratch, "capturing", lambda: True)
    captured = [scratch.zeroed(0, 11, 256), scratch.zeroed(0, 11, 256)]
    assert len({kept.data_ptr(), *(one.data_ptr() for one in captured)}) == 3
    monkeypatch.setattr(scratch, "capturing", lambda: False)
    assert scratch.zeroed(0, 11, 256) is kept


def test_streams_without_end_do_not_pile_up(zeros: list[Tensor]) -> None:
    for stream in range(3 * scratch.MAX_BUFFERS):
        scratch.zeroed(0, stream, 256)
    assert len(scratch._kept) <= scratch.MAX_BUFFERS
