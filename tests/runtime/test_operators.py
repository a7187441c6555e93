"""`torch.ops.autotopk`: torch's own checks of operators, derivatives, transforms, compilers and exporters."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import BaseTorchFunctionMode

import autotopk
from autotopk.runtime import declared
from autotopk.runtime.operations import Operation
from tests.runtime.conftest import Planted
from tests.runtime.modes import Dispatched
from tests.runtime.same import outcome, unwarned

pytestmark = [unwarned, pytest.mark.usefixtures("backend"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

samples = pytest.importorskip("torch.testing._internal.common_methods_invocations", exc_type=ImportError)

OPERATORS = {"topk": torch.ops.autotopk.topk.default, "topk_indices": torch.ops.autotopk.topk_indices.default}
[OPINFO] = [op for op in samples.op_db if op.name == "topk"]

ARGUMENTS: list[tuple[tuple[int, ...], tuple[Any, ...]]] = [
    ((5, 11), (3,)),
    ((5, 11), (3, 0, False)),
    ((2, 3, 11), (11, -1, True, False)),
    ((2, 7, 3), (2, 1)),
    ((4, 0), (0,)),
    ((0, 4), (2,)),
    ((), (1,)),
    ((9,), (0, 0)),
]
"""Shapes, and what follows the input."""


def tensor(*shape: int, requires_grad: bool = False) -> Tensor:
    """Elements that all differ."""
    count = max(1, int(np.prod(shape)))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(3))[: int(np.prod(shape))]
    return (order.to(torch.float64) / 7).reshape(shape).requires_grad_(requires_grad)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, too, our operators stand in what is compiled and exported."""
    monkeypatch.setattr(Operation, "_may_answer", lambda *_: True)
    torch.compiler.reset()


# torch's own checks


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_opcheck(name: str, requires_grad: bool) -> None:
    for shape, arguments in ARGUMENTS:
        torch.library.opcheck(OPERATORS[name], (tensor(*shape, requires_grad=requires_grad), *arguments))


def test_samples_of_opinfo() -> None:
    """Every sample that torch has for topk, in every dtype."""
    seen = 0
    for dtype in OPINFO.supported_dtypes("cpu"):
        for sample in OPINFO.sample_inputs("cpu", dtype, requires_grad=False):
            ours = torch.ops.autotopk.topk(sample.input, *sample.args, **sample.kwargs)
            theirs = torch.topk(sample.input, *sample.args, **sample.kwargs)
            assert torch.equal(ours[0], theirs[0])
            assert ours[1].shape == theirs[1].shape
            seen += 1
    assert seen > 50


# Who answers


def test_training_runs_our_kernels(planted: Planted) -> None:
    x = tensor(5, 11, requires_grad=True)
    values, indices = autotopk.topk(x, 3, largest=False)
    assert planted.answers == 1
    assert type(autotopk.topk(x, 3)) is torch.return_types.topk
    (values**2).sum().backward()
    expected = torch.topk(x.detach(), 3, largest=False)
    assert torch.equal(values, expected.values)
    assert torch.equal(indices, expected.indices)
    assert x.grad is not None
    assert torch.equal(x.grad, torch.zeros_like(x).scatter(1, expected.indices, 2 * expected.values))
    assert not autotopk.topk_indices(x, 3).requires_grad


def test_what_torch_answers_has_torchs_derivative() -> None:
    x = tensor(5, 11, requires_grad=True)
    function = autotopk.topk(x, 3).values.grad_fn
    assert function is not None
    assert function.name() in {"TopkBackward0", "GatherBackward0"}


@pytest.mark.parametrize("transform", ["vmap", "jvp", "grad", "mode", "device", "inference"])
def test_our_kernels_run_under(transform: str, planted: Planted) -> None:
    x = tensor(4, 5, 11)
    before = planted.answers
    if transform == "vmap":
        found = torch.vmap(lambda x: autotopk.topk(x, 3).values)(x)
    elif transform == "jvp":
        found = torch.func.jvp(lambda x: autotopk.topk(x, 3).values, (x,), (x,))[0]
    elif transform == "grad":
        ones = torch.func.grad(lambda x: autotopk.topk(x, 3).values.sum())(x)
        found = x[ones == 1].reshape(4, 5, 3).sort(descending=True).values
    elif transform == "mode":
        with Dispatched():
            found = autotopk.topk(x, 3).values
    elif transform == "device":
        with torch.device("cpu"):
            found = autotopk.topk(x, 3).values
    else:
        with torch.inference_mode():
            found = autotopk.topk(x, 3).values
    assert planted.answers == before + 1
    assert torch.equal(found, torch.topk(x, 3).values)


