"""Top-k of rows whose columns are sharded over the ranks of a group: local top-k, one exchange, one merge."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import Tensor

from autotopk.lists import Lists, lists_of
from autotopk.runtime import operations
from autotopk.runtime.agreement import agreed, agreed_sizes, check_sizes, checked, gather_into
from autotopk.runtime.declared import ordered_pairs, pairs, stable_pairs
from autotopk.runtime.list_merges import merge_lists
from autotopk.runtime.peers import Peers, peers_of
from autotopk.runtime.scratch import capturing
from autotopk.runtime.views import fresh_strides
from autotopk.strategies.torch_fallback.merged import packed

_functional = getattr(collectives, "all_gather_single", None) or collectives.all_gather_tensor


class _Chosen(torch.autograd.Function):
    """Values as they are; the derivative of those that are from this rank's shard goes to it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor, indices: Tensor, dim: int, offset: int) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.size, ctx.dim, ctx.offset = x.shape, dim, offset
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, None, None, None, None]:
        (indices,), gradient = ctx.saved_tensors, gradients[0]
        zeros = gradient.new_zeros(ctx.size)
        size = ctx.size[ctx.dim]
        if size == 0:
            return zeros + gradient.sum(), None, None, None, None  # empty, and followed by autograd as other ranks' are
        places = indices - ctx.offset
        ours = (places >= 0) & (places < size)
        return zeros.scatter_add(ctx.dim, places.clamp(0, size - 1), gradient.where(ours, 0)), None, None, None, None


def sharded_topk(
    x: Tensor,
    k: int,
    group: Any,
    dim: int,
    largest: bool,
    sorted: bool,
    stable: bool,
    sizes: Sequence[int] | None,
) -> torch.return_types.topk:
    """See `autotopk.distributed.topk`."""
    group = dist.group.WORLD if group is None else group
    if sizes is None:
        return _of_any_sizes(x, k, group, dim, largest, sorted, stable)
    if not torch.compiler.is_compiling() and (again := _again(x, k, group, dim, largest, sorted, stable, sizes)):
        return torch.return_types.topk(again(x))
    rank, world = _ranks(group)
    dim = checked(x, k, dim, largest=largest, sorted=sorted, stable=stable)
    known = check_sizes(sizes, x.shape[dim], rank, world)
    if k > sum(known):
        raise ValueError(f"k={k} is more than the {sum(known)} columns of all shards, {known}")
    data = x.detach()
    offset = sum(known[:rank])
    values, indices = _topk_of_data(data, k, group, dim, largest, stable, known)
    if x.requires_grad and torch.is_grad_enabled():
        values = _Chosen.apply(x, values, indices, dim, offset)  # type: ignore[no-untyped-call]
    return torch.return_types.topk((values, indices))


def _of_any_sizes(
    x: Tensor, k: int, group: Any, dim: int, largest: bool, sorted: bool, stable: bool
) -> torch.return_types.topk:
    """The same after an agreement. Where it was the same before, we take it that it will be, and begin."""
    flags = {"largest": largest, "sorted": sorted, "stable": stable}
    call = (x.shape, x.dtype, x.device, k, dim, largest, sorted, stable) if _is_usual(x, k, dim, **flags) else None
    if call and (before := _before.get(group, _NOTHING).get(call)) and _is_data_alone(x):
        found, all_about = before.among.if_agreed(x, before.all_about)
        if found:
            return torch.return_types.topk(found)
        sizes = agreed_sizes(all_about, x, k, dim, flags, group)
    else:
        _ranks(group)
        if torch.compiler.is_compiling() or (isinstance(x, Tensor) and x.is_cuda and capturing()):
            raise ValueError("torch.compile and CUDA graphs need `sizes`, the columns of every rank's shard")
        sizes, all_about = agreed(x, k, dim, flags, group)
    answer = sharded_topk(x, k, group, dim, largest, sorted, stable, sizes)
    if call and (among := _again(x, k, group, dim, **flags, sizes=sizes)):
        all_before = _before.setdefault(group, {})
        if len(all_before) >= _MOST_KEPT:
            all_before.clear()
        all_before[call] = _Agreement(all_about, among)
    return answer


def _ranks(group: Any) -> tuple[int, int]:
    """Ours, and how many. Raises ValueError where we have none."""
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError("this process is no rank of the group")
    return rank, dist.get_world_size(group)


