"""Runs CUDA kernels on the CPU and reports what a GPU would answer with wrong numbers, a fault, or silence.

A kernel's text is compiled by the host compiler with a call of the emulator's runtime at every load, store and basic
block. Threads are fibers, so a block's or a cluster's live at the same time, in an order that a seed chooses.
"""

import ctypes
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from autotopk.compilers.cuda import CudaText
from tests.emulator import build
from tests.emulator.records import LaunchRecord, TensorRecord
from tests.emulator.translate import TranslationError, parameters, translate

STEP_LIMIT = 2_000_000_000
"""Basic blocks of all threads together after which a launch counts as endless."""

_launching = threading.Lock()


class EmulatorError(Exception):
    """A kernel that cannot be translated, or that does what no kernel may; one sentence says what, who and where."""


@dataclass(frozen=True)
class Counters:
    """What a launch did."""

    steps: int
    """Basic blocks that were run."""
    switches: int
    barriers: int
    """Barriers of blocks, parts of blocks, clusters and grids that were passed."""
    programmatic_syncs: int
    """Threads' waits for the preceding launch."""
    programmatic_triggers: int


class Emulator:
    """A kernel that can be launched on CPU tensors.

    Args:
        source: the kernel's text and how it is launched.
        folder: where compiled kernels are kept; processes may share it.

    Raises:
        EmulatorError: the text has something that the emulator does not know, or does not compile.
    """

    def __init__(self, source: CudaText, folder: Path) -> None:
        self.source = source
        self._lines = source.text.splitlines()
        try:
            self._declared = parameters(source.text, source.symbol)
            self._path = build.kernel(translate(source.text, source.symbol, source.shared_bytes), folder)
        except (TranslationError, build.CompilerError) as error:
            raise EmulatorError(f"{source.symbol}: {error}") from error
        kinds = [_kind(declared.pointer, declared.bytes) for declared in self._declared]
        if kinds != [parameter.kind for parameter in source.parameters]:
            raise EmulatorError(f"{source.symbol} declares the parameters {kinds}, not those of its source record")
        runtime = ctypes.CDLL(str(build.runtime(folder)))
        library = ctypes.CDLL(str(self._path))
        self._entry = ctypes.cast(library.simt_entry, ctypes.c_void_p)
        self._run = runtime.simt_run

    def __call__(
        self,
        grid: int | tuple[int, ...],
        arguments: Mapping[str, Tensor | int],
        *,
        seed: int = 0,
        preempt: int = 0,
        races: bool = True,
        uninitialised: bool = True,
        step_limit: int = STEP_LIMIT,
    ) -> Counters:
        """Run the kernel to its end.

        Args:
            grid: blocks along x, or (x, y, z).
            arguments: CPU tensors and numbers by the names of the kernel's parameters; others are ignored. Of a tensor
                the bytes from its first to its last element may be touched; 0 is a null pointer.
            seed: chooses the order of threads and blocks where `preempt` is set.
            preempt: let another thread run after about so many accesses to shared memory, and run blocks in any order;
                with 0 each thread runs until it must wait.
            races: report accesses to shared memory that no barrier orders.
            uninitialised: report reads of shared memory that nobody wrote; it holds 0xCD.
            step_limit: basic blocks after which the launch counts as endless.

        Raises:
            EmulatorError: the kernel did what no kernel may. Tensors are left as they are then.
        """
        sizes = (grid,) if isinstance(grid, int) else grid
        x, y, z = (*sizes, 1, 1, 1)[:3]
        if min(x, y, z) < 1 or x % self.source.cluster:
            raise EmulatorError(f"a grid of {sizes} has no whole clusters of {self.source.cluster}")
        slots, tensors = self._bind(arguments)
        message = ctypes.create_string_buffer(4096)
        launch = LaunchRecord(
            grid=(x, y, z),
            threads=self.source.threads,
            cluster=self.source.cluster,
            cooperative=self.source.cooperative,
            programmatic=self.source.programmatic_launch,
            preempt=preempt,
            check_races=races,
            check_uninitialised=uninitialised,
            shared_bytes=self.source.shared_bytes,
            seed=seed,
            step_limit=step_limit,
            tensor_count=len(tensors),
            tensors=(TensorRecord * len(tensors))(*tensors),
            arguments=(ctypes.c_void_p * len(slots))(*(ctypes.addressof(slot) for slot in slots)),
            entry=self._entry,
            message=ctypes.cast(message, ctypes.c_char_p),
            message_bytes=len(message),
        )
        with _launching:
            failed = self._run(ctypes.byref(launch))
        if failed:
            raise EmulatorError(f"{self.source.symbol}: {self._explain(message.value.decode())}")
        return Counters(
            launch.steps, launch.switches, launch.barriers, launch.programmatic_syncs, launch.programmatic_triggers
        )

    def _bind(self, arguments: Mapping[str, Tensor | int]) -> tuple[list[Any], list[TensorRecord]]:
        """A slot of memory per parameter, and what the kernel may touch."""
        slots: list[Any] = []
        tensors = []
        for parameter, declared in zip(self.source.parameters, self._declared, strict=True):
            value = arguments[parameter.name]
            if isinstance(value, Tensor):
                if parameter.kind != "pointer" or value.device.type != "cpu":
                    raise EmulatorError(f"{parameter.name} is a {parameter.kind}, not a tensor on {value.device}")
                slots.append(ctypes.c_uint64(value.data_ptr()))
                tensors.append(TensorRecord(value.data_ptr(), span(value), not declared.const, parameter.name.encode()))
            elif parameter.kind == "pointer":
                if value:
                    raise EmulatorError(f"{parameter.name} is a pointer: a tensor or 0, not {value}")
                slots.append(ctypes.c_uint64(0))
            else:
                slots.append((ctypes.c_int64 if parameter.kind == "int64" else ctypes.c_int32)(value))
        return slots, tensors

    def _explain(self, message: str) -> str:
        """The message with lines of the text in place of addresses of code."""

        def line(match: re.Match[str]) -> str:
            numbers = build.lines_of(self._path, int(match[1], 16))
            lines = [(number, self._lines[number - 1].strip()) for number in numbers]
            told = [
                (number, text) for number, text in lines if not text.startswith("asm")
            ]  # who calls assembly tells more
            return "at line {} ({})".format(*(told or lines)[0]) if lines else "somewhere"

        return re.sub(r"@\{([0-9a-f]+)\}", line, message)


def span(tensor: Tensor) -> int:
    """Bytes from the first to the last element of a tensor, both included."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def _kind(pointer: bool, size: int) -> str:
    return "pointer" if pointer else f"int{8 * size}"
