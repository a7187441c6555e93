"""`autotopk::embedded_topk`: a Triton kernel of ours as a part of the model that AOTInductor compiles."""

import json
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

from autotopk.compilers.triton import TritonSource
from autotopk.errors import UnsupportedProblemError
from autotopk.export.serving import Plan
from autotopk.kernel import scalars
from autotopk.runtime import operators  # noqa: F401  its namespace is made there
from autotopk.strategies import _embedded
from autotopk.torch_topk import torch_topk

SCALARS = {"smallest": "smallest", "has_sign": "signed", "infinity": "infinity"}
"""What a recipe says of the order and the element, by the kernels' names for it; sizes and strides are the tensors'."""


def recipe(plan: Plan) -> str:
    """What the operator is told of its kernel. Raises UnsupportedProblemError where it cannot embed the plan."""
    launch, *more = plan.program.launches
    source = launch.source
    if more or plan.program.scratch or not isinstance(source, TritonSource):
        raise UnsupportedProblemError(f"{plan.label} is not one launch of a Triton kernel")
    if source.function not in _embedded.WRAPPERS:
        raise UnsupportedProblemError(f"{plan.label}: {source.function} takes no tensors as they are")
    [grid] = launch.grid
    [(_, share)] = grid.per
    known = scalars(plan.asked.problem(plan.asked.rows.least, plan.asked.cols.least, plan.access))
    return json.dumps(
        {
            "function": source.function,
            "constants": dict(source.constants),
            "scalars": {name: known[scalar] for name, scalar in SCALARS.items()},
            "rows_per_program": share,
            "warps": source.warps,
            "stages": source.stages,
            "inner": plan.asked.inner,
        }
    )


@triton_op("autotopk::embedded_topk", mutates_args={})
def embedded_topk(input: Tensor, k: int, dim: int, largest: bool, kernel: str) -> tuple[Tensor, Tensor]:
    """Sorted values and int64 indices along a dimension of a contiguous tensor, by the kernel of a `recipe`."""
    at = dim % input.dim()
    size = (*input.shape[:at], k, *input.shape[at + 1 :])
    values, indices = input.new_empty(size), input.new_empty(size, dtype=torch.int64)
    if k == 0 or any(type(one) is int and one == 0 for one in size):
        return values, indices
    told = json.loads(kernel)
    cols, inner = input.shape[at], prod(input.shape[at + 1 :])
    rows = prod(input.shape[:at]) * inner
    numbers = {"rows": rows, "cols": cols, "k": k, "row_stride": cols * inner, "col_stride": inner, "inner": inner}
    function = _embedded.wrapper(told["function"])
    named: dict[str, Any] = {**numbers, **told["scalars"], **told["constants"]}
    share = told["rows_per_program"]
    wrap_triton(function)[((rows + share - 1) // share,)](
        input,
        values,
        indices,
        **{name: named[name] for name in function.arg_names[3:]},
        num_warps=told["warps"],
        num_stages=told["stages"],
    )
    return values, indices


@embedded_topk.register_kernel("cpu")  # type: ignore[untyped-decorator]
def _on_cpu(input: Tensor, k: int, dim: int, largest: bool, kernel: str) -> tuple[Tensor, Tensor]:
    values, indices = torch_topk(input, k, dim, largest, True)
    return values, indices
