"""Whole programs in the emulator: several launches one after another, and the scratch memory that they share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from autotopk.compilers.cuda import CudaSource, CudaText
from autotopk.kernel import KernelSource, scalars
from autotopk.problem import Problem
from autotopk.program import KernelProgram
from tests.emulator.emulator import Emulator

GARBAGE = 0xA5
"""Every byte of scratch memory that is not declared zeroed."""


@dataclass
class Sequences:
    """Runs programs whose kernels are CUDA text; a kernel is compiled once."""

    folder: Path
    """Where compiled kernels are kept; processes may share it."""
    loaded: dict[KernelSource, Emulator] = field(default_factory=dict)

    def run(
        self,
        program: KernelProgram,
        problem: Problem,
        tensors: Mapping[str, Tensor | int],
        *,
        seed: int = 0,
        preempt: int = 0,
    ) -> None:
        """Launch everything, with `x`, `values` and `indices` among the tensors.

        Raises:
            EmulatorError: a kernel did what no kernel may.
            AssertionError: scratch memory that must be left zero is not, or the program uses the outputs as scratch.
        """
        given = scalars(problem)
        scratch = {}
        for one in program.scratch:
            fill = 0 if one.zeroed else GARBAGE
            scratch[one.name] = torch.full((one.bytes.of(given),), fill, dtype=torch.uint8)
        for launch in program.launches:
            self.emulator(launch.source)(
                launch.blocks(problem), {**given, **tensors, **scratch}, seed=seed, preempt=preempt
            )
        for one in program.scratch:
            assert not one.zeroed or not scratch[one.name].any(), f"scratch {one.name} is not left zero"

    def emulator(self, source: KernelSource) -> Emulator:
        """The kernel of a source in CUDA C++."""
        assert isinstance(source, CudaSource)
        if source not in self.loaded:
            text: CudaText = source.generate(90)
            self.loaded[source] = Emulator(text, self.folder)
        return self.loaded[source]
