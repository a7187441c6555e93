"""Results in tensors that the caller brings along, as torch.topk's `out=`."""

from typing import Any

import torch
from torch import Tensor

from autotopk.runtime.views import Run

Outputs = tuple[Tensor, Tensor]
"""Values and int64 indices."""

ALIGNMENT = 16
"""Bytes; kernels are made for outputs that begin at a multiple of it, as fresh memory does."""

result_out: Any = getattr(torch.return_types, "topk_out", torch.return_types.topk)  # missing from torch's stubs


def write(run: Run, out: Outputs, input: Tensor, size: tuple[int, ...], reach: int, data: bool) -> Any | None:
    """Run into outputs, or copy to them.

    Args:
        run: returns (values, int64 indices), or takes the tensors to write to as its second argument.
        out: whatever the caller gave.
        input: the input of `run`.
        size: of the results.
        reach: bytes of memory from the first to the last element of the input; 0 where `run` takes the input alone.
        data: torch counts versions of outputs itself, since its dispatcher asks.

    Returns:
        What torch.topk returns for them; None where it adjusts outputs like these, or says what is wrong with them.

    Raises:
        What `run` raises.
    """
    if not _fit(out, input, size):
        return None
    if reach and _writable(out[0], input, reach) and _writable(out[1], input, reach):
        run(input, out)
        if not data:
            torch.autograd.graph.increment_version(out)  # as operators of torch do
        return result_out(out)
    values, indices = run(input)
    try:
        out[0].copy_(values)
        out[1].copy_(indices)
    except RuntimeError:  # memory that overlaps itself, inference tensors
        return None
    return result_out(out)


def _fit(out: Outputs, input: Tensor, size: tuple[int, ...]) -> bool:
    """Whether copies to the outputs are what torch.topk does with them."""
    if type(out) is not tuple or len(out) != 2:
        return False
    values, indices = out
    return (
        type(values) is type(indices) is Tensor
        and values.dtype is input.dtype
        and indices.dtype is torch.int64
        and values.device == indices.device == input.device
        and values.shape == indices.shape == size
        and not (values.requires_grad and torch.is_grad_enabled())
    )


def _writable(output: Tensor, input: Tensor, reach: int) -> bool:
    """Whether a kernel may write an output of the right size: it is like fresh memory, and apart from the input."""
    begin, start = output.data_ptr(), input.data_ptr()
    return (
        output.is_contiguous()
        and begin % ALIGNMENT == 0
        and (begin + output.nbytes <= start or start + reach <= begin)
        and not output.is_neg()
        and (torch.is_inference_mode_enabled() or not output.is_inference())
    )
