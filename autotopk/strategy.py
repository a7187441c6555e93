"""The plugin contract: what a strategy must answer so that it can be tuned, chosen, built and launched.

A strategy is one folder (or one module of another distribution) that defines an instance named `strategy`.
Third parties register theirs in the entry-point group `autotopk.strategies`.
"""

import ast
import hashlib
import importlib.util
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache, cached_property
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from autotopk.device import Device
from autotopk.errors import BuildError, UnsupportedProblemError
from autotopk.kernel import KernelSource
from autotopk.problem import Problem

if TYPE_CHECKING:
    from torch import Tensor

Config = Any
"""A frozen dataclass of plain values (int, str, bool, float): the knobs of one strategy."""


@dataclass(frozen=True)
class HostProgram:
    """A strategy's answer made of torch operators."""

    run: Callable[["Tensor"], tuple["Tensor", "Tensor"]]
    """(rows, cols) input to (rows, k) values and (rows, k) int64 indices, both contiguous."""
    is_torch_topk: bool = False
    """It is torch.topk as it stands: callers may hand it their own tensor and dimension instead."""


@dataclass(frozen=True)
class KernelProgram:
    """A strategy's answer made of one launch of one kernel."""

    source: KernelSource
    grid: tuple[int, int, int]
    """Blocks to launch; along x a multiple of the kernel's cluster."""


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
    code_dependencies: ClassVar[tuple[str, ...]] = ()
    """Packages outside its folder whose code its kernels are made of."""

    @abstractmethod
    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Why it cannot serve the problem on the device; empty means it can. Imports no compiler."""

    def reasons_unbuildable(self) -> list[str]:
        """Why none of its kernels can be compiled here: only those kept from before are served and tuned."""
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

    @cached_property
    def version(self) -> str:
        """A hash of its code and what it shares, without comments and docstrings: other versions' times are stale."""
        file = Path(inspect.getfile(type(self)))
        own = code_version(file.parent if file.name == "__init__.py" else file)
        if not self.code_dependencies:
            return own
        versions = [own, *map(package_version, self.code_dependencies)]
        return hashlib.sha256("|".join(versions).encode()).hexdigest()[:12]

    def parse_config(self, text: str) -> Config:
        """The configuration written by `config_json`. Raises UnsupportedProblemError on unknown or missing knobs."""
        try:
            values = json.loads(text)
            declared = {field.name for field in fields(self.config_type)}
            if not isinstance(values, dict) or set(values) != declared:
                raise ValueError(f"knobs are {sorted(declared)}")
            return self.config_type(**values)
        except (ValueError, TypeError) as error:
            raise UnsupportedProblemError(f"{text!r} is no configuration of {self.name}: {error}") from error


def config_json(config: Config) -> str:
    """The canonical text of a configuration: sorted keys, no spaces."""
    return json.dumps(asdict(config), sort_keys=True, separators=(",", ":"))


@cache
def code_version(path: Path) -> str:
    """Twelve hexadecimal digits over the syntax trees of a Python file, or of all files of a folder."""
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
        digest.update(f"{file.name}:{_tree(ast.parse(file.read_bytes()))}\n".encode())
    return digest.hexdigest()[:12]


def package_version(name: str) -> str:
    """`code_version` of an installed package or module, found without importing it. Raises BuildError if it is not."""
    spec = _found(name)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if spec is None or not (folders or spec.origin):
        raise BuildError(f"{name} has no source file")
    return code_version(Path(folders[0] if folders else str(spec.origin)))


def folder_version(module: str) -> str:
    """`code_version` of the folder that holds a module's file. Raises BuildError where there is none."""
    spec = _found(module)
    if spec is None or spec.origin is None:
        raise BuildError(f"{module} has no source file")
    return code_version(Path(spec.origin).parent)


def _found(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError:  # what it would be in
        return None


def _tree(node: object) -> str:
    """A syntax tree as text, without docstrings, and without empty fields: later Pythons add some."""
    if isinstance(node, list):
        return f"[{','.join(map(_tree, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = {name: value for name, value in ast.iter_fields(node) if value not in (None, [])}
    if isinstance(body := parts.get("body"), list) and _is_docstring(body[0]):
        parts["body"] = body[1:]
    return f"{type(node).__name__}({','.join(f'{name}={_tree(value)}' for name, value in parts.items())})"


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
