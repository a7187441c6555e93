"""What is asked: one top-k over the rows of a matrix, without the data."""

from dataclasses import dataclass
from math import gcd

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

VECTOR_BYTES = 16
"""The widest load of one thread."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Top k of every row of a (rows, cols) matrix.

    Strides and `vector` are in elements. The columns of a row are adjacent in memory, or the rows are side by side:
    `inner` of them begin at adjacent addresses, their columns `col_stride` apart, and groups of them are `row_stride`
    apart. That is the layout of a contiguous tensor along another dimension than its last, and of the outputs; all
    offsets into both fit 32 bits.

    `vector` is the largest power of two, at most 16 bytes, that divides the address, `row_stride` and `cols`: the
    widest load that is aligned everywhere and never straddles a row's end. It is 1 for rows side by side.
    """

    rows: int
    cols: int
    k: int
    dtype: str
    device_type: str
    largest: bool = True
    sorted: bool = True
    row_stride: int = 0
    vector: int = 1
    indices_only: bool = False
    """The output is int32 indices alone, which only some strategies write."""
    aligned: bool = False
    """The first row begins at a multiple of 16 bytes."""
    inner: int = 1
    """How many rows are side by side, which only some strategies read; 1 where columns are adjacent."""
    col_stride: int = 1

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_BYTES:
            raise ValueError(f"dtype {self.dtype!r} is not one of {', '.join(DTYPE_BYTES)}")
        if self.rows < 1 or self.cols < 1 or not 1 <= self.k <= self.cols:
            raise ValueError(f"need rows >= 1, cols >= 1 and 1 <= k <= cols, got {self.rows}x{self.cols}, k={self.k}")

    @property
    def side_by_side(self) -> bool:
        """Whether it is rows that are adjacent, rather than columns."""
        return self.inner > 1 or self.col_stride != 1

    @property
    def extent(self) -> int:
        """One more than the greatest offset of an element."""
        return (self.rows // self.inner - 1) * self.row_stride + (self.cols - 1) * self.col_stride + self.inner

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return DTYPE_BYTES[self.dtype]

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
    ) -> "Problem":
        """The problem of a freshly allocated contiguous (rows, cols) matrix."""
        vector = vector_width(0, cols, cols, DTYPE_BYTES.get(dtype, VECTOR_BYTES))
        return cls(rows, cols, k, dtype, device_type, largest, sorted, cols, vector, aligned=True)

    def __str__(self) -> str:
        order = ("largest" if self.largest else "smallest") + (", sorted" if self.sorted else ", any order")
        return f"{self.rows}x{self.cols} {self.dtype} k={self.k} ({order}) on {self.device_type}"


def vector_width(address: int, row_stride: int, cols: int, itemsize: int) -> int:
    """Elements of the widest aligned load, see `Problem.vector`."""
    widest = VECTOR_BYTES // itemsize
    return gcd(gcd(row_stride, cols), gcd(address // itemsize, widest))


def power_of_two(value: int) -> int:
    """The power of two at or above."""
    return 1 << (value - 1).bit_length()
