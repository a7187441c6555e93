"""Every kernel compiles for the GPUs it declares, within their limits and, but for keys of 64 bits, without spills."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from autotopk import registry
from autotopk.compilers.triton import TritonSource
from autotopk.device import H100, Device
from autotopk.kernel import Kernel, KernelSource, scalars
from autotopk.problem import MemoryLayout, Problem
from autotopk.program import KernelProgram
from autotopk.runtime.addresses import TENSORS
from autotopk.strategies._radix.limits import shared_bytes
from autotopk.strategies._radix.strategy import RadixStrategy, source
from autotopk.strategy import Config, Strategy
from tests.compilers.shipped import shipped
from tests.contract.cases import sample

pytestmark = pytest.mark.compile

A100 = Device("cuda", "NVIDIA A100-SXM4-80GB", (8, 0), 108, 40 << 20, 79, 163 << 10)
B200 = Device("cuda", "NVIDIA B200", (10, 0), 148, 126 << 20, 179, 227 << 10)
RTX_5090 = Device("cuda", "NVIDIA GeForce RTX 5090", (12, 0), 170, 96 << 20, 32, 99 << 10)

PROBLEMS = [
    Problem.contiguous(4, 8, 2),
    Problem.contiguous(64, 128, 5, "bfloat16"),
    Problem(4096, 64, 8, "float32", device_type="cuda", layout=MemoryLayout(64 * 16, col_stride=16, inner=16)),
    Problem.contiguous(4096, 256, 8, largest=False),
    Problem.contiguous(1024, 1024, 10, "float64"),
    Problem.contiguous(64, 8192, 128),
    Problem.contiguous(100, 1001, 100, "int32"),
    Problem.contiguous(65, 4095, 64, "int64", largest=False),
    Problem.contiguous(70_000, 33, 33, "uint8", sorted=False),
    Problem.contiguous(8192, 512, 10, "float16"),
    Problem.contiguous(64, 2048, 32),
    Problem.contiguous(20_000, 1001, 32, "bfloat16", largest=False),
]
"""The ends of what kernels for short rows serve, and every width of element; what compiles fast comes first."""

CONFIGS = {H100: 5, A100: 2, B200: 1, RTX_5090: 1}
"""How much of a space may be compiled for a GPU, its default beside it."""

RADIX = [
    ("block_radix", Problem.contiguous(64, 30_000, 20_000, sorted=False), (H100,)),
    ("cluster_radix", Problem.contiguous(1, 131_072, 2048), (H100,)),
]
"""What the families in TileLang begin with is compiled for these: rows in registers and streamed, sorted and not."""

MORE_RADIX = [
    ("block_radix", Problem.contiguous(64, 8192, 128), (H100, A100, RTX_5090)),
    ("block_radix", Problem.contiguous(512, 151_936, 64, "bfloat16"), (H100,)),
    ("block_radix", Problem.contiguous(100, 1001, 100, "int32"), (H100,)),
    ("block_radix", Problem.contiguous(64, 16384, 100, "int64", largest=False), (H100,)),
    ("block_radix", Problem.contiguous(64, 30_000, 100, "uint8"), (H100,)),
    ("block_radix", Problem.contiguous(64, 32768, 2048), (H100,)),
    ("cluster_radix", Problem.contiguous(1, 131_072, 2048), (B200,)),
    ("cluster_radix", Problem.contiguous(8, 131_072, 2048, "float64"), (H100,)),
    ("cluster_radix", Problem.contiguous(1, 1 << 20, 100), (H100,)),
]
"""Slow: `test_shipped_kernels_are_within_limits` takes them from the packs, which are of today's sources."""


def programs(strategy: Strategy, device: Device, count: int) -> Iterator[tuple[Problem, Config, KernelSource]]:
    """A spread over the spaces of all problems, every source once."""
    seen: set[KernelSource] = set()
    for problem in PROBLEMS:
        if strategy.reasons_unable(problem, device):
            continue
        for config in sample(strategy, problem, device, count):
            for one in strategy.program(config, problem, device).sources:
                if isinstance(one, TritonSource) and one not in seen:
                    seen.add(one)
                    yield problem, config, one


def shown(strategy: Strategy, device: Device, problem: Problem, config: Config) -> set[tuple[object, ...]]:
    """What a compilation is the first to show: on an H100 of dtypes, layouts and knobs, elsewhere that there is one."""
    if device == H100:
        found = {field.name: getattr(config, field.name) for field in fields(config)}
        found |= {"dtype": problem.dtype, "side_by_side": problem.layout.side_by_side}
        return {(strategy.name, *one) for one in found.items()}
    return {(strategy.name, device)}


