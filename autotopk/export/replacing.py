"""Top-k in an exported program, replaced by an operator of ours where that can answer without Python."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from autotopk.device import Device, device_of
from autotopk.errors import SelectionError, UnsupportedProblemError
from autotopk.export import embedding, native, plans, serving
from autotopk.export.calls import Call, arguments, calls, routers
from autotopk.export.serving import Access, Asked, Plan, Terms
from autotopk.strategy import Strategy

Way = Literal["triton", "library"]
"""How a model gets our kernels: as Triton kernels that AOTInductor compiles into it, or as compiled kernels that a C++
library launches."""

SHIM = (
    "AOTITorchError aoti_torch_{}_aot_topk(AtenTensorHandle, int64_t, int64_t, int32_t, int32_t, AtenTensorHandle*,"
    " AtenTensorHandle*)"
)
"""The library's C functions, which compiled models can call in place of torch's dispatcher."""


@dataclass(frozen=True)
class Site:
    """A top-k of a program, and what became of it."""

    node: str
    asked: str
    by: str = ""
    """What serves it now: a family with its configuration, so many plans, or "nothing to find"."""
    reason: str = ""
    """Why torch.topk serves it still, or some of its sizes."""

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.node}: {self.asked}: {self.by or 'torch.topk'}{reason}"


@dataclass(frozen=True)
class Replaced:
    """What `replace_topk` did; printed, a line for every top-k."""

    way: Way
    sites: tuple[Site, ...]
    plans: tuple[Plan, ...] = ()
    """What the library needs to know; none for Triton."""
    arch: int = 0
    """Compute capability of the kernels, 90 for 9.0."""
    inductor_configs: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """For `aoti_compile_and_package`: the library is called directly. Without them it is by torch's dispatcher."""

    def write_plans(self, path: Path | str) -> Path:
        """Write the file that the library reads, by its name in AUTOTOPK_PLANS. Raises BuildError, OSError."""
        plans.write(Path(path), self.plans, self.arch)
        return Path(path)

    def __str__(self) -> str:
        return "\n".join(map(str, self.sites)) or "no top-k found"


def replace_topk(
    program: ExportedProgram, way: Way = "library", *, device: Device | None = None, always: bool = False
) -> Replaced:
    """Have our kernels serve the top-k of an exported program when AOTInductor has compiled it.

    `aten.topk`, and the operators that `autotopk.topk` and `topk_indices` leave in a graph, become operators of ours
    where those can answer; elsewhere they become, or stay, `aten.topk`. Calls of `autotopk.topk_softmax` stay as they
    are, and need Python.

    Args:
        program: changed in place.
        way: "library", which wants the C++ library and a file of plans beside the model; "triton", which wants nothing,
            and has fewer kernels: short rows and small k.
        device: whose kernels; by default that of each top-k's tensor.
        always: replace also what torch.topk is expected to be faster at, or what the library has no plan for.

    Returns:
        What became of every top-k, and why.

    Raises:
        SelectionError: the way is none of these. BuildError: the library cannot be compiled.
    """
    if way not in get_args(Way):
        raise SelectionError(f"way={way!r} is not one of {', '.join(get_args(Way))}")
    replacing = _Embedding(device, always) if way == "triton" else _Calling(device, always)
    sites = (*map(replacing.site, calls(program)), *map(_router, routers(program)))
    found = tuple(dict.fromkeys(replacing.plans))
    return Replaced(way, sites, found, replacing.arch, replacing.inductor_configs)


def _router(node: Node) -> Site:
    """A call of `autotopk.topk_softmax`, which stays."""
    x, k, *_ = arguments(node)
    known = x.meta["val"]
    return Site(
        node.name, f"{tuple(known.shape)} {known.dtype} k={k}", "autotopk.topk_softmax", "its operator needs Python"
    )