def test_where_tensors_are_made_is_no_detour(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device context changes nothing of a call: no operator is between it and its plan."""
    monkeypatch.setattr(declared.pairs, "operator", None)
    x = tensor(5, 11)
    with torch.device("meta"), torch.device("cpu"):
        assert torch.equal(autotopk.topk(x, 3).values, torch.topk(x, 3).values)
    assert planted.answers == 1


def test_numbers_of_other_types(planted: Planted) -> None:
    x = tensor(5, 11)
    for k in (np.int64(3), np.uint8(3), torch.tensor(3), torch.tensor(3, dtype=torch.int32)):
        before = planted.answers
        assert torch.equal(autotopk.topk(x, k).values, torch.topk(x, 3).values)  # type: ignore[arg-type]
        assert planted.answers == before + 1
    for bad in (True, 3.0, np.float32(3), torch.tensor(3.0), torch.tensor([3, 3]), torch.tensor(True), "3", None):
        assert outcome(autotopk.topk, x, bad) == outcome(torch.topk, x, bad)
        with BaseTorchFunctionMode():
            assert outcome(autotopk.topk, x, bad) == outcome(torch.topk, x, bad)


# Compilers and exporters


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("compiler", ["aot_eager", "inductor"])
def test_compiled_graphs_hold_our_operator(compiler: str, dynamic: bool, planted: Planted) -> None:
    def routed(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = autotopk.topk(x * 2, 3)
        return found.values.softmax(-1), found.indices, autotopk.topk_indices(x, 2, 0, False)

    compiled = torch.compile(routed, backend=compiler, fullgraph=True, dynamic=dynamic)
    for rows in (5, 6, 9):
        x = tensor(rows, 11)
        before = planted.answers
        found = compiled(x)
        assert planted.answers == before + 2
        values, indices = torch.topk(x * 2, 3)
        assert torch.allclose(found[0], values.softmax(-1))
        assert torch.equal(found[1], indices)
        assert torch.equal(found[2], torch.topk(x, 2, 0, False).indices.to(torch.int32))


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize("compiler", ["aot_eager", "inductor"])
def test_compiled_training(compiler: str, planted: Planted) -> None:
    x = tensor(5, 11, requires_grad=True)
    compiled = torch.compile(lambda x: (autotopk.topk(x, 3).values ** 2).sum(), backend=compiler, fullgraph=True)
    (gradient,) = torch.autograd.grad(compiled(x), x)
    (expected,) = torch.autograd.grad((torch.topk(x, 3).values ** 2).sum(), x)
    assert planted.answers == 1
    assert torch.equal(gradient, expected)


class Model(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = autotopk.topk(x, 3)
        return values + 1, indices


def scripted(x: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    found = autotopk.topk(x, k, largest=False)
    return found.values + 1, found.indices, autotopk.topk_indices(x, k, 0)


def test_scripts_call_our_operators(planted: Planted) -> None:
    compiled = torch.jit.script(scripted)
    x = tensor(5, 11)
    values, indices, only = compiled(x, 4)
    assert planted.answers == 2
    assert torch.equal(values, torch.topk(x, 4, largest=False).values + 1)
    assert torch.equal(indices, torch.topk(x, 4, largest=False).indices)
    assert torch.equal(only, torch.topk(x, 4, 0).indices.to(torch.int32))


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize("strict", [False, True])
def test_exported_programs(strict: bool, planted: Planted) -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    exported = torch.export.export(Model(), (tensor(5, 11),), dynamic_shapes=({0: rows},), strict=strict)
    targets = [node.target for node in exported.graph.nodes if node.op == "call_function"]
    assert OPERATORS["topk"] in targets
    assert torch.ops.aten.topk.default not in targets
    before = planted.answers
    x = tensor(20, 11)
    values, indices = exported.module()(x)
    assert planted.answers == before + 1
    assert torch.equal(values, torch.topk(x, 3).values + 1)
    assert torch.equal(indices, torch.topk(x, 3).indices)


def test_on_a_cpu_compilers_see_torchs_operator() -> None:
    torch.compiler.reset()
    exported = torch.export.export(Model(), (tensor(5, 11),))
    targets = [node.target for node in exported.graph.nodes if node.op == "call_function"]
    assert torch.ops.aten.topk.default in targets


def test_fakes_of_a_gpu() -> None:
    """Without one: what an exporter sees of a model that is on one."""
    with FakeTensorMode(), Dispatched() as mode:
        x = torch.empty(6, 50, device="cuda")
        values, indices = autotopk.topk(x, 4, 0)
        only = autotopk.topk_indices(x, 4)
    assert {*mode.seen} >= {*OPERATORS.values()}
    assert (values.shape, values.dtype, values.device.type) == ((4, 50), torch.float32, "cuda")
    assert (indices.shape, indices.dtype) == ((4, 50), torch.int64)
    assert (only.shape, only.dtype) == ((6, 4), torch.int32)


# Where they come from

FIRST = {
    "torch, then autotopk": "import torch, autotopk",
    "autotopk, then a function": "import autotopk, torch; autotopk.topk",
}


@pytest.mark.parametrize("backend", ["torch"], indirect=True)  # a process has its own
@pytest.mark.parametrize("order", FIRST)
def test_operators_are_there(order: str) -> None:
    """And what is behind them is imported when the first is used, with or without torch's autoloading."""
    ask = f"""{FIRST[order]}
import sys
before = "autotopk.runtime.api" in sys.modules
print(torch.ops.autotopk.topk(torch.arange(4.0), 2)[1].tolist(), torch.ops.autotopk.topk_indices.default.name(), before)
print(hasattr(torch.ops.autotopk, "none_such"))
"""
    for autoload in ("0", "1"):
        environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
        found = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, env=environment, check=True)
        wanted = f"[3, 2] autotopk::topk_indices {order.endswith('function')}"
        assert found.stdout.splitlines() == [wanted, "False"]


@pytest.mark.parametrize("backend", ["torch"], indirect=True)
def test_a_process_that_loads_an_exported_program_imports_torch_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not [one for one in entry_points(group="torch.backends") if one.name == "autotopk"]:
        pytest.skip("autotopk is not installed, so that torch does not know of it")
    monkeypatch.setattr(Operation, "_may_answer", lambda *_: True)
    torch.export.save(torch.export.export(Model(), (tensor(5, 11),)), tmp_path / "model.pt2")
    ask = (
        f"import torch; print(torch.export.load({str(tmp_path / 'model.pt2')!r}).module()(torch.ones(5, 11))[0].sum())"
    )
    found = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("tensor(30.")
