"""PyTorch's own operators: torch.topk, a full sort, or topk of chunks and then of the survivors.

Routing is done around a topk, and what is to be stable, or of windows, by one of ranks, or a sort.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import log2
from typing import ClassVar, Literal

import torch
from torch import Tensor

from autotopk.candidate import Knob
from autotopk.device import Device
from autotopk.problem import DTYPE_BYTES, KTH, MERGED, WEIGHTS, WINDOWS, Problem
from autotopk.program import HostProgram
from autotopk.strategies._costs import operators
from autotopk.strategies.torch_fallback.chunked import chunked_topk, sort_topk, torch_topk
from autotopk.strategies.torch_fallback.merged import merge_by_torch
from autotopk.strategies.torch_fallback.routed import route
from autotopk.strategies.torch_fallback.selected import windows_by_torch
from autotopk.strategies.torch_fallback.stable import stable_topk
from autotopk.strategy import Features, Strategy

CHUNKS = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
"""Chunk sizes of the two-level method, in elements."""


@dataclass(frozen=True)
class TorchConfig:
    """Which operators run."""

    method: Literal["topk", "sort", "chunked"] = "topk"
    chunk: int = 0
    """Elements of a chunk; 0 unless the method is chunked."""

    def __post_init__(self) -> None:
        if self.method not in ("topk", "sort", "chunked"):
            raise ValueError(f"method {self.method!r} is not topk, sort or chunked")
        if (self.chunk > 0) != (self.method == "chunked"):
            raise ValueError(f"chunk={self.chunk} does not fit method {self.method!r}")


_config = lru_cache(1 << 8)(TorchConfig)  # a call where nothing was tuned asks for several


def kth_by_torch(x: Tensor, k: int, largest: bool) -> tuple[Tensor, Tensor]:
    """The k-th of every row of (rows, cols), (rows, 1) both."""
    found = torch.kthvalue(x, x.shape[1] - k + 1 if largest else k, dim=1, keepdim=True)
    return found.values, found.indices


class TorchFallback(Strategy):
    """Serves everything that torch.topk serves."""

    name = "torch_fallback"
    config_type = TorchConfig
    preference: ClassVar[int] = -1000
    features = Features(
        answers=frozenset({"pairs", WINDOWS, KTH, MERGED, *WEIGHTS}), stable=frozenset(DTYPE_BYTES), embeddable=True
    )

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Never unsupported."""
        return []

    def shortlist(self, problem: Problem, device: Device) -> Sequence[TorchConfig]:
        """Chunks are worth a try where they discard at least half of a row; on a GPU of one size, since kernels win.

        torch.sort on CUDA puts NaNs whose sign bit is set below everything in some of its kernels, torch.topk above.
        """
        if problem.operation or problem.stable:
            return [_config("topk")]
        chunked = [_config("chunked", chunk) for chunk in CHUNKS if 2 * problem.k <= chunk <= problem.cols // 2]
        if device.type == "cuda" and chunked:
            usual = (8 * problem.k * problem.cols) ** 0.5  # as many survivors as a chunk has elements, and some
            chunked = [min(chunked, key=lambda one: abs(log2(one.chunk / usual)))]
        sorts = device.type == "cpu" or "float" not in problem.dtype
        return [_config("topk"), *([_config("sort")] if sorts else []), *chunked]

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """The methods, and sizes of chunks also between those of the shortlist."""
        return {
            "method": ("topk", "sort", "chunked"),
            "chunk": (0, *sorted({*CHUNKS, *(3 * one // 2 for one in CHUNKS)})),
        }

    def valid(self, config: TorchConfig, problem: Problem, device: Device) -> bool:
        """Chunks that discard something, and the operators of the shortlist."""
        if not problem.operation and not problem.stable and config.method == "chunked":
            return 2 * problem.k <= config.chunk <= problem.cols // 2
        return config in self.shortlist(problem, device)

    def heuristic(self, problem: Problem, device: Device) -> TorchConfig:
        """torch.topk as it is."""
        return TorchConfig("topk")

    def terms(self, config: TorchConfig, problem: Problem, device: Device) -> tuple[float, ...]:
        """See `_costs.operators`."""
        return operators.terms(config.method, config.chunk, problem, device)

    def program(self, config: TorchConfig, problem: Problem, device: Device) -> HostProgram:
        """The operators, bound to k and the order, or to the rule of a router."""
        if problem.operation == WINDOWS:
            return HostProgram(partial(windows_by_torch, largest=problem.largest), is_torch_topk=True)
        if problem.operation == KTH:
            return HostProgram(partial(kth_by_torch, k=problem.k, largest=problem.largest), is_torch_topk=True)
        if problem.operation == MERGED:
            merge = partial(merge_by_torch, dtype=getattr(torch, problem.dtype), largest=problem.largest)
            return HostProgram(merge, is_torch_topk=True)
        if problem.routing is not None:
            return HostProgram(partial(route, k=problem.k, routing=problem.routing), is_torch_topk=True)
        runs: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
            "topk": stable_topk if problem.stable else torch_topk,
            "sort": sort_topk,
            "chunked": partial(chunked_topk, chunk=config.chunk),
        }
        bound = partial(runs[config.method], k=problem.k, largest=problem.largest, sorted=problem.sorted)
        return HostProgram(bound, is_torch_topk=config.method == "topk")


strategy = TorchFallback()
