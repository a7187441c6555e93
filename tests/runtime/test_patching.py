"""`autotopk.patch`: torch.topk answered by our kernels, eager and compiled, and back again."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor import compile_fx, config  # noqa: F401
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx.experimental.proxy_tensor import make_fx

import autotopk
from autotopk import autoload
from autotopk.runtime import patching
from tests.runtime.conftest import Planted
from tests.runtime.modes import Dispatched
from tests.runtime.same import outcome, unwarned

pytestmark = [unwarned, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture
def patched(planted: Planted) -> Iterator[Planted]:
    """The CPU's torch.topk is ours, which is the planted strategy's."""
    with autotopk.patch("cpu"):
        yield planted


def tensor(*shape: int, requires_grad: bool = False) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(4)).requires_grad_(requires_grad)


def expected(x: Tensor, k: int, dim: int = -1, *, largest: bool = True) -> tuple[Tensor, Tensor]:
    values, indices = torch.sort(x.detach(), dim=dim, descending=largest)
    return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)


def same(found: Any, wanted: Any) -> bool:
    return all(map(torch.equal, found, wanted))


def test_every_way_to_ask_for_it(patched: Planted) -> None:
    x = tensor(5, 11)
    assert type(torch.topk(x, 3)) is torch.return_types.topk
    assert same(torch.topk(x, 3), expected(x, 3))
    assert same(x.topk(3, dim=0, largest=False), expected(x, 3, 0, largest=False))
    assert same(torch.ops.aten.topk(x, 3), expected(x, 3))
    assert patched.answers == 4
    out = torch.empty(5, 3), torch.empty(5, 3, dtype=torch.int64)
    assert torch.topk(x, 3, out=out).values is out[0]
    assert same(out, expected(x, 3))
    assert patched.answers == 5
    grown = torch.empty(0), torch.empty(0, dtype=torch.int64)
    with pytest.warns(UserWarning, match="resized"):
        torch.topk(torch.cat([x, x]), 3, out=(torch.empty(2), torch.empty(2, dtype=torch.int64)))
    torch.topk(x, 3, out=grown)  # torch's own, which makes room
    assert same(grown, expected(x, 3))
    assert same(autotopk.topk(x, 3), expected(x, 3))
    assert patched.answers == 6


def test_what_torch_refuses_is_refused_in_its_words(planted: Planted) -> None:
    x = tensor(5, 11)
    questions = ((x, 12), (x, -1), (x, 3, 2), (x, 2.0), (x, True), (x.to(torch.complex64), 2), (x > 0, 2), (x.sum(), 2))
    before = [outcome(torch.topk, *question) for question in questions]
    with autotopk.patch("cpu"):
        assert [outcome(torch.topk, *question) for question in questions] == before
    assert planted.answers == 0


def test_what_is_above_it_keeps_working(patched: Planted) -> None:
    x = tensor(5, 11, requires_grad=True)
    values = torch.topk(x, 3).values
    assert patched.answers == 1
    assert values.grad_fn is not None
    assert values.grad_fn.name() == "TopkBackward0"
    values.sum().backward()
    assert x.grad is not None
    assert x.grad.sum() == 15
    data = x.detach()
    assert same(torch.vmap(lambda row: tuple(torch.topk(row, 3)))(data), expected(data, 3))
    forward = torch.func.jvp(lambda x: torch.topk(x, 3).values, (data,), (2 * data,))
    assert torch.equal(forward[1], 2 * forward[0])
    assert torch.func.grad(lambda x: torch.topk(x, 3).values.sum())(data).sum() == 15
    with Dispatched() as mode:
        torch.topk(data, 3)
    assert mode.seen == [torch.ops.aten.topk.default]
    assert patched.answers == 5


def test_it_is_restored(planted: Planted) -> None:
    x = tensor(5, 11)
    kernel = torch.library.get_kernel("aten::topk", "CPU")
    first = autotopk.patch("cpu")

    def fail() -> None:
        with autotopk.patch("cpu"):
            torch.topk(x, 3)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    torch.topk(x, 3)
    assert planted.answers == 2
    second = autotopk.patch("cpu")
    for _ in range(3):
        first.restore()
    torch.topk(x, 3)
    assert planted.answers == 3  # the second is in force
    second.restore()
    assert same(torch.topk(x, 3), expected(x, 3))
    assert planted.answers == 3
    assert type(torch.library.get_kernel("aten::topk", "CPU")) is type(kernel)
    assert config.post_grad_custom_post_pass is None
    with autotopk.patch("cpu"):
        torch.topk(x, 3)
    assert planted.answers == 4


def test_threads(patched: Planted) -> None:
    def ask(seed: int) -> bool:
        x = torch.randn(4, 9, generator=torch.Generator().manual_seed(seed))
        return same(torch.topk(x, 3), expected(x, 3))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(64)))
    assert patched.answers == 64


def test_without_a_kernel_of_the_device_nothing_changes() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    before = config.post_grad_custom_post_pass
    with autotopk.patch():
        assert config.post_grad_custom_post_pass is before
        assert torch.topk(tensor(3, 4), 2).values.shape == (3, 2)
    with pytest.raises(ValueError, match="'tpu' is neither"):
        autotopk.patch("tpu")


# Compiled graphs


class Noting(CustomGraphPass):
    """What another library put there."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: torch.fx.graph.Graph) -> None:
        self.graphs += 1

    def uuid(self) -> str:
        return "noting"


