"""Autograd, transforms, tracing, modes and subclasses see `topk` as they see torch.topk."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import autotopk
from tests.runtime.modes import Called, Dispatched
from tests.runtime.same import outcome, unwarned

pytestmark = [unwarned, pytest.mark.usefixtures("backend")]

TopK = Callable[..., Any]


def matrix(requires_grad: bool = False) -> Tensor:
    return torch.randn(
        5, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=requires_grad
    )


@pytest.fixture(autouse=True)
def _a_plan_exists(backend: str) -> None:
    """The plain tensor of the same layout was asked for before: its plan must not be taken for what follows."""
    autotopk.topk(matrix(), 3)


def test_gradients() -> None:
    def gradient(topk: TopK) -> Tensor:
        x = matrix(requires_grad=True)
        values, indices = topk(x, 3, largest=False)
        assert values.requires_grad
        assert not indices.requires_grad
        (values**2).sum().backward()
        assert x.grad is not None
        return x.grad

    assert torch.equal(gradient(autotopk.topk), gradient(torch.topk))
    assert gradient(autotopk.topk).count_nonzero() == 15


def test_second_derivatives() -> None:
    assert torch.autograd.gradgradcheck(lambda x: (autotopk.topk(x, 3).values ** 3).sum(), matrix(requires_grad=True))


def test_no_grad_and_inference_mode() -> None:
    x = matrix(requires_grad=True)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            result = autotopk.topk(x, 3)
            assert not result.values.requires_grad
            assert result.values.is_inference() == torch.topk(x, 3).values.is_inference()
        assert torch.equal(result.values, torch.topk(x, 3).values)
    with torch.inference_mode():
        born = matrix()
    assert torch.equal(autotopk.topk(born, 3).values, torch.topk(born, 3).values)


def test_parameters_answer_with_gradients() -> None:
    x = torch.nn.Parameter(matrix())
    autotopk.topk(x, 3).values.sum().backward()
    assert x.grad is not None
    assert x.grad.sum() == 15


def test_jvp() -> None:
    x, tangent = matrix(), matrix().flip(1)
    ours = torch.func.jvp(lambda x: autotopk.topk(x, 3).values, (x,), (tangent,))
    theirs = torch.func.jvp(lambda x: torch.topk(x, 3).values, (x,), (tangent,))
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])
    assert ours[1].count_nonzero() == 15


def test_dual_numbers() -> None:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(matrix(), matrix().flip(1))
        ours = forward_ad.unpack_dual(autotopk.topk(dual, 3).values)
        theirs = forward_ad.unpack_dual(torch.topk(dual, 3).values)
        assert ours.tangent is not None
        assert torch.equal(ours.tangent, theirs.tangent)
        assert torch.equal(ours.primal, theirs.primal)


@pytest.mark.parametrize(("in_dims", "dim"), [(0, -1), (1, 0)])
def test_vmap(in_dims: int, dim: int) -> None:
    def mapped(topk: TopK) -> tuple[Tensor, Tensor]:
        answer: tuple[Tensor, Tensor] = torch.vmap(lambda x: tuple(topk(x, 3, dim)), in_dims=in_dims)(matrix())
        return answer

    for ours, theirs in zip(mapped(autotopk.topk), mapped(torch.topk), strict=True):
        assert torch.equal(ours, theirs)


def test_grad_and_jacobian_transforms() -> None:
    x = matrix()[0]
    for transform in (torch.func.jacrev, torch.func.jacfwd, torch.func.hessian):
        ours = transform(lambda x: autotopk.topk(x, 3).values ** 2)(x)
        assert torch.equal(ours, transform(lambda x: torch.topk(x, 3).values ** 2)(x))
    per_row = torch.vmap(torch.func.grad(lambda x: autotopk.topk(x, 3).values.sum()))(matrix())
    assert (per_row.sum(1) == 3).all()


def test_functionalize() -> None:
    ours = torch.func.functionalize(lambda x: autotopk.topk(x.clone().add_(1), 3).values)(matrix())
    assert torch.equal(ours, torch.topk(matrix() + 1, 3).values)


@pytest.mark.parametrize("backend_of_compile", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(backend_of_compile: str, dynamic: bool) -> None:
    torch.compiler.reset()
    compiled = torch.compile(
        lambda x: autotopk.topk(x * 2, 3, -1), backend=backend_of_compile, fullgraph=True, dynamic=dynamic
    )
    for rows in (5, 4, 3):
        x = matrix()[:rows]
        for ours, theirs in zip(compiled(x), torch.topk(x * 2, 3), strict=True):
            assert torch.equal(ours, theirs)


def test_compile_with_gradients() -> None:
    torch.compiler.reset()
    x = matrix(requires_grad=True)
    compiled = torch.compile(lambda x: autotopk.topk(x, 3).values, backend="aot_eager", fullgraph=True)
    (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
    assert gradient.sum() == 15


def test_export_and_make_fx() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            values: Tensor = autotopk.topk(x, 3)[0]
            return values

    exported = torch.export.export(Model(), (matrix(),))
    assert torch.equal(exported.module()(matrix()), torch.topk(matrix(), 3).values)
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda x: autotopk.topk(x, 3)[0])(matrix())
    assert torch.equal(graph(matrix() + 1), torch.topk(matrix() + 1, 3).values)


def test_symbolic_trace_sees_torch() -> None:
    with FakeTensorMode() as mode:
        x = mode.from_tensor(matrix())
        values, indices = autotopk.topk(x, 3, 0)
    assert type(values) is type(indices) is type(x)
    assert values.shape == (3, 11)
    assert indices.dtype == torch.int64
    outside = autotopk.topk(x, 3)  # the mode is gone, the tensor is not
    assert type(outside.values) is type(x)


def test_meta() -> None:
    values, indices = autotopk.topk(matrix().to("meta"), 3)
    assert values.is_meta
    assert indices.is_meta
    assert values.shape == indices.shape == (5, 3)


class Logged(Tensor):
    """A subclass that notes what is called on it."""

    seen: list[str] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


def test_subclass() -> None:
    Logged.seen.clear()
    values, indices = autotopk.topk(matrix().as_subclass(Logged), 3)
    assert "topk" in Logged.seen
    assert type(values) is type(indices) is Logged


def test_anything_with_torch_function() -> None:
    class Duck:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> str:
            return f"quack {func.__name__} {args[1:]}"

    assert autotopk.topk(Duck(), 3) == torch.topk(Duck(), 3, -1, True, True)  # type: ignore[arg-type]


def test_torch_function_mode() -> None:
    with Called() as mode:
        autotopk.topk(matrix(), 3)
    assert {torch.topk, torch.ops.autotopk.topk.default} & {*mode.seen}


def test_torch_dispatch_mode() -> None:
    x = matrix()
    with Dispatched() as mode:
        autotopk.topk(x, 3)
    assert mode.seen in ([torch.ops.aten.topk.default], [torch.ops.autotopk.topk.default])


def test_default_device_and_deterministic_modes() -> None:
    with torch.device("meta"):
        assert not autotopk.topk(matrix_on_cpu := torch.randn(3, 4, device="cpu"), 2).values.is_meta
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(autotopk.topk(matrix_on_cpu, 2).values, torch.topk(matrix_on_cpu, 2).values)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("cols", [1, 11])
def test_negative_bit(cols: int) -> None:
    """Views that are to be negated when read; with one column their memory passes for that of a plain matrix."""
    x = torch.randn(5, cols, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    ours, theirs = autotopk.topk(x, 1), torch.topk(x, 1)
    assert torch.equal(ours.values, theirs.values)
    assert torch.equal(ours.indices, theirs.indices)


def test_nested_and_sparse_go_to_torch() -> None:
    nested = torch.nested.nested_tensor([torch.randn(3), torch.randn(4)])
    with pytest.raises(NotImplementedError) as expected:
        torch.topk(nested, 2)
    with pytest.raises(NotImplementedError) as found:
        autotopk.topk(nested, 2)
    assert str(found.value)[:60] == str(expected.value)[:60]


@pytest.mark.skipif(not hasattr(Tensor, "has_names"), reason="this torch has no named tensors")
@pytest.mark.filterwarnings("ignore:Named tensors")
def test_named_tensors_go_to_torch() -> None:
    """What it cannot do with them it says in its own name."""
    x = matrix()
    named = x.rename("rows", "cols")  # type: ignore[attr-defined,unused-ignore]
    for topk in (autotopk.topk, autotopk.topk_indices):
        assert outcome(topk, named, 3) == outcome(torch.topk, named, 3)
    with pytest.raises(ValueError, match="goes to torch"):
        autotopk.explain(named, 3)


def test_copies_and_pickles() -> None:
    """The module holds no state that would keep callables from travelling."""
    import pickle

    assert pickle.loads(pickle.dumps(autotopk.topk)) is autotopk.topk
