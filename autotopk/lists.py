"""Lists of the best of several shards, and where they are in the memory that holds them all."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

GIVEN = 16
"""Sizes of shards that a kernel is told; those behind the last of them are as large as it."""

LISTED = ("lists", "part_bytes", "part_at", "values_at", *(f"size_{number}" for number in range(GIVEN)))
"""The names of parameters beside those of every operation, see merge.cu."""

_ALIGNMENT = 16  # bytes: of all values, for any dtype and the widest load


class Lists(NamedTuple):
    """For each row a list of every shard: its best values, in order, and their places in the shard.

    Parts of the memory follow each other, one of each shard: int64 places (rows, count), and from `values_at` on values
    (rows, count).
    """

    rows: int
    k: int
    sizes: Sequence[int]
    """Columns of the shards."""
    counts: Sequence[int]
    """Entries of a row in the lists: k, or fewer where a shard has no more."""
    values_at: int
    """Bytes."""
    part_bytes: int


class Parts(NamedTuple):
    """Of shards, in memory of several GPUs that all of them read."""

    own: "Tensor"
    """int64: the part of this rank."""
    addresses: int
    """Of the parts' addresses, in memory of this rank's GPU."""
    numbers: list[int] | None
    """What a kernel is told of them, see `listed`."""
    gathered: "Callable[[], Tensor]"
    """The same as one memory."""


def lists_of(rows: int, k: int, sizes: Sequence[int], itemsize: int) -> Lists:
    """Those of shards with these numbers of columns."""
    counts = [min(k, size) for size in sizes]
    most = rows * max(counts)
    values_at = _aligned(8 * most)
    return Lists(rows, k, sizes, counts, values_at, values_at + _aligned(itemsize * most))


def offsets_of(lists: Lists) -> list[int]:
    """What is added to the places of each shard, so that they count through all."""
    return list(accumulate(lists.sizes[:-1], initial=0))


def listed(lists: Lists, at: int | None = None) -> list[int] | None:
    """What a kernel is told, in the order of LISTED: of one memory, or of parts `at` bytes behind addresses.

    None where it cannot be told.
    """
    sizes = [*lists.sizes[:GIVEN]]
    if any(size != sizes[-1] for size in lists.sizes[GIVEN:]):
        return None
    placed = (lists.part_bytes, 0) if at is None else (0, at)
    return [len(lists.sizes), *placed, lists.values_at, *sizes, *[0] * (GIVEN - len(sizes))]


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
