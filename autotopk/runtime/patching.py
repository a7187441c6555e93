"""torch.topk answered by our kernels in programs that nobody edits.

Eager calls: torch's kernel of one device type is overridden, below autograd, transforms and modes, which keep working.
Compiled graphs: a pass of Inductor puts our operator in the place of torch's.
"""

import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType, TracebackType
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet

from autotopk.errors import warn
from autotopk.identity import digest
from autotopk.runtime import declared, operators
from autotopk.runtime.planning import Plan
from autotopk.runtime.state import default

Asked = tuple[Tensor, int, int, bool, bool]
"""Input, k, dim, largest, sorted."""

FILES = (__file__, operators.__file__)
"""What decides how a compiled graph comes out."""

COMPILER = "torch._inductor.compile_fx"
"""Inductor, which takes a second to import: only programs that compile do."""

OVERLOADS = ("topk", "topk.values")
"""What torch.topk, Tensor.topk and `out=` come down to."""


class Patch:
    """A patch in force, from `patch` on until `restore`, or the end of a `with` block; restored once, however often."""

    def __init__(self, device_type: str) -> None:
        self._device_type = device_type
        self._restored = False

    def restore(self) -> None:
        """Let torch.topk be as it was, unless another patch of the device type is in force."""
        with _Override.changing:
            if not self._restored:
                self._restored = True
                _Override.of(self._device_type).drop()

    def __enter__(self) -> "Patch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.restore()


def patch(device_type: str = "cuda") -> Patch:
    """Let torch.topk, `Tensor.topk` and `out=` run our kernels in all of the process, eager and compiled.

    Autograd, vmap, jvp and modes are above it, and as before. Graphs that were compiled before or after keep what they
    were compiled with. Where this torch has no kernel for the device type, nothing changes.

    Args:
        device_type: "cuda" or "cpu".

    Returns:
        What restores it, also as a context manager. Patches may overlap: the last one to be restored counts.

    Raises:
        ValueError: another device type.
    """
    if device_type not in ("cuda", "cpu"):
        raise ValueError(f"device_type={device_type!r} is neither 'cuda' nor 'cpu'")
    with _Override.changing:
        _Override.of(device_type).take()
    return Patch(device_type)


class _Thread(threading.local):
    """What is true of one thread."""

    asked = False
    """Ours was asked, and has not answered yet."""