@pytest.fixture
def other() -> Iterator[Noting]:
    """A pass that was there before, and no cache of graphs."""
    noting = Noting()
    with config.patch({"post_grad_custom_post_pass": noting, "force_disable_caches": True}):
        yield noting


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_graphs(planted: Planted, dynamic: bool, other: Noting) -> None:
    x = tensor(6, 13)

    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = torch.topk(x * 2, k=4, dim=1, largest=False)
        return values + 1, indices

    wanted = model(x)
    torch.compiler.reset()
    with autotopk.patch("cpu"):
        compiled = torch.compile(model, fullgraph=True, dynamic=dynamic)
        assert same(compiled(x), wanted)
        assert planted.answers == 1
        assert other.graphs == 1
    assert config.post_grad_custom_post_pass is other
    torch.compiler.reset()
    assert same(torch.compile(model, fullgraph=True, dynamic=dynamic)(x), wanted)
    assert planted.answers == 1


def test_the_pass_puts_our_operator_in_torchs_place(planted: Planted) -> None:
    """With the arguments as they stand, by position and by name; of another device's tensors it lets go."""
    x = tensor(6, 13)

    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        values, _ = torch.ops.aten.topk.default(x, 4, 1, False)
        return values, torch.ops.aten.topk.default(self=x, k=2, dim=0)[1]

    traced = make_fx(model, tracing_mode="fake")(x)
    assert patching.replace_topk(traced.graph, "cuda") == 0
    assert patching.replace_topk(traced.graph, "cpu") == 2
    traced.recompile()
    targets = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    assert targets.count(torch.ops.autotopk.topk.default) == 2
    assert torch.ops.aten.topk.default not in targets
    before = planted.answers
    assert same(traced(x), model(x))
    assert planted.answers == before + 2


@pytest.mark.usefixtures("planted")
def test_caches_of_graphs_tell_patches_apart(other: Noting, monkeypatch: pytest.MonkeyPatch) -> None:
    with autotopk.patch("cpu"):
        ours: Any = config.post_grad_custom_post_pass
        first = ours.uuid()
        assert isinstance(first, str)
        assert ours.uuid() == first
        monkeypatch.setattr(other, "uuid", lambda: "another")
        assert ours.uuid() != first
        monkeypatch.setattr(other, "uuid", lambda: None)
        assert ours.uuid() is None
        last = Noting()
        config.post_grad_custom_post_pass = last  # on top of ours
    assert config.post_grad_custom_post_pass is last
    monkeypatch.setattr(other, "uuid", lambda: "noting")
    assert ours.uuid() != first
    graph = torch.fx.Graph()
    ours(graph)
    assert other.graphs == 1


BEFORE_INDUCTOR = """
import sys, torch, autotopk
first = autotopk.patch("cpu")
second = autotopk.patch("cpu")
print("torch._inductor" in sys.modules)
import torch._inductor.compile_fx
from torch._inductor import config
print(type(config.post_grad_custom_post_pass).__name__)
first.restore(); second.restore()
print(config.post_grad_custom_post_pass)
for name in [name for name in sys.modules if name.startswith("torch._inductor.compile_fx")]:
    del sys.modules[name]
watches = len(sys.meta_path)
autotopk.patch("cpu").restore()
print(len(sys.meta_path) - watches)
"""


def test_inductor_is_not_imported_before_it_is_needed() -> None:
    found = subprocess.run([sys.executable, "-c", BEFORE_INDUCTOR], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["False", "Replace", "None", "0"]
    assert found.stderr == ""


def test_what_fails_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """And Inductor is imported nevertheless."""
    monkeypatch.delitem(sys.modules, patching.COMPILER)
    with autotopk.patch("cpu"):
        monkeypatch.setattr(patching, "compiled_pass", lambda _: 1 / 0)
        with pytest.warns(autotopk.AutotopkWarning, match="compiled graphs keep torch.topk: ZeroDivisionError"):
            importlib.import_module(patching.COMPILER)
        assert config.post_grad_custom_post_pass is None


# Programs that cannot be edited

ASK = "import sys, torch; print('autotopk.runtime.patching' in sys.modules, 'autotopk.runtime.api' in sys.modules)"


@pytest.mark.parametrize(("word", "loaded"), [("1", "True True"), ("0", "False False"), ("", "False False")])
def test_the_environment_asks_for_it(word: str, loaded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not [one for one in entry_points(group="torch.backends") if one.name == "autotopk"]:
        pytest.skip("autotopk is not installed, so that torch does not know of it")
    monkeypatch.setenv("AUTOTOPK_PATCH", word)
    found = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n")[0] == loaded
    assert found.stderr == ""


def test_whatever_fails_torch_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTOPK_PATCH", "on")
    monkeypatch.setattr(patching, "patch", lambda: 1 / 0)
    with pytest.warns(autotopk.AutotopkWarning, match="torch goes without autotopk: ZeroDivisionError"):
        autoload.autoload()
