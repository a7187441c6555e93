"""The calls of top-k in an exported graph: what they ask, and how another call takes the place of one."""

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._sympy.value_ranges import bound_sympy

from autotopk.errors import UnsupportedProblemError
from autotopk.export.serving import Asked, Sizes
from autotopk.problem import DTYPE_BYTES
from autotopk.runtime import api  # noqa: F401  registers our operators
from autotopk.runtime.views import even_row_stride
from autotopk.torch_topk import torch_topk

aten, ours = torch.ops.aten, torch.ops.autotopk

SMALLEST_UNKNOWN = 2
"""Exporters take sizes for unknown from this on, and 0 and 1 for constants."""


@dataclass(frozen=True, eq=False)
class Call:
    """One call, whichever operator it is of."""

    program: ExportedProgram
    node: Node
    x: Node
    k: Any
    dim: int
    largest: bool
    sorted: bool

    @cached_property
    def input(self) -> Tensor:
        """The input as the exporter knows it, without data."""
        found: Tensor = self.x.meta["val"]
        return found

    @property
    def at(self) -> int:
        """The dimension, counted from the first."""
        return self.dim % max(1, self.input.dim())

    @property
    def inner(self) -> Any:
        """Rows that are side by side."""
        return prod(self.input.shape[self.at + 1 :])

    @property
    def is_empty(self) -> bool:
        """It is known that there is nothing in the result."""
        return any(type(size) is int and size == 0 for size in (*self.input.shape, self.k))

    @cached_property
    def contiguous(self) -> bool:
        """It is known that the input is."""
        expected: Any = 1
        for size, stride in zip(reversed(self.input.shape), reversed(self.input.stride()), strict=True):
            if not statically_known_true(size == 1) and not statically_known_true(stride == expected):
                return False
            expected = expected * size
        return True

    @property
    def row_stride(self) -> int | None:
        """Elements between rows that are read as they are, though not contiguous; None where they cannot be."""
        sizes = (*self.input.shape, *self.input.stride())
        if self.contiguous or not all(type(one) is int for one in sizes):
            return None
        return even_row_stride(self.input.movedim(self.at, -1))

    def asked(self, *, inner: int = 1, row_stride: int | None = None) -> Asked:
        """The question. Raises UnsupportedProblemError where kernels cannot answer it, whatever the sizes."""
        dtype = str(self.input.dtype).removeprefix("torch.")
        if self.input.dim() == 0:
            raise UnsupportedProblemError("its input has no dimension")
        if dtype not in DTYPE_BYTES:
            raise UnsupportedProblemError(f"{dtype} is not one of {', '.join(DTYPE_BYTES)}")
        if type(self.k) is not int:
            raise UnsupportedProblemError("k is not known before the model runs")
        others = [self._sizes(size) for at, size in enumerate(self.input.shape) if at != self.at]
        mosts = [one.most for one in others]
        most = None if None in mosts else prod(one for one in mosts if one is not None)
        rows = Sizes(prod(one.least for one in others), most)
        cols = self._sizes(self.input.shape[self.at])
        return Asked(rows, cols, self.k, dtype, self.largest, self.sorted, row_stride, inner)

    def _sizes(self, size: Any) -> Sizes:
        if type(size) is int:
            return Sizes.of(size)
        found = bound_sympy(size.node.expr, self.program.range_constraints)
        least = int(found.lower) if found.lower.is_finite else SMALLEST_UNKNOWN
        return Sizes(least, int(found.upper) if found.upper.is_Integer else None)

    def become(self, target: Any, *arguments: Any, contiguous: bool = False, last: bool = False) -> None:
        """Be a call of another operator instead: of the input, k, the dimension, and more arguments.

        Args:
            target: returns values and int64 indices.
            arguments: what follows the dimension.
            contiguous: the input is copied first if it is not known to be.
            last: the dimension is made the last first, and put back in the results.
        """
        node, x, graph, dim = self.node, self.x, self.node.graph, self.dim
        alone = node.target is ours.topk_indices.default
        with graph.inserting_before(node):
            if last:
                x, dim = _call(graph, aten.transpose.int, x, self.at, -1), -1
            if last or (contiguous and not self.contiguous):
                x = _call(graph, aten.clone.default, x, memory_format=torch.contiguous_format)
        with graph.inserting_after(node):
            found = graph.call_function(target, (x, self.k, dim, *arguments))
        values, indices = torch_topk(_known(x), _known(self.k), dim, self.largest, self.sorted)
        found.meta = {**node.meta, "val": (values, indices)}
        for user in [node] if alone else list(node.users):
            self._result(user, found, 1 if alone else user.args[1], last, torch.int32 if alone else None)
        if not alone:
            graph.erase_node(node)

    def _result(self, old: Node, found: Node, which: Any, last: bool, dtype: torch.dtype | None) -> None:
        """Let a result of the new call take the place of an old one."""
        graph = old.graph
        with graph.inserting_after(old if old is not self.node else found):
            new = _call(graph, operator.getitem, found, which)
        if last:
            with graph.inserting_after(new):
                new = _call(graph, aten.transpose.int, new, self.at, -1)
            with graph.inserting_after(new):
                new = _call(graph, aten.clone.default, new, memory_format=torch.contiguous_format)
        if dtype is not None:
            with graph.inserting_after(new):
                new = _call(graph, aten._to_copy.default, new, dtype=dtype)
        old.replace_all_uses_with(new)
        if graph is self.program.graph:
            self.program.graph_signature.replace_all_uses(old.name, new.name)
        graph.erase_node(old)


def calls(program: ExportedProgram) -> Iterator[Call]:
    """Every call of `aten.topk`, and of the operators that `autotopk.topk` and `topk_indices` leave in a graph."""
    targets = {aten.topk.default, ours.topk.default, ours.topk_indices.default}
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule):
            for node in list(module.graph.nodes):
                if node.op == "call_function" and node.target in targets:
                    yield Call(program, node, *arguments(node))
            module.graph.lint()
            module.recompile()


def routers(program: ExportedProgram) -> list[Node]:
    """Every call of the operator that `autotopk.topk_softmax` leaves in a graph."""
    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, GraphModule)]
    return [node for graph in graphs for node in graph.nodes if node.target is ours.topk_softmax.default]


def arguments(node: Node) -> Iterator[Any]:
    """Those of its operator's schema, in their order, however they were passed."""
    target: Any = node.target
    for at, one in enumerate(target._schema.arguments):
        yield node.args[at] if at < len(node.args) else node.kwargs.get(one.name, one.default_value)


def _call(graph: torch.fx.Graph, target: Callable[..., Any], *arguments: Any, **named: Any) -> Node:
    """A new node, which knows what it gives."""
    node = graph.call_function(target, arguments, named)
    node.meta["val"] = target(*map(_known, arguments), **named)
    return node


def _known(argument: Any) -> Any:
    """What is known of an argument before the graph runs."""
    return argument.meta["val"] if isinstance(argument, Node) else argument
