"""A row in the registers of a cluster: blocks send each other what may be among the best, and rank a share each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil, sqrt
from typing import ClassVar

from autotopk.candidate import Knob
from autotopk.compilers.cuda import CudaSource
from autotopk.device import Device
from autotopk.problem import ANSWERS, DTYPE_BYTES, WINDOWS, Problem, power_of_two
from autotopk.strategies._costs import split
from autotopk.strategies._costs.sampling import aimed_at
from autotopk.strategies._lines import DTYPES, OWN_BYTES, ClusterConfig, LinesStrategy, most_at_once, parameters
from autotopk.strategies.split_radix import MOST_INTERVALS, MOST_ITEMS, STATIC_BYTES
from autotopk.strategy import Features, check_knobs

CAPACITIES = [1 << bits for bits in range(6, 14)]
BLOCKS = (1, 2, 4, 8, 16)
LINES = (1, 2, 4, 8, 16)
LADDER = (
    (1, 256, 4, 256),
    (1, 256, 8, 256),
    (1, 256, 16, 256),
    (1, 512, 4, 512),
    (2, 512, 4, 1024),
    (2, 512, 8, 2048),
    (2, 512, 8, 4096),
    (4, 256, 2, 1024),
    (4, 256, 4, 256),
    (4, 256, 4, 512),
    (4, 256, 8, 256),
    (4, 256, 8, 512),
    (4, 512, 2, 4096),
    (4, 512, 8, 512),
    (4, 512, 16, 2048),
    (8, 256, 2, 2048),
    (8, 256, 4, 512),
    (8, 256, 4, 1024),
    (8, 256, 8, 1024),
    (8, 512, 4, 4096),
    (8, 512, 8, 4096),
    (8, 512, 16, 2048),
    (16, 256, 4, 512),
    (16, 256, 4, 1024),
    (16, 256, 8, 512),
    (16, 512, 4, 1024),
    (16, 512, 4, 4096),
    (16, 512, 8, 512),
    (16, 512, 8, 4096),
    (16, 512, 16, 512),
    (16, 512, 16, 4096),
)
"""(blocks, threads, lines, capacity) of the rungs; the last has room for all rows and k that are served."""

WINDOWS_LADDER = (
    (2, 512, 8, 4096),
    (4, 512, 16, 4096),
    (8, 512, 8, 4096),
    (16, 512, 4, 4096),
    (16, 512, 16, 4096),
)
"""The same of windows."""

KNOBS: dict[str, Sequence[Knob]] = {
    "blocks": BLOCKS,
    "threads": (32, 64, 128, 256, 512, 1024),
    "lines": LINES,
    "capacity": CAPACITIES,
}
"""What kernels can be made for."""

MOST_BYTES, MOST_K = 1 << 21, 2048
"""Of a row, and of the answer: what the registers and lists of sixteen blocks hold."""

LEAST_SHARED = 1 << 17
"""Bytes of a block that lists of the best 2,048 need."""

MOST_HELD = 8
"""Lines of a thread that it keeps; of more, those that reach a cut are listed and read again."""

MOST_KEPT = 4096
"""Lines of a block that are in shared memory, too: there is room beside lists of as many entries."""

MOST_LISTED = 4096
"""Elements of a block that reach its cut, where it needs no more."""

MOST_ALONE = 4
"""Lines of a thread, of windows that one block selects from sooner than a cluster."""

MIN_BYTES = 1 << 17
"""Of the shortest rows for which it is chosen where nothing was measured."""

OWNERS, OWNED = 8, 256
"""Blocks of a cluster of which each owns a range, and entries of the list of each, at least: `owners.cuh`."""

MOST_LINES = 8192
"""Of a block: 128 KB of a row, half of its registers."""


@dataclass(frozen=True)
class ClusterListsConfig(ClusterConfig):
    """How the blocks of a cluster share a row. Raises ValueError for what no kernel has."""

    def __post_init__(self) -> None:
        check_knobs(self, KNOBS)
        if self.threads * self.lines > MOST_LINES:
            raise ValueError(f"{self.threads} threads have no registers for lines={self.lines}")
        if self.threads < 4 * self.blocks or self.capacity < 4 * self.blocks:  # four threads send to each block
            raise ValueError(
                f"blocks={self.blocks} are too many for {self.threads} threads or capacity={self.capacity}"
            )

    @property
    def resident(self) -> int:
        """Blocks of a processor that registers suffice for."""
        return max(1, 512 // self.threads)


_config = lru_cache(1 << 12)(ClusterListsConfig)  # a call where nothing was tuned asks for dozens


class ClusterLists(LinesStrategy):
    """Exact, and the same on every run: of equal elements, those of the lowest columns."""

    name = "cluster_lists"
    config_type = ClusterListsConfig
    preference: ClassVar[int] = 29
    config = staticmethod(_config)
    plain_rungs, window_rungs = LADDER, WINDOWS_LADDER
    features = Features(
        answers=frozenset({*ANSWERS, WINDOWS}),
        device_types=frozenset({"cuda"}),
        capability=(9, 0),
        dtypes=DTYPES,
        stable=DTYPES,
    )

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Needs registers for a row and lists for its best."""
        reasons = []
        if problem.cols * problem.itemsize > MOST_BYTES:
            reasons.append(f"rows of {problem.cols} have more than {MOST_BYTES} bytes")
        if problem.k > MOST_K:
            reasons.append(f"k={problem.k} is more than {MOST_K}")
        if problem.rows * BLOCKS[-1] >= 1 << 31:
            reasons.append(f"{problem.rows} rows are more than 32 bits count")
        if device.shared_bytes < LEAST_SHARED:
            reasons.append(f"blocks have {device.shared_bytes} bytes of shared memory, not {LEAST_SHARED}")
        return reasons

    def shortlist(self, problem: Problem, device: Device) -> Sequence[ClusterListsConfig]:
        """The fewest lines for each number of threads and blocks that run at once, and the shortest lists that do.

        Of many blocks also the shortest with which each owns a range, which is sooner for small k, too.
        """
        everything, k = -(-problem.cols * problem.itemsize // 16), problem.k
        least = tuple([_least(k, blocks) for blocks in BLOCKS])
        return _shortlist(least, power_of_two(everything), most_at_once(problem, device), device)

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """Clusters that run at once, or nearly, and short lists."""
        least = _least(problem.k, 1)
        return {
            "blocks": [blocks for blocks in BLOCKS if blocks == 1 or problem.rows * blocks <= 2 * device.processors],
            "threads": (256, 512, 1024),
            "lines": LINES,
            "capacity": [size for size in CAPACITIES if least <= size <= 8 * least],
        }

    def heuristic(self, problem: Problem, device: Device) -> ClusterListsConfig | None:
        """Long rows whose clusters all run at once; other families' else."""
        usual = self.usual(problem, device)
        if usual is None or problem.cols * problem.itemsize < MIN_BYTES:
            return None
        if usual.blocks > most_at_once(problem, device):
            return None
        return usual

    def usual(self, problem: Problem, device: Device) -> ClusterListsConfig | None:
        """As many blocks as run at once."""
        found = self.shortlist(problem, device)
        return max(found, key=lambda one: (one.blocks, one.threads == 512, -one.capacity), default=None)

    def ladder(self, problem: Problem, device: Device) -> Sequence[ClusterListsConfig]:
        """Of clusters that run at once, or the smallest, with lists that are long enough."""
        k = problem.k
        able = [one for one in super().ladder(problem, device) if _least(k, one.blocks) <= one.capacity]
        most = max(min([one.blocks for one in able], default=0), most_at_once(problem, device))
        return [one for one in able if one.blocks <= most]

    def terms(self, config: ClusterListsConfig, problem: Problem, device: Device) -> tuple[float, ...]:
        """See `_costs.split`."""
        own = shared_bytes(config)
        return split.crowded(config, own, problem, device)

    def fits(self, config: ClusterListsConfig, itemsize: int, device: Device) -> bool:
        """See `LinesStrategy`."""
        return _fits(config, device)

    def source(self, config: ClusterListsConfig, kind: str, *, windows: bool, ordered: bool) -> CudaSource:
        """One kernel, in order."""
        return _source(config, kind, windows=windows)


@lru_cache(1 << 10)  # one kernel serves many shapes
def _source(config: ClusterListsConfig, kind: str, *, windows: bool) -> CudaSource:
    element_bytes = DTYPE_BYTES[kind]
    constants = {
        "ELEMENT_BYTES": element_bytes,
        "FLOAT": kind.startswith("float"),
        "BLOCKS": config.blocks,
        "THREADS": config.threads,
        "LINES": config.lines,
        "CAPACITY": config.capacity,
        "INTERVALS": _intervals(config),
        "ITEMS": max(1, min(MOST_ITEMS, config.capacity // config.threads)),
        "LISTED": _listed(config),
        "KEPT": _kept(config),
        **({"HELD": min(config.lines, MOST_ALONE)} if windows else {}),
        "RESIDENT": config.resident,
    }
    return CudaSource(
        file=f"autotopk.strategies.cluster_lists/{'selector' if windows else 'lists'}.cu",
        constants=tuple(constants.items()),
        parameters=parameters(windows),
        threads=config.threads,
        shared_bytes=shared_bytes(config),
        symbol=f"autotopk_cluster_lists_{'windows_' if windows else ''}{kind}",
        cluster=config.blocks,
        code_dependencies=("autotopk.strategies._lines", "autotopk.strategies.split_radix"),
    )


@lru_cache(1 << 12)  # a call where nothing was tuned meets few of them
def _shortlist(
    least: tuple[int, ...], everything: int, most_blocks: int, device: Device
) -> tuple[ClusterListsConfig, ...]:
    """For the least capacities of `BLOCKS`, lines of a row (a power of two), and blocks that run at once."""
    found: list[ClusterListsConfig] = []
    for blocks, needed in zip(BLOCKS, least, strict=True):
        if found and blocks > most_blocks:
            break
        size = max(needed, 256)
        if size > CAPACITIES[-1] or everything > blocks * MOST_LINES:
            continue
        owned = max(size, OWNED * blocks) if blocks >= OWNERS else size
        for threads, capacity in product((256, 512), sorted({size, owned})):
            lines = power_of_two(-(-everything // (blocks * threads)))
            if lines <= LINES[-1]:
                config = _config(blocks, threads, lines, capacity)
                found += [config] if _fits(config, device) else []
    return tuple(found)


@lru_cache(1 << 12)
def _fits(config: ClusterListsConfig, device: Device) -> bool:
    """Whether a device has threads and shared memory for its lists."""
    own = shared_bytes(config) + STATIC_BYTES + OWN_BYTES + config.threads * 8
    return (
        config.capacity <= MOST_ITEMS * config.threads
        and own <= device.shared_bytes
        and device.shared_bytes >= LEAST_SHARED
        and device.capability >= ClusterLists.features.capability
    )


@lru_cache(1 << 10)
def _least(k: int, blocks: int) -> int:
    """The smallest capacity in which each block has room for what reaches its cut.

    Of 16 blocks one is nearly always some deviations beyond what the cut is made for.
    """
    aim = aimed_at(k / blocks)
    return blocks * power_of_two(ceil(max(1.25 * aim, 1.05 * aim + 3.5 * sqrt(aim) + 3)))


def _intervals(config: ClusterListsConfig) -> int:
    """No more than threads add up by four."""
    return min(config.capacity, MOST_INTERVALS, 4 * config.threads)


def _owns(config: ClusterListsConfig) -> bool:
    """Whether every block owns a range: `OWNED` of `room.cuh`."""
    of_block = config.capacity // config.blocks
    return config.blocks >= OWNERS and of_block >= OWNED and config.threads >= 32 * config.blocks


def _listed(config: ClusterListsConfig) -> int:
    """Elements of a block that reach its cut, more than it sends: it makes its cut higher then, or spreads them out."""
    segment = config.capacity // config.blocks
    return max(segment, min((8 if _owns(config) else 4) * segment, MOST_LISTED))


def _kept(config: ClusterListsConfig) -> int:
    """Lines of a block in shared memory, too."""
    lines = config.threads * config.lines
    return lines if config.lines <= MOST_HELD and lines <= MOST_KEPT and config.capacity <= MOST_KEPT else 0


@lru_cache(1 << 10)
def shared_bytes(config: ClusterListsConfig) -> int:
    """Of the list, its intervals, elements that reach a cut, chunks of lines and what blocks tell each other."""
    warps = config.threads // 32
    listed = _listed(config) * (8 if config.lines <= MOST_HELD else 12)
    lists = 8 * config.capacity * (2 if config.blocks > 1 else 1) + 4 * _intervals(config) + listed
    chunks = 16 * config.blocks * ((config.lines * warps + 8) // 8)
    signals = 112  # and what alignment takes
    told = config.blocks * 112 + warps * 40 + signals
    drawn = 1056 + 12 * config.blocks + 8 * warps  # entries that tell splitters, and what is told of ranges
    return lists + chunks + 16 * _kept(config) + told + (drawn if _owns(config) else 0)


strategy = ClusterLists()
