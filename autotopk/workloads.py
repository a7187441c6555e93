"""Named shapes: one list for the tuner, the tests and the benchmarks."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import product
from math import log2

from autotopk.errors import SelectionError
from autotopk.key import TuningKey
from autotopk.problem import DTYPE_BYTES, OPERATIONS, WINDOWS, Answer, Problem
from autotopk.routing import Routing

MOST = (1 << 63) - 1
"""Of elements, and of bytes of a tensor."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Top k of every row of a contiguous (rows, cols) matrix, without the device."""

    rows: int
    cols: int
    k: int
    dtype: str = "float32"
    sorted: bool = True
    tags: frozenset[str] = field(default=frozenset(), compare=False)
    routing: Routing | None = None
    """The rule of a router; None for a plain top-k."""
    answer: Answer = "pairs"
    """Of windows, as the selector has them (see `oracle.windows`), or of the k-th alone."""

    def __post_init__(self) -> None:
        self.problem("cpu")  # refuses what is no problem at all

    @classmethod
    def of(cls, key: TuningKey) -> "Workload":
        """The workload of a key. Raises ValueError where it is of no problem."""
        sizes = key.rows, key.cols, key.k, key.dtype, key.sorted
        if key.routing in OPERATIONS:
            return cls(*sizes, answer=OPERATIONS[key.routing])
        return cls(*sizes, routing=Routing.parse(key.routing) if key.routing else None)

    def problem(self, device_type: str) -> Problem:
        """The problem on "cuda" or "cpu"."""
        plain = Problem.contiguous(
            self.rows, self.cols, self.k, self.dtype, device_type, sorted=self.sorted, routing=self.routing
        )
        return replace(plain, answer=self.answer, stable=self.answer == WINDOWS) if self.answer != "pairs" else plain

    @property
    def key(self) -> TuningKey:
        """What its winner is stored under."""
        return TuningKey.of(self.problem("cpu"))

    @property
    def bytes(self) -> int:
        """Size of the input."""
        problem = self.problem("cpu")
        return problem.rows * problem.cols * problem.itemsize

    def __str__(self) -> str:
        return str(self.key)


TAGS: dict[str, str] = {
    "ci": "small enough for two CPU cores in a few minutes",
    "seeds": "executorch and flagtree",
    "executorch": "the masked-argmax table of ExecuTorch",
    "flagtree": "the top-k and selector tables of FlagTree",
    "serving": "what large models and vector search ask for, and the seeds that published figures exist for",
    "moe": "expert routing",
    "routing": "expert routing by `topk_softmax`: choice and weights together",
    "selector": "windows of rows by `topk_indices`, as sparse attention has them",
    "dsa": "token selection of sparse attention",
    "sampling": "candidates of the next token",
    "ann": "nearest neighbours",
    "grid": "shapes all over, which nobody named: the tuner takes those that it knows least about (docs/tuning.md)",
    "sweep": "one of every kind, in order alone: where every point of the lattices is measured (docs/tuning.md)",
}
"""Every tag, with what it stands for."""

GRID = "grid"
GRID_POINTS = 256
"""Of the tag `grid`."""

SORTED_ALONE = frozenset({"sweep"})
"""Tags whose workloads are in one order."""

