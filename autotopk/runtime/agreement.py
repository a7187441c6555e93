"""What the ranks of a group must agree on before they exchange results, so that all raise the same error.

Each sends a few numbers about its call. Only where one of them is refused do the ranks exchange texts as well.
"""

import builtins
import struct
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from autotopk.runtime.peers import known_peers, told_by_all

_DTYPES = sorted({str(one) for one in vars(torch).values() if isinstance(one, torch.dtype)})
_MOST_DIMS = 16
_MASK = (1 << 62) - 1
_FORM = struct.Struct(f"<{7 + _MOST_DIMS}q")
_INTEGER = (int, torch.SymInt)
gather_into = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def checked(x: Any, k: Any, dim: Any, **flags: Any) -> int:
    """The dimension, counted from the front. Raises TypeError, IndexError or ValueError for a rank's own arguments."""
    if not isinstance(x, Tensor) or not 1 <= x.dim() <= _MOST_DIMS:
        what = f"has {x.dim()} dimensions" if isinstance(x, Tensor) else f"is {type(x).__name__}"
        raise TypeError(f"x_local {what}, not a tensor of 1 to {_MOST_DIMS} dimensions")
    if x.dtype is torch.bool or x.is_complex() or x.layout is not torch.strided:
        raise TypeError(f"x_local is {x.dtype}, {x.layout}, which top-k is not made for")
    for name, value in {"k": k, "dim": dim}.items():
        if not isinstance(value, _INTEGER) or isinstance(value, bool):
            raise TypeError(f"{name}={value!r} is not an int")
    for name, value in flags.items():
        if type(value) is not bool:
            raise TypeError(f"{name}={value!r} is not a bool")
    if not -x.dim() <= dim < x.dim():
        raise IndexError(f"dim={dim} is out of range: x_local has {x.dim()} dimensions")
    if k < 0:
        raise ValueError(f"k={k} is negative")
    return int(dim % x.dim())


def agreed(x: Any, k: Any, dim: Any, flags: dict[str, Any], group: Any) -> tuple[list[int], list[bytes]]:
    """`agreed_sizes` by one small collective, and what all ranks told."""
    refused: Exception | None = None
    try:
        about = _about(x, k, dim, flags)
    except (TypeError, IndexError, ValueError) as error:
        refused, about = error, _FORM.pack(1, *[0] * (6 + _MOST_DIMS))
    all_about = _exchanged(about, x, group)
    return agreed_sizes(all_about, x, k, dim, flags, group, refused), all_about


def agreed_sizes(
    all_about: Sequence[bytes],
    x: Any,
    k: Any,
    dim: Any,
    flags: dict[str, Any],
    group: Any,
    refused: Exception | None = None,
) -> list[int]:
    """Columns of every rank's shard, of what all ranks told. Raises the same on all ranks: see `checked`."""
    found = [_FORM.unpack(one) for one in all_about]
    if any(one[0] for one in found):
        texts = told_by_all((type(refused).__name__, str(refused)) if refused else None, group)
        rank, (kind, text) = next((rank, text) for rank, text in enumerate(texts) if text)
        raise getattr(builtins, kind)(f"rank {rank} of the group: {text}")
    if any(one[2:] != found[0][2:] for one in found):
        shape = (
            tuple(x.shape),
            str(x.dtype),
            f"k={k}",
            f"dim={dim}",
            *(f"{name}={value}" for name, value in flags.items()),
        )
        calls = "; ".join(
            f"rank {rank}: {', '.join(map(str, one))}" for rank, one in enumerate(told_by_all(shape, group))
        )
        raise ValueError(f"the ranks' calls differ in more than the size of the dimension: {calls}")
    return [one[1] for one in found]


def _about(x: Any, k: Any, dim: Any, flags: dict[str, Any]) -> bytes:
    """What others are told of a call. Raises what `checked` raises."""
    at = checked(x, k, dim, **flags)
    others = [size for place, size in enumerate(x.shape) if place != at]
    mode = sum(value << place for place, value in enumerate(flags.values()))
    about = [0, x.shape[at], k & _MASK, at, mode, _DTYPES.index(str(x.dtype)), x.dim(), *others]
    return _FORM.pack(*about, *[0] * (7 + _MOST_DIMS - len(about)))


def check_sizes(sizes: Sequence[int], size: int, rank: int, world: int) -> list[int]:
    """The columns of shards as a caller gave them. Raises ValueError, on ranks where they do not hold."""
    found = list(sizes)
    if len(found) != world or any(one < 0 for one in found):
        raise ValueError(f"sizes={found} are not {world} sizes of shards, one for each rank")
    if found[rank] != size:
        raise ValueError(f"sizes={found} say {found[rank]} of rank {rank}, whose shard has {size}")
    return found


def _exchanged(about: bytes, x: Any, group: Any) -> list[bytes]:
    if peers := known_peers(group):
        peers.board.tell(about)
        return peers.board.heard()
    if isinstance(x, Tensor) and not x.is_meta:
        device = x.device
    else:
        device = torch.device("cuda" if "nccl" in dist.get_backend(group) else "cpu")
    ours = torch.frombuffer(bytearray(about), dtype=torch.uint8).to(device)
    everyone = ours.new_empty(dist.get_world_size(group) * len(about))
    gather_into(everyone, ours, group=group)
    return [bytes(one.tolist()) for one in everyone.view(-1, len(about)).cpu()]
