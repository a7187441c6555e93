"""What the families of radix kernels have in common as strategies, and how their kernels are named."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from autotopk.candidate import Knob
from autotopk.compilers.tilelang import TileLangSource, reasons_unbuildable
from autotopk.device import Device
from autotopk.kernel import KernelSource
from autotopk.problem import FLOAT_INF, Problem, power_of_two
from autotopk.program import Extent, KernelProgram
from autotopk.strategies._costs import radix
from autotopk.strategies._radix.config import RadixConfig
from autotopk.strategies._radix.ladder import ladder, rungs
from autotopk.strategies._radix.lattice import knobs, wasteful
from autotopk.strategies._radix.limits import fits, held, reasons_too_large, streams
from autotopk.strategy import Strategy

MASKED = 8192  # equally fast at 4,000 for 256 columns, 16,000 for 4,096 (docs/radix.md)
"""k times elements that masked_argmax goes through in the least time of radix selection."""


MANY = 1 << 15  # 1x28,807,011 k=37,676 any order: a cluster 1,603 us, torch.topk 1,250, wide_radix 209 at 1x30,000,000
"""k from which on rows that registers do not hold are wide_radix's."""


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

    def ladder(self, problem: Problem, device: Device) -> Sequence[Any]:
        """See Strategy: those nearest to the preferred configuration first."""
        return ladder(self.config_type, self.preferred(problem, device), problem, device)

    def rungs(self, arch: int) -> Iterator[KernelSource]:
        """See Strategy."""
        return rungs(self.config_type, arch, source)

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
        """The first rung where the family suits.

        None for rows so short and k so small that k rounds of masking are done sooner, and for k so large, of rows that
        are read once for every digit, that all blocks of the device read sooner.
        """
        if problem.k * power_of_two(problem.cols) <= MASKED or not self.suits(problem, device):
            return None
        first = self.ladder(problem, device)[0]
        return None if problem.k >= MANY and problem.cols > held(first) else first

    def terms(self, config: Any, problem: Problem, device: Device) -> tuple[float, ...]:
        """See `_costs.radix`."""
        return radix.terms(config, problem, device)

    def program(self, config: Any, problem: Problem, device: Device) -> KernelProgram:
        """One block, or one cluster of them, for every row."""
        return _program_of(config, problem)


def source(config: RadixConfig, problem: Problem) -> TileLangSource:
    """The kernel of a configuration for the problem's elements and their alignment."""
    (found,) = _program_of(config, problem).sources
    assert isinstance(found, TileLangSource)
    return found


def _program_of(config: RadixConfig, problem: Problem) -> KernelProgram:
    vector = min(config.vector, problem.layout.vector)
    return _program(config, 8 * problem.itemsize, problem.dtype in FLOAT_INF, vector, streams(config, problem))


@lru_cache(1 << 12)  # one serves many shapes
def _program(config: RadixConfig, bits: int, is_float: bool, vector: int, streamed: bool) -> KernelProgram:
    found = _source(config, bits, is_float, vector, streamed)
    return KernelProgram.of(found, Extent(config.blocks_per_row, (("rows", 1),)))


def _source(config: RadixConfig, bits: int, is_float: bool, vector: int, streamed: bool) -> TileLangSource:
    family = "block_radix" if config.blocks_per_row == 1 else "cluster_radix"
    order = "sorted" if config.capacity else "any_order"
    return TileLangSource(
        function="autotopk.strategies._radix.device.topk:radix_topk",
        constants=(
            ("element_bits", bits),
            ("is_float", is_float),
            ("threads", config.threads),
            ("blocks", config.blocks_per_row),
            ("radix_bits", config.radix_bits),
            ("vector", vector),
            ("items", config.items),
            ("streams", streamed),
            ("capacity", config.capacity),
        ),
        symbol=f"autotopk_{family}_{'float' if is_float else 'int'}{bits}_{order}",
        code_dependencies=("autotopk.strategies._collectives",),
    )