_SHAPES: tuple[tuple[int, int, int, str, str], ...] = (
    # rows, cols, k, tags, dtypes
    (4, 8, 2, "seeds executorch serving", "float32"),
    (16, 8, 2, "seeds executorch", "float32"),
    (4, 32, 5, "seeds executorch", "float32"),
    (32, 64, 10, "seeds executorch", "float32"),
    (64, 128, 5, "seeds executorch serving", "float32"),
    (128, 256, 10, "seeds executorch serving", "float32"),
    (256, 512, 20, "seeds executorch serving sweep", "float32"),
    (512, 32, 2, "seeds executorch serving", "float32"),
    (1024, 16, 4, "seeds executorch serving", "float32"),
    (1024, 1024, 10, "seeds executorch serving sweep", "float32"),
    (64, 4096, 128, "seeds flagtree serving dsa sweep", "float32"),
    (64, 8192, 256, "seeds flagtree serving dsa sweep", "float32"),
    (64, 32768, 1024, "seeds flagtree serving dsa", "float32"),
    (64, 32768, 2048, "seeds flagtree serving dsa sweep", "float32"),
    (64, 32768, 2048, "serving dsa", "bfloat16"),
    (1, 131072, 2048, "seeds flagtree serving dsa sweep", "float32"),
    (1, 262144, 2048, "seeds flagtree serving dsa", "float32"),
    (1, 262144, 2048, "serving dsa", "bfloat16"),
    (1, 524288, 2048, "seeds flagtree serving dsa", "float32"),
    (64, 128, 8, "seeds flagtree serving sweep", "float32"),
    (64, 1024, 32, "seeds flagtree serving", "float32"),
    (64, 8192, 128, "seeds flagtree serving", "float32"),
    (128, 32768, 256, "seeds flagtree serving sweep", "float32"),
    (1, 256, 8, "serving moe", "float32"),
    (4096, 256, 8, "serving moe sweep", "float32 bfloat16"),
    (32768, 128, 4, "serving moe sweep", "float32"),
    (8192, 512, 10, "serving moe", "float32"),
    (8, 131072, 2048, "serving dsa", "float32"),
    (16, 1048576, 2048, "serving dsa", "float32"),
    (256, 131072, 2048, "serving dsa", "float32"),
    (4096, 8192, 2048, "serving dsa", "float32"),
    (4096, 4096, 1024, "serving dsa", "float32"),
    (1, 128256, 50, "serving sampling", "float32"),
    (32, 128256, 50, "serving sampling sweep", "float32"),
    (32, 128256, 50, "serving sampling", "bfloat16"),
    (256, 151936, 64, "serving sampling", "float32 bfloat16"),
    (512, 32000, 256, "serving sampling", "float32"),
    (10000, 1000, 10, "serving ann sweep", "float32"),
    (1000, 100000, 10, "serving ann", "float32"),
    (100, 1000000, 64, "serving ann", "float32"),
    (1, 1048576, 100, "serving ann sweep", "float32"),
    (1, 10000000, 100, "serving ann", "float32"),
    (1, 100000000, 32, "serving ann", "float32"),
    (4, 32, 5, "ci", "float32"),
    (64, 128, 5, "ci", "float32"),
    (256, 512, 20, "ci", "float32"),
    (1024, 1024, 10, "ci", "float32"),
    (16, 8192, 256, "ci", "float32 bfloat16"),
    (1, 32768, 2048, "ci", "float32"),
    (4, 128256, 50, "ci", "float32"),
    (1, 1000000, 100, "ci", "float32"),
    (8, 16384, 64, "ci", "int64"),
)


_ROUTERS: tuple[tuple[tuple[int, ...], int, int, str, str], ...] = (
    # rows, cols, k, rule, dtypes
    ((1, 64, 4096), 256, 8, "sigmoid+bias:4of8", "float32 bfloat16"),
    ((64, 4096), 384, 8, "sigmoid+bias", "float32"),
    ((64, 4096), 256, 6, "sqrtsoftplus+bias", "float32"),
    ((64, 4096), 896, 16, "sigmoid+bias", "float32"),
    ((64, 4096), 256, 8, "softmax", "float32 bfloat16"),
    ((64, 4096), 160, 6, "softmax:3of8:raw", "float32"),
    ((4096,), 256, 8, "softmax:raw", "float32"),
    ((4096,), 512, 10, "softmax", "float32"),
    ((32768,), 128, 4, "softmax", "float32"),
)


_SELECTORS: tuple[tuple[tuple[int, ...], int, tuple[int, ...], str], ...] = (
    # rows, cols, k, dtypes
    ((1, 8, 64), 131072, (512, 1024, 2048), "float32 bfloat16"),
    ((64,), 32768, (2048,), "float32 bfloat16"),
    ((4096,), 8192, (512, 2048), "float32 bfloat16"),
)


def tagged(tag: str) -> list[Workload]:
    """The workloads of a tag, each sorted and, but for `SORTED_ALONE`, in any order: the two have different winners.

    Raises ValueError for an unknown tag.
    """
    if tag not in TAGS:
        raise ValueError(f"tag {tag!r} is not one of {', '.join(TAGS)}")
    return spread(GRID_POINTS) if tag == GRID else [workload for workload in _named() if tag in workload.tags]


