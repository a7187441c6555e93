"""Routing: top-k of a router's logits together with the weights of the chosen experts.

The way from a call to an answer is that of `operations`, with inputs of its own (a bias, a scale) and a fallback of its
own: torch operators around our top-k. Derivatives are those of the weights as torch operators make them of the logits
at the indices found; the bias has none, because it only chooses.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from autotopk.device import device_of
from autotopk.problem import Answer
from autotopk.routing import LOGITS, Routing
from autotopk.runtime import operations
from autotopk.runtime.operations import Operation, is_plain
from autotopk.runtime.operators import LIBRARY, has_derivatives
from autotopk.runtime.planning import Plan, Planner
from autotopk.runtime.state import Runtime, default
from autotopk.runtime.views import View
from autotopk.strategies.torch_fallback.routed import choose, weigh

ANSWERS: dict[torch.dtype, Answer] = {torch.int64: "weights", torch.int32: "narrow_weights"}
"""By the dtype of the indices."""

Routes = tuple[Tensor, Tensor]
"""Float32 weights and indices, (..., k) both."""

_UNKNOWN: Any = object()
"""In place of a plan that was not made yet; None stands for torch's operators."""

rule: Callable[..., Routing] = lru_cache(maxsize=256, typed=True)(Routing)
"""The same rule for the same arguments. Raises ValueError, and TypeError where one cannot be hashed."""


class Router(Planner):
    """Routing by the fastest known kernel, or by torch's operators around a top-k."""

    def __init__(self, name: str, topk: Operation, *, runtime: Runtime = default) -> None:
        """Declare it.

        Args:
            name: its own among the operations of a runtime.
            topk: what finds indices where no kernel routes.
            runtime: whose winners, plans and failures count.
        """
        super().__init__(name, "weights", (1 << 31) - 1, runtime)
        self.operator: Callable[..., Any] | None = None
        """Of torch, with arguments and results as here."""
        self._topk = topk

    def __call__(
        self,
        x: Tensor,
        k: int,
        bias: Tensor | None,
        scoring: Any,
        renormalize: bool,
        scale: float,
        n_group: int,
        topk_group: int,
        index_dtype: torch.dtype,
        data: bool = False,
    ) -> Routes:
        """The weights and indices. Raises TypeError and ValueError.

        `data` says that all that torch has on top of data had its turn before.
        """
        more = bias, scoring, renormalize, scale, n_group, topk_group, index_dtype
        if not is_plain(x, data) or not (bias is None or is_plain(bias, data)):
            return self._longer_way(x, k, *more, data=data)
        try:
            key = (
                x.shape,
                x.stride(),
                x.dtype,
                x.device,
                x.data_ptr() & 15,
                operations.threads(),
                k,
                None if bias is None else (bias.shape, bias.dtype, bias.device),
                scoring,
                renormalize,
                n_group,
                topk_group,
                index_dtype,
            )
            plan: Plan | None = self._plans.get(key, _UNKNOWN)
        except (RuntimeError, TypeError):  # sparse, nested, transformed: no sizes or data; what cannot be hashed
            return self._longer_way(x, k, *more, data=data)
        if not data and operations.is_transformed():
            return self._longer_way(x, k, *more, data=data)
        if type(k) is not int or type(scale) is not float:  # 2.0 and True find the plans of 2 and 1
            if type(k) is not int and (whole := operations.whole(k)) is not None and type(k) is not bool:
                return self(x, whole, *more, data)
            checked(x, k, more)
            scale = float(scale)
        if plan is _UNKNOWN:
            routing = checked(x, k, more)
            if operations.is_tracing() or (self._runtime.cpu_is_torchs and x.is_cpu):
                plan = None
            else:
                rows = x.detach()
                plan = self._first(key, rows, _view(rows, k, routing, ANSWERS[index_dtype]))
        if x.requires_grad and not data and torch.is_grad_enabled():
            _, indices = self(x.detach(), k, *more)
            return weigh(x, indices, scale, rule_of(more)), indices
        if plan is None or x.is_neg():
            return self._of_torch(x, k, *more, data=data)
        if bias is not None and (bias.is_neg() or not bias.is_contiguous()):
            bias = bias.detach().resolve_neg().contiguous()
        try:
            found: Routes = plan.run(x, bias, scale)
        except torch.OutOfMemoryError:
            return self._of_torch(x, k, *more, data=data)
        except Exception as error:  # the failed candidate is left out; the next one answers
            self._runtime.block(plan.choice.candidate, device_of(x.device), error)
            self._plans.pop(key, None)
            return self(x, k, *more, data)
        return found

    def _longer_way(self, x: Tensor, k: int, *more: Any, data: bool) -> Routes:
        """By way of torch's dispatcher, or by torch's operators where that led here."""
        if data or self.operator is None:
            return self._of_torch(x, k, *more, data=data)
        if not operations.is_compiling():  # else what tells shapes says what is wrong
            checked(x, k, more)
        weights, indices = self.operator(x, k, *more)
        return weights, indices

    def _of_torch(self, x: Tensor, k: int, *more: Any, data: bool) -> Routes:
        """By torch's operators around our top-k."""
        routing = checked(x, k, more)
        bias, _, _, scale, _, _, index_dtype = more

        def select(rows: Tensor, k: int) -> Tensor:
            indices: Tensor = self._topk(rows, k, -1, True, True, None, data)[1]
            return indices

        indices = choose(x.detach(), None if bias is None else bias.detach(), k, routing, select)
        return weigh(x, indices, scale, routing), indices.to(index_dtype)


