"""The rungs of the radix families serve all that the families serve, on every GPU that kernels are compiled for."""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from autotopk import registry
from autotopk.device import H100, Device
from autotopk.kernel import KernelSource
from autotopk.problem import ANSWERS, DTYPE_BYTES, MemoryLayout, Problem, vector_width
from autotopk.program import KernelProgram
from autotopk.strategies._radix.limits import held
from autotopk.strategies._radix.strategy import RadixStrategy

DEVICES = (
    H100,
    Device("cuda", "NVIDIA A100-SXM4-80GB", (8, 0), 108, shared_bytes=163 << 10),
    Device("cuda", "NVIDIA GeForce RTX 3090", (8, 6), 82, shared_bytes=99 << 10),
    Device("cuda", "NVIDIA GeForce RTX 4090", (8, 9), 128, shared_bytes=99 << 10),
    Device("cuda", "NVIDIA B200", (10, 0), 148, shared_bytes=227 << 10),
    Device("cuda", "NVIDIA GeForce RTX 5090", (12, 0), 170, shared_bytes=99 << 10),
)
FAMILIES = ("block_radix", "cluster_radix")
MOST = 340
"""Kernels of both families together."""


def family(name: str) -> RadixStrategy:
    found = registry.get(name)
    assert isinstance(found, RadixStrategy)
    return found


@cache
def rungs(name: str, arch: int) -> frozenset[KernelSource]:
    return frozenset(family(name).rungs(arch))


def problems(seed: int, count: int, shortest: int) -> Iterator[tuple[Problem, Device]]:
    """Of every size, most of them powers of two or beside one, aligned and not."""
    draw = random.Random(seed)

    def near_power(least: int, most: int) -> int:
        return max(1, (1 << draw.randint(least, most)) + draw.choice((0, 0, draw.randint(-9, 9))))

    for _ in range(count):
        rows, cols, dtype = near_power(0, draw.choice((6, 30))), near_power(shortest, 31), draw.choice([*DTYPE_BYTES])
        size, k = DTYPE_BYTES[dtype], min(cols, near_power(0, draw.choice((14, 31))))
        layout = MemoryLayout(cols, vector=vector_width(draw.choice((0, 0, size, 2 * size)), cols, cols, size))
        order, answer = (draw.random() < 0.5, draw.random() < 0.7), draw.choice(ANSWERS)
        yield Problem(rows, cols, k, dtype, *order, answer, device_type="cuda", layout=layout), draw.choice(DEVICES)


@pytest.mark.parametrize(
    ("cols", "k", "threads", "blocks"),
    [
        (65_536, 512, 1024, 1),
        (65_536, 1024, 1024, 1),
        (131_072, 512, 1024, 1),
        (65_536, 4096, 1024, 2),
        (131_072, 2048, 1024, 2),
    ],
)
def test_survivors_of_many_long_rows_have_room(cols: int, k: int, threads: int, blocks: int) -> None:
    """The first rung where nothing was measured, of 256 rows that are longer than registers."""
    problem = Problem.contiguous(256, cols, k)
    [first] = [rung for name in FAMILIES if (rung := family(name).heuristic(problem, H100)) is not None]
    assert (first.threads, first.blocks_per_row) == (threads, blocks)
    assert first.capacity >= k


LARGEST = [
    (Problem.contiguous((1 << 30) - 1, 40_000, 8192, "int8"), H100),
    (Problem.contiguous(1, 30_000, 4096, "int64"), DEVICES[1]),
    (Problem.contiguous(1, 30_001, 4096, "int32"), DEVICES[2]),
    (Problem.contiguous(1, 30_000, 2048, "float64"), DEVICES[3]),
    (Problem.contiguous(1, 100_001, 4096), DEVICES[5]),
]
"""Rows, and k that are sorted, of which there is no more."""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_served_has_rungs(name: str, seed: int) -> None:
    strategy, shortest = family(name), 12 if name == "cluster_radix" else 0
    served = 0
    for problem, device in [*LARGEST, *problems(seed, 800, shortest)]:
        if strategy.reasons_unable(problem, device):
            continue
        served += 1
        ladder = strategy.ladder(problem, device)
        assert 0 < len(ladder) == len(set(ladder)) <= 60, (problem, device)
        assert strategy.heuristic(problem, device) in (None, ladder[0])
        for rung in ladder:
            assert strategy.valid(rung, problem, device)
            program = strategy.program(rung, problem, device)
            assert isinstance(program, KernelProgram)
            assert rungs(name, device.arch).issuperset(program.sources), (problem, device, rung)
    assert served > 100


def test_the_largest_that_are_sorted_are_served() -> None:
    for problem, device in LARGEST:
        assert not family("block_radix").reasons_unable(problem, device)
        more = replace(problem, k=2 * problem.k)
        assert family("block_radix").reasons_unable(more, device)


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: f"sm_{device.arch}")
def test_rungs_are_few_and_each_is_used(device: Device) -> None:
    """A rung that no problem has is compiled for nothing."""
    found = {name: list(family(name).rungs(device.arch)) for name in FAMILIES}
    assert sum(map(len, found.values())) <= MOST
    assert (found["cluster_radix"] == []) == (device.arch < 90)
    roomy = replace(device, shared_bytes=1 << 20)  # kernels for 8.0 serve 8.6, which has less
    for name, sources in found.items():
        assert len({source.recipe() for source in sources}) == len(sources)
        assert sources == list(family(name).rungs(device.arch))
        used: set[KernelSource] = set()
        for dtype in DTYPE_BYTES:
            for sorted in (True, False):
                for cols in (16, 4096, 1 << 20, 4097):
                    problem = Problem.contiguous(1, cols, 1, dtype, sorted=sorted)
                    ladder = [] if family(name).reasons_unable(problem, roomy) else family(name).ladder(problem, roomy)
                    for rung in ladder:
                        assert rung.vector in (1, 16 // problem.itemsize)
                        used |= set(family(name).program(rung, problem, roomy).sources)
        assert used == set(sources)


def test_dtypes_of_one_class_share_kernels() -> None:
    strategy = family("block_radix")
    for pair in (("int8", "uint8"), ("float16", "bfloat16")):
        sources = {
            strategy.program(strategy.ladder(problem, H100)[0], problem, H100).sources
            for dtype in pair
            for largest in (True, False)
            for answer in ANSWERS
            for problem in [Problem.contiguous(64, 8192, 100, dtype, largest=largest, answer=answer)]
        }
        assert len(sources) == 1


def test_rungs_with_full_registers_serve_rows_of_any_length() -> None:
    strategy = family("block_radix")
    short, long = (Problem.contiguous(1000, cols, 5) for cols in (16, 1 << 20))
    full = [rung for rung in strategy.ladder(short, H100) if rung.items == 32]
    assert full
    assert set(full) == set(strategy.ladder(long, H100))
    for rung in full:
        assert strategy.program(rung, short, H100).sources == strategy.program(rung, long, H100).sources
    others = set(strategy.ladder(short, H100)) - set(full)
    assert all(held(rung) >= short.cols for rung in others)
