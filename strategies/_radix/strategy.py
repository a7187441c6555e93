"""What the families of radix kernels have in common as strategies, and how their kernels are named."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from autotopk.candidate import Knob
from autotopk.compilers.tilelang import TileLangSource, reasons_unbuildable
from autotopk.device import Device
from autotopk.errors import UnsupportedProblemError
from autotopk.kernel import kernel_symbol
from autotopk.problem import FLOAT_INF, Problem, power_of_two
from autotopk.program import Extent, KernelProgram
from autotopk.strategies._radix.config import RadixConfig
from autotopk.strategies._radix.lattice import knobs, wasteful
from autotopk.strategies._radix.limits import fits, held, reasons_too_large
from autotopk.strategies._radix.shortlists import usual_capacity
from autotopk.strategy import Strategy

MASKED = 8192  # equally fast at 4,000 for 256 columns, 16,000 for 4,096 (docs/radix.md)
"""k times elements that masked_argmax goes through in the least time of radix selection."""


class RadixStrategy(Strategy):
    """A family of kernels that narrow a row to its best by radix selection."""

    preference: ClassVar[int] = 15

    @abstractmethod
    def roomiest(self, problem: Problem, device: Device) -> Any:
        """The configuration that leaves most room to sort, without a capacity."""

    @abstractmethod
    def suits(self, problem: Problem, device: Device) -> bool:
        """Whether the family should serve where nothing was measured."""

    @abstractmethod
    def preferred(self, problem: Problem, device: Device) -> Any:
        """The configuration to begin with, without a capacity."""

    def block_counts(self, problem: Problem, device: Device) -> Sequence[int]:
        """Blocks of a row that are worth measuring; the knob of those that have one."""
        return (1,)

    def usual(self, problem: Problem, device: Device) -> Any:
        """The configuration to begin with; with the roomiest instead of the preferred where k needs it."""
        for config in (self.preferred(problem, device), self.roomiest(problem, device)):
            if (capacity := usual_capacity(config, problem, device)) is not None:
                return replace(config, capacity=capacity)
        raise UnsupportedProblemError(f"{self.name} cannot serve {problem}")

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Rows whose columns 32 bits count, and where they are sorted a k that fits in shared memory."""
        return reasons_too_large(self.roomiest(problem, device), problem, device)

    def reasons_unbuildable(self) -> list[str]:
        """What TileLang's kernels lack here to be compiled."""
        return reasons_unbuildable()

    def valid(self, config: Any, problem: Problem, device: Device) -> bool:
        """Whatever the kernel can run."""
        return fits(config, problem, device)

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """See `lattice.knobs`."""
        return knobs(problem, self.block_counts(problem, device))

    def lattice(self, problem: Problem, device: Device) -> Iterator[Any]:
        """But for what is wasteful, see there."""
        shortlist = set(self.shortlist(problem, device))
        points = super().lattice(problem, device)
        return (one for one in points if one in shortlist or not wasteful(one, problem))

    def heuristic(self, problem: Problem, device: Device) -> Any | None:
        """The usual configuration where the family suits.

        None for rows so short and k so small that k rounds of masking are done sooner.
        """
        if problem.k * power_of_two(problem.cols) <= MASKED or not self.suits(problem, device):
            return None
        return self.usual(problem, device)

    def program(self, config: Any, problem: Problem, device: Device) -> KernelProgram:
        """One block, or one cluster of them, for every row."""
        return KernelProgram.of(source(config, problem), Extent(config.blocks_per_row, (("rows", 1),)))


def source(config: RadixConfig, problem: Problem) -> TileLangSource:
    """The kernel of a configuration for the problem's dtype, order and alignment."""
    family = "block_radix" if config.blocks_per_row == 1 else "cluster_radix"
    return TileLangSource(
        function="autotopk.strategies._radix.device.topk:radix_topk",
        constants=(
            ("element_bits", 8 * problem.itemsize),
            ("float_inf", FLOAT_INF.get(problem.dtype, 0)),
            ("signed", problem.dtype.startswith("int")),
            ("largest", problem.largest),
            ("threads", config.threads),
            ("blocks", config.blocks_per_row),
            ("radix_bits", config.radix_bits),
            ("vector", min(config.vector, problem.layout.vector)),
            ("items", config.items),
            ("streams", problem.cols > held(config)),
            ("capacity", config.capacity),
            ("indices_only", problem.answer == "indices"),
        ),
        symbol=kernel_symbol(family, problem, sorted=config.capacity > 0),
        code_dependencies=("autotopk.strategies._collectives",),
    )