MOST_ROWS, MOST_K = 1 << 16, 1 << 14
LEAST_COLS, MOST_COLS = 1 << 4, 1 << 24
MOST_BYTES = 1 << 30
"""Of the input, and of the answer, of a shape that is drawn."""

_DTYPES = ("float32", "bfloat16", "float32", "float16", "float32", "bfloat16", "float32", "int64", "float32", "int32")
"""Drawn as often as they are here."""


def spread(count: int, seed: int = 0) -> list[Workload]:
    """Shapes spread evenly over the orders of magnitude of rows, columns and k, over dtypes and orders.

    They are a scrambled Sobol sequence, so that the first of many are spread like few: 1 to 65,536 rows, 16 to 16M
    columns, a third of them powers of two and a third multiples of 16; k up to 16,384, and one time in 16 all columns.
    """
    from torch.quasirandom import SobolEngine

    engine, found = SobolEngine(7, scramble=True, seed=seed), dict[Workload, None]()
    while len(found) < count:
        for point in engine.draw(count).tolist():
            workload = _at(*point)
            answer = workload.rows * workload.k * (DTYPE_BYTES[workload.dtype] + 8)
            if max(workload.bytes, answer) <= MOST_BYTES:
                found.setdefault(workload)
    return list(found)[:count]


def _at(rows: float, cols: float, share: float, whole: float, dtype: float, order: float, roundness: float) -> Workload:
    """The shape at a point of the unit cube."""
    doublings = log2(LEAST_COLS) + cols * log2(MOST_COLS / LEAST_COLS)
    width = round(2 ** (round(doublings) if roundness < 1 / 3 else doublings))
    width = -(-width // 16) * 16 if 1 / 3 <= roundness < 2 / 3 else width
    k = width if whole < 1 / 16 else round(min(width, MOST_K) ** share)
    return Workload(
        round(MOST_ROWS**rows), width, k, _DTYPES[int(dtype * len(_DTYPES))], order < 0.5, frozenset({GRID})
    )


def grid(
    rows: Iterable[int],
    cols: Iterable[int],
    ks: Iterable[int],
    dtypes: Iterable[str] = ("float32",),
    orders: Iterable[bool] = (True, False),
) -> list[Workload]:
    """Every combination whose k fits into its columns. Raises ValueError for sizes below 1 and unknown dtypes."""
    combinations = product(rows, cols, ks, dtypes, orders)
    return [Workload(r, n, k, dtype, order) for r, n, k, dtype, order in combinations if k <= n]


def routers(
    rows: Iterable[int], cols: Iterable[int], ks: Iterable[int], dtypes: Iterable[str], routing: Routing
) -> list[Workload]:
    """Every combination of a router's sizes. Raises ValueError for what cannot be routed so."""
    return [Workload(*sizes, routing=routing) for sizes in product(rows, cols, ks, dtypes)]


def operations(
    rows: Iterable[int], cols: Iterable[int], ks: Iterable[int], dtypes: Iterable[str], answer: Answer
) -> list[Workload]:
    """Every combination whose k fits into its columns, of windows or of the k-th. Raises ValueError as `grid`."""
    return [Workload(*sizes, answer=answer) for sizes in product(rows, cols, ks, dtypes) if sizes[2] <= sizes[1]]


def check_size(rows: int, cols: int, dtype: str) -> None:
    """Raises SelectionError for a matrix that no tensor can be."""
    if rows * cols * DTYPE_BYTES[dtype] > MOST:
        raise SelectionError(f"{rows}x{cols} {dtype} is more than {MOST} bytes, the most that a tensor can have")


def _named() -> list[Workload]:
    return (
        [
            Workload(rows, cols, k, dtype, order, frozenset(tags.split()) - (frozenset() if order else SORTED_ALONE))
            for rows, cols, k, tags, dtypes in _SHAPES
            for dtype in dtypes.split()
            for order in (True, False)
        ]
        + [
            Workload(count, cols, k, dtype, tags=frozenset({"routing"}), routing=Routing.parse(rule))
            for rows, cols, k, rule, dtypes in _ROUTERS
            for dtype in dtypes.split()
            for count in rows
        ]
        + [
            Workload(count, cols, k, dtype, tags=frozenset({"selector"}), answer=WINDOWS)
            for rows, cols, ks, dtypes in _SELECTORS
            for dtype in dtypes.split()
            for count in rows
            for k in ks
        ]
    )