def rule_of(more: Any) -> Routing:
    """The rule that arguments of a `Router` behind k stand for. Raises TypeError and ValueError."""
    bias, scoring, renormalize, _, n_group, topk_group, _ = more
    return rule(scoring, bias is not None, renormalize, n_group, topk_group)


def checked(x: Any, k: Any, more: Any) -> Routing:
    """The same, where all arguments of a `Router` are right. Raises TypeError and ValueError."""
    if not isinstance(x, Tensor):
        raise TypeError(f"logits are a Tensor, not {type(x).__name__}")
    if str(x.dtype).removeprefix("torch.") not in LOGITS:
        raise TypeError(f"logits are {', '.join(LOGITS)}, not {x.dtype}")
    if x.dim() == 0:
        raise ValueError("logits are (..., experts), not a number")
    if not isinstance(k, (int, torch.SymInt)) or isinstance(k, bool):
        raise TypeError(f"k={k!r} is not a whole number")
    bias, *_, scale, _, _, index_dtype = more
    if index_dtype not in ANSWERS:
        raise ValueError(f"index_dtype={index_dtype!r} is not {' or '.join(map(str, ANSWERS))}")
    if not isinstance(scale, (int, float)):
        raise TypeError(f"scale={scale!r} is not a number")
    experts: Any = x.shape[-1]
    if bias is not None:
        if not isinstance(bias, Tensor):
            raise TypeError(f"bias is a Tensor or None, not {type(bias).__name__}")
        if bias.dtype is not torch.float32 or bias.shape != (experts,) or bias.device != x.device:
            told = f"{bias.dtype} of {tuple(bias.shape)} on {bias.device}"
            raise ValueError(f"bias is {told}, not torch.float32 of ({experts},) on {x.device}")
    routing, count = rule_of(more), cast(int, k)  # or a symbol for one
    routing.check(experts, count)
    return routing


def _view(x: Tensor, k: int, routing: Routing, answer: Answer) -> View | None:
    """The rows of logits; None where there are none."""
    view = View.of(x, k, -1, True, True)
    return view and view._replace(problem=replace(view.problem, routing=routing, answer=answer))


def register(router: Router) -> None:
    """Make it an operator of torch; once in a process."""
    name, qualified = router.name, f"autotopk::{router.name}"
    LIBRARY.define(
        f"{name}(Tensor x, SymInt k, Tensor? bias=None, str scoring='softmax', bool renormalize=True, float scale=1.0,"
        " int n_group=1, int topk_group=1, ScalarType? index_dtype=None) -> (Tensor weights, Tensor indices)",
        tags=(torch.Tag.pt2_compliant_tag,),
    )
    operator = getattr(torch.ops.autotopk, name).default
    defaults = (None, "softmax", True, 1.0, 1, 1, None)

    def filled(given: tuple[Any, ...]) -> Any:
        """All arguments after k."""
        more = (*given, *defaults[len(given) :])
        return (*more[:-1], torch.int64 if more[-1] is None else more[-1])

    def of_data(x: Tensor, k: int, *given: Any) -> Routes:
        arguments: Any = (*filled(given), True)
        return router(x, k, *arguments)

    def of_sizes(x: Tensor, k: int, *given: Any) -> Routes:
        more = filled(given)
        checked(x, k, more)
        size = (*x.shape[:-1], k)
        return x.new_empty(size, dtype=torch.float32), x.new_empty(size, dtype=more[-1])

    def with_derivatives(keys: Any, x: Tensor, k: int, *given: Any) -> Routes:
        with torch._C._AutoDispatchBelowAutograd():
            below = keys & torch._C._after_autograd_keyset
            weights, indices = operator.redispatch(below, x, k, *given)
        if has_derivatives(x):
            more = filled(given)
            weights = weigh(x, indices, more[3], rule_of(more))
        return weights, indices

    def of_batch(info: Any, in_dims: tuple[int | None, ...], x: Tensor, k: int, *given: Any) -> tuple[Routes, Any]:
        bias = given[0] if given else None
        if bias is not None and in_dims[2] is not None:  # a bias for each of the batch
            xs = [x] * info.batch_size if in_dims[0] is None else x.unbind(in_dims[0])
            found = [operator(x, k, bias, *given[1:]) for x, bias in zip(xs, bias.unbind(in_dims[2]), strict=True)]
            weights, indices = (torch.stack(one) for one in zip(*found, strict=True))
        else:
            assert in_dims[0] is not None
            weights, indices = operator(x.movedim(in_dims[0], 0), k, *given)
        return (weights, indices), (0, 0)

    LIBRARY.impl(name, of_data, "CompositeExplicitAutograd")
    LIBRARY.impl(name, with_derivatives, "Autograd", with_keyset=True)
    torch.library.register_fake(qualified, of_sizes, lib=LIBRARY)
    torch.library.register_vmap(qualified, of_batch, lib=LIBRARY)
    router.operator = operator