class _Override:
    """Our kernels in the place of torch's, for one device type, as often as it was asked for."""

    changing: ClassVar[threading.RLock] = threading.RLock()
    _known: ClassVar[dict[str, "_Override"]] = {}

    @classmethod
    def of(cls, device_type: str) -> "_Override":
        return cls._known.setdefault(device_type, cls(device_type))

    def __init__(self, device_type: str) -> None:
        self._device_type = device_type
        self._key = device_type.upper()
        self._count = 0
        self._library: Any = None
        self._pass: Any = None
        self._watch: _Watch | None = None
        self._kernels: dict[str, Any] = {}
        self._keys = DispatchKeySet(getattr(DispatchKey, self._key))
        self._here = _Thread()

    def take(self) -> None:
        if self._count == 0:
            self._begin()
        self._count += 1

    def _begin(self) -> None:
        try:
            self._kernels = {name: torch.library.get_kernel(f"aten::{name}", self._key) for name in OVERLOADS}
        except RuntimeError:  # this torch is built without it
            return
        if COMPILER in sys.modules:
            self._pass = compiled_pass(self._device_type)
        self._library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="(?s).*overrid")
            self._library.impl("topk", self._fresh, self._key)
            self._library.impl("topk.values", self._into, self._key)
        if self._pass is not None:
            self._pass.begin()
        else:
            self._watch = _Watch(COMPILER, self._enter_graphs)
            sys.meta_path.insert(0, self._watch)

    def _enter_graphs(self) -> None:
        with self.changing:
            if self._library is None:  # restored meanwhile
                return
            try:
                self._pass = compiled_pass(self._device_type)
                self._pass.begin()
            except Exception as error:  # would be the end of an import
                warn(f"compiled graphs keep torch.topk: {error!r}")

    def drop(self) -> None:
        self._count -= 1
        if self._count or self._library is None:
            return
        self._library._destroy()
        if self._pass is not None:
            self._pass.end()
        elif self._watch in sys.meta_path:
            sys.meta_path.remove(self._watch)
        self._library = self._pass = self._watch = None

    def _fresh(self, self_: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
        found = NotImplemented if self._here.asked else declared.pairs.ask(self_, k, dim, largest, sorted, None, True)
        if found is NotImplemented:  # torch's own, which `of_torch` would ask for
            return self._kernels["topk"].call_boxed(self._keys, self_, k, dim, largest, sorted)
        if found is None or type(found) is Plan:
            return self._answer((self_, k, dim, largest, sorted), None)
        return found

    def _into(
        self,
        self_: Tensor,
        k: int,
        dim: int = -1,
        largest: bool = True,
        sorted: bool = True,
        *,
        values: Tensor,
        indices: Tensor,
    ) -> Any:
        out = values, indices
        found = NotImplemented if self._here.asked else declared.pairs.ask(self_, k, dim, largest, sorted, out, True)
        if found is NotImplemented:
            own = self._kernels["topk.values"].call_boxed
            return own(self._keys, self_, k, dim, largest, sorted, values=values, indices=indices)
        if found is None or type(found) is Plan:
            return self._answer((self_, k, dim, largest, sorted), out)
        return found

    def _answer(self, asked: Asked, out: tuple[Tensor, Tensor] | None) -> Any:
        """Ours, which torch's own answers if it asks for torch.topk."""
        self._here.asked = True
        try:
            return declared.pairs(*asked, out, True)
        finally:
            self._here.asked = False


class _Watch(MetaPathFinder):
    """Calls back once a module has been imported."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self._then()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def compiled_pass(device_type: str) -> Any:
    """A pass that puts our operator in the place of torch's in compiled graphs, after the pass that was there."""
    from torch._inductor import config
    from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

    class Replace(CustomGraphPass):
        def __init__(self) -> None:
            self.before: Any = None
            self.active = False

        def begin(self) -> None:
            self.before, self.active = config.post_grad_custom_post_pass, True
            config.post_grad_custom_post_pass = self

        def end(self) -> None:
            """Out of the chain, or idle in it where another pass came after."""
            self.active = False
            if config.post_grad_custom_post_pass is self:
                config.post_grad_custom_post_pass = self.before

        def __call__(self, graph: torch.fx.graph.Graph) -> None:
            for one in self._earlier():
                one(graph)
            if self.active:
                replace_topk(graph, device_type)

        def uuid(self) -> Any:
            """None, which keeps graphs out of caches, where the pass before has none."""
            before = [getattr(one, "uuid", lambda: None)() for one in self._earlier()]
            winners = [str(winner) for known in default.known().values() for winner in known]
            return None if None in before else digest(get_hash_for_files(FILES), self.active, *before, *winners)

        def _earlier(self) -> Sequence[Any]:
            if isinstance(self.before, (list, tuple)):
                return self.before
            return () if self.before is None else (self.before,)

    return Replace()


def replace_topk(graph: torch.fx.graph.Graph, device_type: str) -> int:
    """Put our operator in the place of torch's wherever inputs are on the device type; returns how often."""
    replaced = 0
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.topk.default):
        input = node.args[0] if node.args else node.kwargs.get("self")
        fake = input.meta.get("val") if isinstance(input, torch.fx.Node) else None
        if isinstance(fake, Tensor) and fake.device.type == device_type:
            node.target = torch.ops.autotopk.topk.default
            node.kwargs = {("input" if name == "self" else name): value for name, value in node.kwargs.items()}
            replaced += 1
    return replaced
