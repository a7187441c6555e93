"""Lists in order, as of shards, merged by ranks: a thread counts the entries of all lists that come before its own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from autotopk.candidate import Knob
from autotopk.compilers import nvcc
from autotopk.compilers.cuda import CudaSource
from autotopk.device import Device
from autotopk.kernel import SAME_KERNELS, ParameterKind, kernel_dtype
from autotopk.lists import LISTED
from autotopk.problem import DTYPE_BYTES, MERGED, Problem
from autotopk.program import Extent, KernelProgram
from autotopk.strategy import Features, Strategy, check_knobs

THREADS = 128
KNOBS: dict[str, Sequence[Knob]] = {"threads": (THREADS,)}

MOST_LISTS = 256
"""Of a row: a thread searches all of them."""


@dataclass(frozen=True)
class MergeListsConfig:
    """How many entries a block ranks. Raises ValueError for what no kernel has."""

    threads: int

    def __post_init__(self) -> None:
        check_knobs(self, KNOBS)


class MergeLists(Strategy):
    """Exact, and the same on every run: of equal entries those of earlier lists come first."""

    name = "merge_lists"
    config_type = MergeListsConfig
    preference: ClassVar[int] = 10
    features = Features(
        answers=frozenset({MERGED}),
        device_types=frozenset({"cuda"}),
        capability=(8, 0),
        stable=frozenset(DTYPE_BYTES),
    )

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Counts in 32 bits, and few lists."""
        reasons = []
        if problem.cols > MOST_LISTS * problem.k:
            reasons.append(f"cols={problem.cols} are of more than {MOST_LISTS} lists of k={problem.k}")
        if problem.cols >= 1 << 31 or problem.rows * -(-problem.cols // THREADS) >= 1 << 31:
            reasons.append(f"{problem.rows} rows of {problem.cols} are more than 32 bits count")
        return reasons

    def reasons_unbuildable(self) -> list[str]:
        """What nvcc lacks here."""
        return nvcc.reasons_missing()

    def shortlist(self, problem: Problem, device: Device) -> Sequence[MergeListsConfig]:
        """There is nothing to choose."""
        return [_USUAL]

    def heuristic(self, problem: Problem, device: Device) -> MergeListsConfig:
        """It serves all lists that are in order."""
        return _USUAL

    def ladder(self, problem: Problem, device: Device) -> Sequence[MergeListsConfig]:
        """The same."""
        return [_USUAL]

    def rungs(self, arch: int) -> Iterator[CudaSource]:
        """One for each kind of elements."""
        for kind in DTYPE_BYTES:
            if kind not in SAME_KERNELS:
                yield _source(_USUAL, kind)

    def program(self, config: MergeListsConfig, problem: Problem, device: Device) -> KernelProgram:
        """A thread for every entry."""
        source = _source(config, kernel_dtype(problem.dtype))
        return KernelProgram.of(source, Extent(per=(("rows", 1), ("cols", config.threads))))


_USUAL = MergeListsConfig(THREADS)


def _source(config: MergeListsConfig, kind: str) -> CudaSource:
    kinds: dict[str, ParameterKind] = {
        **dict.fromkeys(("x", "values", "indices"), "pointer"),
        **dict.fromkeys(LISTED, "int64"),
        "lists": "int32",
        **dict.fromkeys(("cols", "k", "smallest", "signed", "infinity"), "int32"),
    }
    constants = {"ELEMENT_BYTES": DTYPE_BYTES[kind], "FLOAT": "float" in kind, "THREADS": config.threads}
    return CudaSource(
        file="autotopk.strategies.merge_lists/merge.cu",
        constants=tuple(constants.items()),
        parameters=tuple(kinds.items()),
        threads=config.threads,
        symbol=f"autotopk_merge_lists_{kind}",
        code_dependencies=("autotopk.strategies.split_radix",),
    )


strategy = MergeLists()
