"""What winners are stored under, and how near two of them are. The only place that buckets."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, log2

from autotopk.problem import Problem

NEIGHBOUR_RADIUS = 3.0
"""Farthest neighbour, as a sum of doublings over rows, cols and k, whose winner is still believed."""


Bucket = tuple[str, int, int, int, bool, str]
"""Dtype, rows, cols and k as exponents of the nearest power of two in log space, order, rule of a router."""


@dataclass(frozen=True, slots=True)
class TuningKey:
    """The part of a problem that decides which kernel is fastest.

    Left out: `largest` (an inverted key, the same work), strides and alignment (the winner's kernel is built for
    the alignment at hand). `sorted` is in: ordering k results can cost more than finding them.
    """

    dtype: str
    rows: int
    cols: int
    k: int
    sorted: bool
    routing: str = ""
    """A `Routing` as text; empty for a plain top-k."""

    @classmethod
    def of(cls, problem: Problem) -> "TuningKey":
        """The key of a problem."""
        return cls(problem.dtype, problem.rows, problem.cols, problem.k, problem.sorted, problem.operation)

    def bucket(self) -> Bucket:
        """The bucket that the key falls into."""
        return bucket_of(self.dtype, self.rows, self.cols, self.k, self.sorted, self.routing)

    def buckets_within(self, radius: float) -> Iterator[Bucket]:
        """The buckets of all keys that may be within so many doublings."""
        dtype, rows, cols, k, order, routing = self.bucket()
        reach = int(radius + 3)  # rounding moves rows, cols and k of either key by at most half a doubling each
        for row_exponent in range(max(0, rows - reach), rows + reach + 1):
            left = reach - abs(row_exponent - rows)
            for col_exponent in range(max(0, cols - left), cols + left + 1):
                rest = left - abs(col_exponent - cols)
                for k_exponent in range(max(0, k - rest), k + rest + 1):
                    yield dtype, row_exponent, col_exponent, k_exponent, order, routing

    def distance(self, other: "TuningKey") -> float:
        """Doublings between two keys; infinite across dtypes, orders and rules of routers."""
        if self.dtype != other.dtype or self.sorted != other.sorted or self.routing != other.routing:
            return inf
        return self.doublings(other.rows, other.cols, other.k)

    def doublings(self, rows: int, cols: int, k: int) -> float:
        """To a key of the same dtype, order and rule: winners are asked for theirs by the ten thousand."""
        return abs(log2(self.rows / rows)) + abs(log2(self.cols / cols)) + abs(log2(self.k / k))

    def __str__(self) -> str:
        order = self.routing or ("sorted" if self.sorted else "unsorted")
        return f"{self.rows}x{self.cols} k={self.k} {self.dtype} {order}"


def bucket_of(dtype: str, rows: int, cols: int, k: int, sorted: bool, routing: str = "") -> Bucket:
    """The bucket of a key by its fields: winners are sorted into buckets by the ten thousand."""
    # round(log2(n)) is half the bits of n squared
    exponents = (rows * rows).bit_length() >> 1, (cols * cols).bit_length() >> 1, (k * k).bit_length() >> 1
    return dtype, *exponents, sorted, routing