def every() -> Iterator[ParameterSet]:
    """All that is compiled; slow where others show the same."""
    seen: set[tuple[object, ...]] = set()
    for strategy in registry.available():
        for device, count in CONFIGS.items():
            for problem, config, one in programs(strategy, device, count):
                new = shown(strategy, device, problem, config)
                name = f"{strategy.name}-sm_{device.arch}-{problem}-{config}"
                yield pytest.param(problem, one, device, id=name, marks=[] if new - seen else [pytest.mark.slow])
                seen |= new


@pytest.mark.parametrize(("problem", "source", "device"), list(every()))
def test_compiles_within_limits(problem: Problem, source: KernelSource, device: Device) -> None:
    check(source.compile(device.arch), problem, device)


def check(kernel: Kernel, problem: Problem, device: Device) -> None:
    assert kernel.spill_bytes <= (128 if problem.itemsize == 8 and kernel.threads == 1024 else 0)  # of 64 registers
    assert 0 < kernel.registers <= 255
    assert kernel.registers * kernel.threads <= 64 << 10  # or the launch is refused
    assert kernel.shared_bytes <= device.shared_bytes
    assert 32 <= kernel.threads <= 1024
    assert kernel.cubin.startswith(b"\x7fELF")
    known = {*TENSORS, *scalars(problem)}
    assert {parameter.name for parameter in kernel.parameters} <= known
    assert Kernel.from_bytes(kernel.to_bytes()) == kernel


@pytest.mark.parametrize(
    ("name", "problem", "symbol"),
    [
        ("lane_merge", Problem.contiguous(64, 128, 5), "autotopk_lane_merge_float32_largest"),
        (
            "masked_argmax",
            Problem.contiguous(64, 128, 5, "int64", largest=False, sorted=False),
            "autotopk_masked_argmax_int64",
        ),
    ],
)
def test_a_kernel_is_named_for_what_it_does(name: str, problem: Problem, symbol: str) -> None:
    """Profilers show the name, also where Triton's own cache has the kernel under another."""
    strategy = registry.get(name)
    program = strategy.program(strategy.shortlist(problem, H100)[0], problem, H100)
    assert isinstance(program, KernelProgram)
    assert isinstance(program.sources[0], TritonSource)
    assert replace(program.sources[0], symbol="").compile(90).symbol == f"{name}_rows"
    kernel = program.sources[0].compile(90)
    assert kernel.symbol == symbol
    assert symbol.encode() in kernel.cubin


def widest_load(kernel: Kernel, folder: Path) -> int:
    """Bits of the widest global load in the machine code."""
    triton = pytest.importorskip("triton")
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.exists():
        pytest.skip("this Triton brings no cuobjdump")
    file = folder / "kernel.cubin"
    file.write_bytes(kernel.cubin)
    code = subprocess.run([tool, "-sass", file], capture_output=True, text=True, check=True).stdout
    loads = re.findall(r"\bLDG\.E(\S*)", code)
    assert loads
    return max(int(match[1]) if (match := re.search(r"\.(64|128)\b", load)) else 32 for load in loads)


@pytest.mark.parametrize(
    ("cols", "dtype", "bits"),
    [(256, "float32", 128), (258, "float32", 32), (512, "bfloat16", 128), (128, "int64", 128), (129, "int64", 64)],
)
def test_masked_argmax_loads_16_bytes_where_rows_are_whole_vectors(
    cols: int, dtype: str, bits: int, tmp_path: Path
) -> None:
    strategy = registry.get("masked_argmax")
    problem = Problem.contiguous(1000, cols, 4, dtype)
    program = strategy.program(strategy.config_type(rows_per_program=1, warps=1), problem, H100)
    assert isinstance(program, KernelProgram)
    assert widest_load(program.sources[0].compile(90), tmp_path) == bits


OF_EVERY_RUN = [(1000, "float32"), (1999, "bfloat16")]


@pytest.mark.parametrize(
    ("cols", "dtype"),
    [
        pytest.param(*one, marks=[] if one in OF_EVERY_RUN else [pytest.mark.slow])
        for one in product((1000, 1001, 1002, 1999), ("float32", "bfloat16", "float16"))
    ],
)
def test_lane_merge_loads_16_bytes_whatever_the_length(cols: int, dtype: str, tmp_path: Path) -> None:
    strategy = registry.get("lane_merge")
    problem = Problem.contiguous(1000, cols, 4, dtype)
    program = strategy.program(strategy.config_type(lanes=32, warps=1, depth=8, tree=False), problem, H100)
    assert isinstance(program, KernelProgram)
    assert widest_load(program.sources[0].compile(90), tmp_path) == 128


