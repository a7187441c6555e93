"""What is asked: one top-k over the rows of a matrix, and where the matrix is; without the data."""

from dataclasses import dataclass, field
from math import gcd
from typing import Literal

from autotopk.routing import LOGITS, Routing

DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
}
"""The dtypes that strategies may declare, with their size in bytes; any other dtype goes to torch.topk."""

FLOAT_INF = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}
"""Bits of infinity; integers have none."""

INTEGERS = frozenset(DTYPE_BYTES) - frozenset(FLOAT_INF)
"""The dtypes of integers."""

VECTOR_BYTES = 16
"""The widest load of one thread."""


Answer = Literal["pairs", "indices", "windows", "kth", "merged", "weights", "narrow_weights"]
"""What is written for each of the k: its value and int64 index, its int32 index alone; of windows what a selector is
asked for; of the k-th alone its value and int64 index; of lists that are merged its value and what it is known by; of
routing its float32 weight and int64 index, or its weight and int32 index."""

ANSWERS: tuple[Answer, ...] = ("pairs", "indices")
"""Of a top-k."""

WINDOWS: Literal["windows"] = "windows"
"""The operation of the selector, by name."""

KTH: Literal["kth"] = "kth"
"""The operation of `kth_value`, by name."""

OPERATIONS: dict[str, Answer] = {WINDOWS: WINDOWS, KTH: KTH}
"""What is tuned apart from top-k by its form of answer."""

MERGED: Literal["merged"] = "merged"
"""The operation that merges lists, see `lists`: rows of all their entries. It is not tuned: one kernel serves it."""

_APART = frozenset((*OPERATIONS, MERGED))

WEIGHTS: tuple[Answer, ...] = ("weights", "narrow_weights")
"""Of a top-k that routes."""


@dataclass(frozen=True, slots=True)
class Query:
    """What decides the answer: top k of every row of a (rows, cols) matrix."""

    rows: int
    cols: int
    k: int
    dtype: str
    largest: bool = True
    sorted: bool = True
    answer: Answer = "pairs"
    routing: Routing | None = None
    """The rule of a router, whose answers are `WEIGHTS`; `largest` and `sorted` are always true then."""
    stable: bool = False
    """Of equal elements those of the lowest columns are in the answer, in that order where `sorted`. Equal are -0 and
    +0, and all NaNs."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_BYTES:
            raise ValueError(f"dtype {self.dtype!r} is not one of {', '.join(DTYPE_BYTES)}")
        if self.rows < 1 or self.cols < 1 or not 1 <= self.k <= self.cols:
            raise ValueError(f"need rows >= 1, cols >= 1 and 1 <= k <= cols, got {self.rows}x{self.cols}, k={self.k}")
        if (self.routing is None) == (self.answer in WEIGHTS):
            raise ValueError(f"answer {self.answer!r} does not fit routing {self.routing}")
        if self.routing is not None:
            if self.dtype not in LOGITS or not (self.largest and self.sorted):
                raise ValueError(f"routing needs {', '.join(LOGITS)}, the largest and sorted, not {self.dtype}")
            self.routing.check(self.cols, self.k)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return DTYPE_BYTES[self.dtype]

    @property
    def operation(self) -> str:
        """What is apart from plain top-k, which is empty: the rule of a router, windows, kth, or merged."""
        return self.answer if self.answer in _APART else str(self.routing or "")

    def __str__(self) -> str:
        order = ("largest" if self.largest else "smallest") + (", sorted" if self.sorted else ", any order")
        order += ", stable" if self.stable else ""
        return f"{self.rows}x{self.cols} {self.dtype} k={self.k} ({self.operation or order})"


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """Where the elements of a matrix are, in elements from the first.

    The columns of a row are adjacent, or the rows are side by side: `inner` of them begin at adjacent addresses, their
    columns `col_stride` apart, and groups of them are `row_stride` apart. That is the layout of a contiguous tensor
    along another dimension than its last, and of the outputs; all offsets into both fit 32 bits.
    """

    row_stride: int
    col_stride: int = 1
    inner: int = 1
    """How many rows are side by side, which only some strategies read; 1 where columns are adjacent."""
    vector: int = 1
    """The largest power of two, at most 16 bytes, that divides the address, `row_stride` and the columns: the widest
    load that is aligned everywhere and never straddles a row's end. It is 1 for rows side by side."""
    aligned: bool = False
    """The first row begins at a multiple of 16 bytes."""

    @property
    def side_by_side(self) -> bool:
        """Whether it is rows that are adjacent, rather than columns."""
        return self.inner > 1 or self.col_stride != 1

    def extent(self, rows: int, cols: int) -> int:
        """One more than the greatest offset of an element."""
        return (rows // self.inner - 1) * self.row_stride + (cols - 1) * self.col_stride + self.inner


@dataclass(frozen=True, slots=True)
class Problem(Query):
    """A query, and where its data are: what a strategy is asked."""

    device_type: str = field(kw_only=True)
    layout: MemoryLayout = field(kw_only=True)

    def __hash__(self) -> int:
        return hash((self.rows, self.cols, self.k, self.dtype))  # every cache asks, and little else tells more

    @classmethod
    def contiguous(
        cls,
        rows: int,
        cols: int,
        k: int,
        dtype: str = "float32",
        device_type: str = "cuda",
        *,
        largest: bool = True,
        sorted: bool = True,
        answer: Answer = "pairs",
        routing: Routing | None = None,
        stable: bool = False,
    ) -> "Problem":
        """The problem of a freshly allocated contiguous (rows, cols) matrix; of routing, with int64 indices."""
        vector = vector_width(0, cols, cols, DTYPE_BYTES.get(dtype, VECTOR_BYTES))
        layout = MemoryLayout(cols, vector=vector, aligned=True)
        if routing is not None and answer == "pairs":
            answer = "weights"
        query = rows, cols, k, dtype, largest, sorted, answer, routing, stable
        return cls(*query, device_type=device_type, layout=layout)

    def __str__(self) -> str:
        return f"{Query.__str__(self)} on {self.device_type}"


def vector_width(address: int, row_stride: int, cols: int, itemsize: int) -> int:
    """Elements of the widest aligned load, see `MemoryLayout.vector`."""
    widest = VECTOR_BYTES // itemsize
    return gcd(gcd(row_stride, cols), gcd(address // itemsize, widest))


def power_of_two(value: int) -> int:
    """The power of two at or above."""
    return 1 << (value - 1).bit_length()


def power_below(value: int) -> int:
    """The power of two at or below."""
    return 1 << (value.bit_length() - 1)
