"""Derivatives of what kernels select, for eager calls: in less host time than by `gather`, and without its kernel."""

from typing import Any

import torch
from torch import Tensor

from autotopk.runtime.views import Run


class TopK(torch.autograd.Function):
    """A run of a plan on an input; its derivative goes to the elements that were selected, of every order."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, run: Run, dim: int) -> tuple[Tensor, Tensor]:
        """What the run returns; torch follows the values."""
        values, indices = run(input)
        ctx.mark_non_differentiable(indices)
        ctx.set_materialize_grads(False)  # of the indices none comes, and zeros would be launched for it
        ctx.found = dim, input.shape, indices, indices._version  # to save them costs two microseconds
        return values, indices

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, None, None]:
        """The gradient of the values, where they are from, amid zeros."""
        gradient = gradients[0]
        if gradient is None:
            return None, None, None
        dim, size, indices, version = ctx.found
        if indices._version != version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"the indices of topk, which are at version {indices._version}; expected version {version}"
            )
        return gradient.new_zeros(size).scatter_(dim, indices, gradient), None, None


selected: Any = super(torch.autograd.Function, TopK).apply
"""`TopK.apply` for calls that no transform of functorch is above."""
