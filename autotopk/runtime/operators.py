"""Operations as operators of torch: `torch.ops.autotopk.topk` is what compilers, exporters, transforms and modes see.

An operator's kernel is the operation itself, told that all it gets is data. Derivatives are those of `Tensor.gather`
at the indices that it found: of every order, forward and backward, and under every transform.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet
from torch.autograd import forward_ad

from autotopk.runtime.operations import Operation
from autotopk.runtime.planning import Planner

LIBRARY = torch.library.Library("autotopk", "DEF")
"""Keeps what is registered for as long as the process lives."""

DATA = frozenset(
    (DispatchKeySet(backend) | DispatchKeySet(view)).raw_repr()
    for backend in (DispatchKey.CPU, DispatchKey.CUDA)
    for view in (DispatchKey.Undefined, DispatchKey.ADInplaceOrView)
)
"""What is left to dispatch on below autograd where a tensor is nothing but its data."""

Result = Tensor | tuple[Tensor, ...]


def register(operation: Operation, returns: str) -> None:
    """Make an operation an operator of torch, with the arguments of `torch.topk`.

    Args:
        operation: under its own name, with derivatives; it may be registered once in a process.
        returns: the result in the language of torch's schemas.
    """
    name, qualified, attach = operation.name, f"autotopk::{operation.name}", operation.attach
    assert attach is not None, f"{name} says nothing of derivatives"
    LIBRARY.define(
        f"{name}(Tensor input, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> {returns}",
        tags=(torch.Tag.pt2_compliant_tag,),
    )
    operator = getattr(torch.ops.autotopk, name).default

    def of_data(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Result:
        return _plain(operation(input, k, dim, largest, sorted, data=True))

    def of_sizes(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Result:
        return _plain(operation.of_torch(input, k, dim, largest, sorted))

    def with_derivatives(
        keys: DispatchKeySet, input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
    ) -> Result:
        below, wanted = keys & torch._C._after_autograd_keyset, has_derivatives(input)
        if not wanted and below.raw_repr() in DATA:  # the dispatcher would ask for Python once more
            return of_data(input, k, dim, largest, sorted)
        with torch._C._AutoDispatchBelowAutograd():
            found: Result = operator.redispatch(below, input, k, dim, largest, sorted)
        return _plain(attach(input, dim, found)) if wanted else found

    def of_batch(
        info: Any,
        in_dims: tuple[int | None, ...],
        input: Tensor,
        k: int,
        dim: int = -1,
        largest: bool = True,
        sorted: bool = True,
    ) -> tuple[Result, Any]:
        assert in_dims[0] is not None
        batch = input.movedim(in_dims[0], 0)
        rank = batch.dim() - 1
        most = max(rank, 1) - 1
        if not -most - 1 <= dim <= most:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-most - 1}, {most}], but got {dim})"
            )
        if rank:
            found = operator(batch, k, dim % rank + 1, largest, sorted)
        else:  # numbers: torch gives them one dimension for the search, also where k is 0, and none in the result
            found = operator(batch.unsqueeze(1), k or 1, 1, largest, sorted)
            found = found.squeeze(1) if isinstance(found, Tensor) else tuple(one.squeeze(1) for one in found)
        return found, 0 if isinstance(found, Tensor) else (0,) * len(found)

    LIBRARY.impl(name, of_data, "CompositeExplicitAutograd")
    LIBRARY.impl(name, with_derivatives, "Autograd", with_keyset=True)
    torch.library.register_fake(qualified, of_sizes, lib=LIBRARY)
    torch.library.register_vmap(qualified, of_batch, lib=LIBRARY)
    operation.operator = operator


def script(function: Callable[..., Any], operation: Planner) -> None:
    """Let torch.jit.script compile calls of a function as the operator; nothing where torch has no such table."""
    if (note := getattr(torch.jit._builtins, "_register_builtin", None)) is not None:
        note(function, f"autotopk::{operation.name}")


def has_derivatives(input: Tensor) -> bool:
    """Whether any may be asked for."""
    return forward_ad._current_level >= 0 or (torch.is_grad_enabled() and input.requires_grad)


def _plain(result: Any) -> Result:
    """Without the names of torch.return_types, which operators do not return."""
    return result if isinstance(result, Tensor) else tuple(result)