@pytest.mark.requires("nvcc", "g++")
@pytest.mark.tilelang
@pytest.mark.parametrize(
    ("name", "problem", "devices"),
    [*RADIX, *(pytest.param(*one, marks=pytest.mark.slow) for one in MORE_RADIX)],
    ids=str,
)
def test_radix_kernels_compile_within_limits(
    name: str, problem: Problem, devices: tuple[Device, ...], tmp_path: Path
) -> None:
    strategy = registry.get(name)
    assert isinstance(strategy, RadixStrategy)
    found: dict[KernelSource, list[Device]] = {}
    for device in devices:
        assert not strategy.reasons_unable(problem, device)
        found.setdefault(source(strategy.ladder(problem, device)[0], problem), []).append(device)
    for one, served in found.items():
        for device, kernel in zip(served, one.compile_for([device.arch for device in served]), strict=True):
            check_radix(kernel, name, problem, device)
            check_loads(kernel, problem, tmp_path)


def check_loads(kernel: Kernel, problem: Problem, folder: Path) -> None:
    """They are as wide as the layout lets them."""
    assert widest_load(kernel, folder) == max(32, 8 * problem.itemsize * problem.layout.vector)


def check_radix(kernel: Kernel, name: str, problem: Problem, device: Device) -> None:
    """Of the first rung."""
    config: Any = registry.get(name).ladder(problem, device)[0]
    check(kernel, problem, device)
    order = "sorted" if config.capacity else "any_order"
    kind = problem.dtype.replace("uint", "int").replace("bfloat", "float")
    assert kernel.symbol == f"autotopk_{name}_{kind}_{order}_kernel"
    assert (kernel.threads, kernel.cluster) == (config.threads, config.blocks_per_row)
    foreseen = shared_bytes(config, config.capacity, problem.itemsize)
    assert kernel.shared_bytes <= foreseen < kernel.shared_bytes + 8192


@pytest.mark.tilelang  # and no Triton, of any version
@pytest.mark.parametrize("device", CONFIGS, ids=lambda device: device.name)
def test_shipped_kernels_are_within_limits(device: Device, tmp_path: Path) -> None:
    """Of the first rung of every family in Triton or TileLang."""
    checked = 0
    for strategy in registry.built_in():
        for problem in PROBLEMS:
            if isinstance(strategy, RadixStrategy) or strategy.reasons_unable(problem, device):
                continue  # for short rows radix kernels have few registers
            for rung in strategy.ladder(problem, device)[:1]:
                for one in strategy.program(rung, problem, device).sources:
                    if isinstance(one, TritonSource):
                        check(shipped(one, device.arch), problem, device)
                        checked += 1
    for name, problem, devices in [*RADIX, *MORE_RADIX]:
        radix = registry.get(name)
        if not radix.reasons_unable(problem, device):
            kernel = shipped(source(radix.ladder(problem, device)[0], problem), device.arch)
            check_radix(kernel, name, problem, device)
            if device in devices:
                check_loads(kernel, problem, tmp_path)
            checked += 1
    assert checked > 20


def test_runtime_numbers_do_not_recompile() -> None:
    """A thousand shapes are a handful of kernels."""
    strategy = registry.get("masked_argmax")
    identities = set()
    for rows in (7, 64, 1000, 100_000):
        for k in (5, 6, 8):
            problem = Problem.contiguous(rows, 256, k)
            program = strategy.program(strategy.config_type(rows_per_program=1, warps=1), problem, H100)
            assert isinstance(program, KernelProgram)
            identities.add(program.sources[0].cache_key())
    assert len(identities) == 1


def test_lengths_that_need_as_many_loads_share_a_kernel_of_lane_merge() -> None:
    strategy = registry.get("lane_merge")
    identities = set()
    for rows in (7, 1000, 100_000):
        for cols in (904, 1000, 1020):
            problem = Problem.contiguous(rows, cols, 5)
            program = strategy.program(strategy.config_type(lanes=32, warps=1, depth=8, tree=False), problem, H100)
            assert isinstance(program, KernelProgram)
            identities.add(program.sources[0].cache_key())
    assert len(identities) == 1


@pytest.mark.parametrize("name", ["block_radix", "cluster_radix"])
def test_runtime_numbers_do_not_recompile_radix_kernels(name: str) -> None:
    strategy = registry.get(name)
    config = strategy.shortlist(Problem.contiguous(1, 20_000, 100), H100)[0]
    problems = [Problem.contiguous(rows, cols, k) for rows in (1, 3) for cols in (5000, 8192) for k in (1, 100)]
    problems.append(Problem.contiguous(2, 8191, 7))  # narrower loads
    assert all(strategy.valid(config, problem, H100) for problem in problems)
    sources = [source(config, problem) for problem in problems]
    assert len(set(sources[:-1])) == 1
    assert dict(sources[-1].constants)["vector"] == 1
    assert len(set(sources)) == 2
