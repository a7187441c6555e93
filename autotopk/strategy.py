"""The plugin contract: what a strategy must provide so that it can be tuned, chosen, built and launched.

A strategy is one folder (or one module of another distribution) that defines an instance named `strategy`.
Third parties register theirs in the entry-point group `autotopk.strategies`.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from autotopk.candidate import Candidate, Knob, knobs_json, parse_knobs
from autotopk.device import Device
from autotopk.errors import UnsupportedProblemError
from autotopk.identity import Identity, digest, python_digest
from autotopk.kernel import KernelSource
from autotopk.problem import Problem

if TYPE_CHECKING:
    from torch import Tensor

Config = Any
"""A frozen dataclass of plain values (int, str, bool, float): the knobs of one strategy."""

RENAMED = {"space": "shortlist", "default": "heuristic"}
"""Methods that had other names before version 0.2."""


@dataclass(frozen=True)
class HostProgram:
    """A program made of torch operators."""

    run: Callable[["Tensor"], tuple["Tensor", "Tensor"]]
    """(rows, cols) input to (rows, k) values and (rows, k) int64 indices, both contiguous."""
    is_torch_topk: bool = False
    """It is torch.topk as it stands: callers may hand it their own tensor and dimension instead."""

    def source_digest(self, arch: int) -> str:
        """Digest of the Python file that defines `run`, as code."""
        if self.is_torch_topk:
            return digest("torch.topk")
        run: Any = self.run
        while isinstance(run, partial):
            run = run.func
        try:
            return python_digest(Path(inspect.getfile(inspect.unwrap(run))))
        except TypeError:  # not of Python's making
            return digest(f"{type(run).__module__}.{type(run).__qualname__}")

    def identity(self, arch: int) -> Identity:
        """Operators are not compiled: their code is their source."""
        source = self.source_digest(arch)
        return Identity(source, source)


@dataclass(frozen=True)
class KernelProgram:
    """A program made of one launch of one kernel."""

    source: KernelSource
    grid: tuple[int, int, int]
    """Blocks to launch; along x a multiple of the kernel's cluster."""

    def source_digest(self, arch: int) -> str:
        """Digest of what is compiled for a compute capability (90 for 9.0), and of the grid. Raises BuildError."""
        return digest(self.source.cache_path(arch).stem, self.grid)

    def identity(self, arch: int) -> Identity:
        """With the compiled kernel, from the cache or compiled now. Raises BuildError."""
        return self.identity_as(self.source.load(arch).code, arch)

    def identity_as(self, code: str, arch: int) -> Identity:
        """With a kernel of that `Kernel.code`."""
        return Identity(self.source_digest(arch), digest(code, self.grid))


Program = HostProgram | KernelProgram


class Strategy(ABC):
    """One way to compute top-k. Instances hold no state: everything follows from the arguments."""

    name: ClassVar[str]
    """How databases and users call it; a Python identifier."""
    config_type: ClassVar[type]
    """The frozen dataclass of its knobs."""
    preference: ClassVar[int] = 0
    """Where nothing was measured, the able strategy of the highest preference runs."""
    embeddable: ClassVar[bool] = False
    """Whether AOTInductor can compile it into a model."""
    indices_alone: ClassVar[bool] = False
    """Whether its kernels can write int32 indices and no values, see `Problem.indices_only`."""
    side_by_side: ClassVar[bool] = False
    """Whether it reads and writes rows that are side by side, see `Problem`."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for old, new in RENAMED.items():
            if old in vars(cls):
                raise TypeError(f"{cls.__name__}.{old} is of autotopk before 0.2: the method is called {new} now")

    @abstractmethod
    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Why it cannot serve the problem on the device; empty means it can. Imports no compiler."""

    def reasons_unbuildable(self) -> list[str]:
        """Why none of its kernels can be compiled here: only those in the cache are served and tuned."""
        return []

    @abstractmethod
    def shortlist(self, problem: Problem, device: Device) -> Sequence[Config]:
        """Every configuration worth measuring: finite, valid points only, in a stable order."""

    @abstractmethod
    def heuristic(self, problem: Problem, device: Device) -> Config | None:
        """A sane configuration where nothing was measured; None where torch.topk is the better bet."""

    @abstractmethod
    def program(self, config: Config, problem: Problem, device: Device) -> Program:
        """What to run for an able problem. Cheap: nothing is compiled yet."""

    def valid(self, config: Config, problem: Problem, device: Device) -> bool:
        """Whether a configuration, perhaps measured on another shape, may serve this problem."""
        return config in self.shortlist(problem, device)

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """The values of every knob that are worth measuring; by default those that occur in the shortlist."""
        shortlist = self.shortlist(problem, device)
        names = [field.name for field in fields(self.config_type)]
        return {name: list(dict.fromkeys(getattr(config, name) for config in shortlist)) for name in names}

    def lattice(self, problem: Problem, device: Device) -> Iterator[Config]:
        """The shortlist, then all other valid combinations of the knobs; of those that make one program, the first."""
        offered: set[object] = set()
        for config in self.shortlist(problem, device):
            offered |= {config, self._made(config, problem, device)}
            yield config
        knobs = self.knobs(problem, device)
        for values in product(*knobs.values()):
            try:
                config = self.config_type(**dict(zip(knobs, values, strict=True)))
            except ValueError:
                continue
            if config in offered or not self.valid(config, problem, device):
                continue
            if (made := self._made(config, problem, device)) not in offered:
                offered.add(made)
                yield config

    def _made(self, config: Config, problem: Problem, device: Device) -> object:
        """What tells programs apart; the configuration where making one fails, which is the tuner's to record."""
        try:
            return self.program(config, problem, device)
        except Exception:  # a strategy may be anyone's code
            return config

    def candidate(self, config: Config) -> Candidate:
        """The strategy in one of its configurations, by name."""
        return Candidate(self.name, knobs_json(asdict(config)))

    def parse_config(self, text: str) -> Config:
        """The configuration of a `Candidate`. Raises UnsupportedProblemError on unknown, missing or bad knobs."""
        try:
            knobs = parse_knobs(text)
            declared = {field.name for field in fields(self.config_type)}
            if set(knobs) != declared:
                raise ValueError(f"knobs are {sorted(declared)}")
            return self.config_type(**knobs)
        except (ValueError, TypeError) as error:
            raise UnsupportedProblemError(f"{text!r} is no configuration of {self.name}: {error}") from error
