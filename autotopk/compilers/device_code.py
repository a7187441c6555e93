"""The files that a kernel is compiled from: found without importing them, and hashed byte by byte.

Device code lives in files of its own. Those of a kernel are all files, of any suffix, in the folder of its module, and
in the packages that its source names as `code_dependencies`; a package's `__init__.py` is host code and not among them.
Those of a kernel in CUDA C++, which no module defines, are what its file includes, see `cuda.text_digest`.
"""

import ast
import hashlib
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path

from autotopk.errors import BuildError
from autotopk.identity import DIGITS

_NOT_CODE = ("__pycache__", "__init__.py")


@cache
def device_digest(module: str, code_dependencies: Sequence[str] = ()) -> str:
    """Digest of the bytes of the files behind a kernel. Raises BuildError where a module has no file."""
    return _digest(_files(module, code_dependencies))


def package_folder(name: str) -> Path:
    """Where the files of a package are, which is not imported. Raises BuildError where it is no package."""
    spec = _spec(name)
    if spec.submodule_search_locations is None:
        raise BuildError(f"{name} is a module, not a package")
    return Path(str(spec.origin)).parent


def check_imports(module: str, code_dependencies: Sequence[str] = ()) -> None:
    """Raise BuildError where a kernel imports code that is not hashed with it, directly or through other device code.

    Looked at are imports from autotopk and from the module's own distribution: compilers and libraries have versions.
    """
    hashed = {file.resolve() for _, file in _files(module, code_dependencies)}
    own = {"autotopk", module.partition(".")[0]}
    seen: set[Path] = set()
    reached = [Path(str(_spec(module).origin)).resolve()]
    while reached:
        file = reached.pop()
        seen.add(file)
        for imported in _imports(file):
            if imported.partition(".")[0] not in own:
                continue
            found = _file(imported)
            if found not in hashed:
                raise BuildError(
                    f"{file.name} imports {imported}, which is not beside it: device code imports device code "
                    "alone, from its own folder and from the packages that `code_dependencies` names"
                )
            if found not in seen:
                reached.append(found)


def _digest(files: Iterable[tuple[str, Path]]) -> str:
    hashed = hashlib.sha256()
    for name, file in files:
        content = file.read_bytes()
        hashed.update(f"{name}:{len(content)}:".encode() + content)
    return hashed.hexdigest()[:DIGITS]


def _files(module: str, code_dependencies: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """(name that is the same on every machine, file), in a fixed order."""
    spec = _spec(module)
    if spec.submodule_search_locations is not None or not spec.parent:  # a package, or a module in none
        yield module, Path(str(spec.origin))
    if spec.parent:
        yield from _folder(spec.parent, Path(str(spec.origin)).parent)
    for name in code_dependencies:
        spec = _spec(name)
        if spec.submodule_search_locations is None:
            yield name, Path(str(spec.origin))
        else:
            yield from _folder(name, Path(str(spec.origin)).parent)


def _folder(name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not any(part in _NOT_CODE for part in file.relative_to(folder).parts):
            yield f"{name}/{file.relative_to(folder).as_posix()}", file


def _spec(module: str) -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # what it would be in
        spec = None
    if spec is None or not spec.origin or not Path(spec.origin).is_file():
        raise BuildError(f"{module} has no source file")
    return spec


def _file(module: str) -> Path | None:
    """The file of a module; None where the name is not a module's."""
    try:
        return Path(str(_spec(module).origin)).resolve()
    except BuildError:
        return None


def _imports(file: Path) -> Iterator[str]:
    """Every module that a file imports: of `from a import b` it is a.b where that is a module, else a."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{name.name}" for name in node.names]
            yield from (name if _file(name) else node.module for name in inner)