def _topk_of_data(
    x: Tensor, k: int, group: Any, dim: int, largest: bool, stable: bool, sizes: list[int]
) -> tuple[Tensor, Tensor]:
    others = x.shape[:dim] + x.shape[dim + 1 :]
    rows = prod(others)
    if not rows or not k:  # nothing to exchange, on any rank
        size = (*x.shape[:dim], k, *x.shape[dim + 1 :])
        return x.new_empty(size), x.new_empty(size, dtype=torch.int64)
    lists = lists_of(rows, k, sizes, x.element_size())
    if not operations.is_plain(x, False) or operations.is_transformed():
        found = (stable_pairs if stable else pairs)(x, min(k, x.shape[dim]), dim, largest, True)
        ours = packed(found[0].movedim(dim, -1), found[1].movedim(dim, -1), lists)
    elif not (x.is_cuda and capturing()) and (peers := peers_of(group, x.device, lists.part_bytes // 8)):
        kept, key = _kept.setdefault(group, {}), _key(x, k, dim, largest, stable, sizes)
        if key not in kept:
            if len(kept) >= _MOST_KEPT:
                kept.clear()
                _before.pop(group, None)
            kept[key] = _AmongPeers(peers, lists, x, dim, largest, stable)
        return kept[key](x)
    else:
        ours = x.new_empty(lists.part_bytes // 8, dtype=torch.int64)
        _fill(_places_in(ours, lists, x, dim), x, dim, largest, stable)
    merged = merge_lists(_gathered(ours, group, len(sizes)), lists, x.dtype, largest)
    return _shaped(merged, others, dim)


class _AmongPeers:
    """What is known of calls of the same sizes, whose results ranks read in each other's memory."""

    def __init__(self, peers: Peers, lists: Lists, x: Tensor, dim: int, largest: bool, stable: bool) -> None:
        self._peers, self._lists, self._dim, self._largest, self._stable = peers, lists, dim, largest, stable
        self._others = x.shape[:dim] + x.shape[dim + 1 :]
        self._parts = [peers.parts(turn, lists) for turn in (0, 1)]
        self._places = [_places_in(one.own, lists, x, dim) for one in self._parts]

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._merged(x, self._filled(x))

    def if_agreed(self, x: Tensor, expected: list[bytes]) -> tuple[tuple[Tensor, Tensor] | None, list[bytes]]:
        """The answer if all ranks tell what is expected, and what they tell. The GPU begins before they do."""
        board = self._peers.board
        board.tell(expected[self._peers.rank])
        try:
            turn = self._filled(x)
        finally:  # others have told, too
            told = board.heard()
        return self._merged(x, turn) if told == expected else None, told

    def _filled(self, x: Tensor) -> int:
        turn = self._peers.begin()
        _fill(self._places[turn], x, self._dim, self._largest, self._stable)
        return turn

    def _merged(self, x: Tensor, turn: int) -> tuple[Tensor, Tensor]:
        self._peers.meet()
        return _shaped(merge_lists(self._parts[turn], self._lists, x.dtype, self._largest), self._others, self._dim)


class _Agreement(NamedTuple):
    """Of a call without sizes."""

    all_about: list[bytes]
    """What every rank told about its call."""
    among: _AmongPeers
    """What answered, and is kept as long as `_kept` keeps it."""


_MOST_KEPT = 1024
_kept: WeakKeyDictionary[Any, dict[Any, _AmongPeers]] = WeakKeyDictionary()
"""By groups, and by what was asked and found right: the same on all ranks, as their shards' sizes are part of it."""
_before: WeakKeyDictionary[Any, dict[Any, _Agreement]] = WeakKeyDictionary()
"""By groups, and by this rank's call alone."""
_NOTHING: dict[Any, Any] = {}


def _key(x: Tensor, k: int, dim: int, largest: bool, stable: bool, sizes: Sequence[int]) -> tuple[Any, ...]:
    return x.shape, x.dtype, x.device, k, dim, largest, stable, tuple(sizes)


def _is_usual(x: Any, k: Any, dim: Any, largest: Any, sorted: Any, stable: Any) -> bool:
    """Whether it is asked of data, by arguments of the types that are declared."""
    of_types = type(k) is type(dim) is int and type(largest) is type(sorted) is type(stable) is bool
    return of_types and operations.is_plain(x, False)


def _again(
    x: Any, k: Any, group: Any, dim: Any, largest: Any, sorted: Any, stable: Any, sizes: Sequence[int]
) -> _AmongPeers | None:
    """What answers where the same was asked before, of data alone."""
    if not (kept := _kept.get(group)) or not _is_usual(x, k, dim, largest, sorted, stable):
        return None
    try:
        found = kept.get(_key(x, k, dim % x.dim(), largest, stable, sizes))
    except (TypeError, ZeroDivisionError):  # not what anybody is answered for
        return None
    return found if found and -x.dim() <= dim < x.dim() and _is_data_alone(x) else None


def _is_data_alone(x: Tensor) -> bool:
    """Whether nothing but its data is asked about, now."""
    return not (
        (x.is_cuda and capturing()) or operations.is_transformed() or (x.requires_grad and torch.is_grad_enabled())
    )


def _places_in(part: Tensor, lists: Lists, x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Of our part, where the values and the places of a shard's best go."""
    size = (*x.shape[:dim], *x.shape[dim + 1 :], min(lists.k, x.shape[dim]))
    strides = fresh_strides(size)
    values = part.view(x.dtype)[lists.values_at // x.element_size() :].as_strided(size, strides)
    return values, part.as_strided(size, strides)


def _fill(ours: tuple[Tensor, Tensor], x: Tensor, dim: int, largest: bool, stable: bool) -> None:
    """Write the best of our shard. Where that may be, kernels do."""
    count = ours[0].shape[-1]
    if not count:
        return
    select = stable_pairs if stable else ordered_pairs
    if dim == x.dim() - 1:
        select(x, count, dim, largest, True, ours)
    else:
        for our, one in zip(ours, select(x, count, dim, largest, True), strict=True):
            our.copy_(one.movedim(dim, -1))


def _shaped(found: tuple[Tensor, Tensor], others: Sequence[int], dim: int) -> tuple[Tensor, Tensor]:
    """(rows, k) results as those of the tensor that was asked about."""
    values, indices = found
    if len(others) != 1:
        values, indices = (one.view(*others, one.shape[1]) for one in found)
    if dim != len(others):
        values, indices = values.movedim(-1, dim).contiguous(), indices.movedim(-1, dim).contiguous()
    return values, indices


def _gathered(ours: Tensor, group: Any, world: int) -> Tensor:
    """What all ranks have, one after the other."""
    if torch.compiler.is_compiling():
        everyone: Tensor = _functional(ours, 0, group)
    else:  # in less host time
        everyone = ours.new_empty(world * ours.numel())
        gather_into(everyone, ours, group=group)
    return everyone