class _Replacing:
    """One way to replace."""

    def __init__(self, device: Device | None, always: bool) -> None:
        self.always, self._device = always, device
        self.plans: list[Plan] = []
        self.arch = 0
        self.inductor_configs: dict[str, Any] = {}

    def site(self, call: Call) -> Site:
        """Replace a call, or leave it to torch.topk."""
        name, told = call.node.name, f"{tuple(call.input.shape)} {call.input.dtype} k={call.k}"
        try:
            told = str(call.asked())
            by, reason = self.replace(call)
        except UnsupportedProblemError as error:
            by, reason = "", str(error)
            if call.node.target is not torch.ops.aten.topk.default:
                call.become(torch.ops.aten.topk.default, call.largest, call.sorted)
        return Site(name, told, by, reason)

    def replace(self, call: Call) -> tuple[str, str]:
        """What serves it now, and what does not. Raises UnsupportedProblemError where the call is to stay torch's."""
        raise NotImplementedError

    def device(self, call: Call) -> Device:
        """Whose kernels are to serve. Raises UnsupportedProblemError."""
        if call.input.device.type != "cuda":
            raise UnsupportedProblemError(f"it is on a {call.input.device.type.upper()}")
        found = self._device or device_of(call.input.device)
        self.arch = found.arch
        return found

    def ways(self, call: Call) -> list[tuple[Asked, bool]]:
        """The rows as kernels may find them, and whether their dimension is made the last for that."""
        if call.inner == 1:
            return [(call.asked(row_stride=self.row_stride(call)), False)]
        beside = [(call.asked(inner=call.inner), False)] if type(call.inner) is int else []
        return [*beside, (call.asked(), True)]

    def row_stride(self, call: Call) -> int | None:
        """Of rows that are not contiguous and need not be copied."""
        return None


class _Calling(_Replacing):
    """By calls of the library."""

    def __init__(self, device: Device | None, always: bool) -> None:
        super().__init__(device, always)
        native.load()
        self._target = torch.ops.autotopk.aot_topk.default
        self.inductor_configs = {
            "aot_inductor.custom_ops_to_c_shims": {self._target: [SHIM.format(one) for one in ("cpu", "cuda")]},
            "aot_inductor.custom_op_libs": [native.link_option()],
        }

    def replace(self, call: Call) -> tuple[str, str]:
        """See _Replacing."""
        try:
            if call.is_empty:
                raise UnsupportedProblemError("there is nothing to find")
            device = self.device(call)
            for asked, last in self.ways(call):
                if found := list(serving.plans(asked, Terms(device, _any, self.always))):
                    self.plans += found
                    strided = asked.row_stride is not None
                    call.become(self._target, call.largest, call.sorted, contiguous=not strided, last=last)
                    if asked.fixed:
                        return found[0].label, ""
                    return f"{len(found)} plans", "torch.topk serves sizes without a plan"
            raise UnsupportedProblemError("torch.topk is expected to be as fast, or no kernel is there")
        except UnsupportedProblemError as error:
            if not self.always or type(call.k) is not int:
                raise
            call.become(self._target, call.largest, call.sorted)
            return "the library, by torch.topk", str(error)

    def row_stride(self, call: Call) -> int | None:
        """See _Replacing."""
        return call.row_stride


class _Embedding(_Replacing):
    """By Triton kernels inside the model."""

    def replace(self, call: Call) -> tuple[str, str]:
        """See _Replacing."""
        device, target = self.device(call), torch.ops.autotopk.embedded_topk.default
        if call.is_empty:
            call.become(target, call.largest, "", contiguous=True)
            return "nothing to find", ""
        for asked, last in self.ways(call):
            terms = Terms(device, _embeddable, self.always, build=False, race=asked.fixed)  # AOTInductor compiles it
            if asked.rows.most is None or asked.cols.most is None:
                raise UnsupportedProblemError("its sizes have no upper bound: give the Dim a max")
            if (found := serving.whole(asked, _access(call, asked, last), terms)) is not None:
                call.become(target, call.largest, embedding.recipe(found), contiguous=True, last=last)
                return found.label, ""
        raise UnsupportedProblemError(
            "no embeddable family serves all its sizes, or torch.topk is expected to be faster"
        )


def _access(call: Call, asked: Asked, last: bool) -> Access:
    """How an embedded kernel may read: copies begin at multiples of 16 bytes, and so do tensors without an offset."""
    offset = call.input.storage_offset()
    if call.contiguous and not last and not (type(offset) is int and offset * asked.itemsize % 16 == 0):
        return Access()
    return asked.accesses[0] if asked.cols.fixed else Access(1, asked.inner == 1)


def _any(strategy: Strategy) -> bool:
    return True


def _embeddable(strategy: Strategy) -> bool:
    return strategy.features.embeddable
