"""Top-k of rows whose columns are sharded over the ranks of a process group; see docs/distributed.md."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from autotopk.runtime.sharded import sharded_topk

__all__ = ["topk", "topk_indices"]


def topk(
    x_local: Tensor,
    k: int,
    group: ProcessGroup | None = None,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    stable: bool = False,
    *,
    sizes: Sequence[int] | None = None,
) -> torch.return_types.topk:
    """The top-k of the concatenation of all ranks' shards along a dimension, in rank order: the same on every rank.

    Every rank of the group calls it. Only the shards' sizes in `dim` may differ, and may be 0.

    Args:
        x_local: this rank's shard: at least one dimension, any dtype that torch.topk takes, except bool.
        k: how many, from 0 to the sum of all shards' sizes; also more than a shard has.
        group: of ranks; None for the default one.
        dim: which dimension is sharded.
        largest: the largest rather than the smallest; NaN counts as the largest of all.
        sorted: in order; otherwise in any order, which is the same on all ranks.
        stable: of equal elements those of the lowest global indices are returned, in that order where sorted.
        sizes: of all ranks' shards in `dim`, in rank order. Without them a small collective exchanges them, for which
            the host waits; with them there is one collective, and the call can be captured or compiled. They are the
            caller's word: what a rank finds wrong it alone raises.

    Returns:
        `torch.return_types.topk` of values, with the bits they have in their shards, and int64 global indices. A
        gradient of the values goes to the shards they are from, and must be the same on all ranks.

    Raises:
        TypeError, IndexError, ValueError: an argument is not among those accepted, or ranks' calls differ; the same on
            all ranks, unless sizes are given.
    """
    return sharded_topk(x_local, k, group, dim, largest, sorted, stable, sizes)


def topk_indices(
    x_local: Tensor,
    k: int,
    group: ProcessGroup | None = None,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    stable: bool = False,
    *,
    sizes: Sequence[int] | None = None,
) -> Tensor:
    """The int64 global indices of `topk`, with its arguments and errors."""
    data = x_local.detach() if isinstance(x_local, Tensor) else x_local
    return sharded_topk(data, k, group, dim, largest, sorted, stable, sizes).indices
