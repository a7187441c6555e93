"""What is compiled from C++ for models that run without Python: the operator's library, and a program that runs models.

Both are compiled once, with c++ (or what CXX names), into the cache folder.
"""

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from autotopk import settings
from autotopk.errors import BuildError
from autotopk.files import make_private
from autotopk.identity import digest
from autotopk.torch_topk import torch_topk

SOURCES = Path(__file__).parent / "cpp"
TORCH = Path(torch.__file__).parent

LIBRARY = "libautotopk_aot.so"
"""Models name it as what they need: it is found where it is loaded already, or where the loader looks for libraries."""

STABLE = "-DTORCH_TARGET_VERSION=0x020A000000000000"
"""The library is for torch 2.10 and all later ones."""

TIMEOUT_S = 300.0
"""Longest run of the compiler, in seconds."""


def library(more: Sequence[str] = ()) -> Path:
    """The C++ operator, a shared library that runs with torch 2.10 and later; `more` are options of the compiler.

    Raises BuildError.
    """
    files = ("operator.cpp", "bound.cpp", "plans.cpp")
    options = ("-O2", "-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{LIBRARY}", STABLE, *more)
    return _built(LIBRARY, files, options, ("torch_cpu",))


def link_option() -> str:
    """What follows -l on the command line that links a model with the library, and with torch's C++ library.

    Raises BuildError.
    """
    path = library()
    return shlex.join([path.stem.removeprefix("lib"), f"-L{path.parent}", *_cxx_library()])


def runner() -> Path:
    """The program `run_model`, for this installation of torch. Raises BuildError."""
    libraries = ["torch", "torch_cpu", "c10"]
    libraries += ["torch_cuda"] if torch.version.cuda else []
    return _built(
        "run_model",
        ("run_model.cpp",),
        ("-O1", f"-Wl,-rpath,{TORCH / 'lib'}", "-Wl,--unresolved-symbols=ignore-in-shared-libs"),
        libraries,
    )


def load(*plans: Path | str) -> None:
    """Make the C++ operator one of this process, to export models with it and to run them from Python.

    Args:
        plans: files that it reads besides those that AUTOTOPK_PLANS names.

    Raises:
        BuildError: the library cannot be compiled or loaded, or a file of plans cannot be used.
    """
    library = _loaded()
    for path in plans:
        if library.autotopk_add_plans(os.fsencode(path)):
            raise BuildError(f"{path} cannot be used, see standard error")


@cache
def _loaded() -> ctypes.CDLL:
    """The library. Raises BuildError."""
    try:
        found = ctypes.CDLL(str(library()))
    except OSError as error:
        raise BuildError(f"the operator's library cannot be loaded: {error}") from error
    torch.library.register_fake("autotopk::aot_topk", _sizes)
    return found


def _sizes(
    input: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = torch_topk(input, k, dim, largest, sorted)
    return values, indices


def _cxx_library() -> list[str]:
    """The C++ library that torch has loaded, to be linked before the compiler's own.

    Some compilers link theirs statically. Two in a process break std::locale, and so every std::regex of torch.
    """
    with open("/proc/self/maps") as maps:
        return sorted({line.split(maxsplit=5)[-1].strip() for line in maps if "/libstdc++.so." in line})[:1]


def _built(name: str, files: Sequence[str], options: Sequence[str], libraries: Sequence[str]) -> Path:
    """A file of that name in a folder for its sources, compiler options, CXX and torch."""
    contents = [(SOURCES / file).read_text() for file in sorted(os.listdir(SOURCES))]
    asked = os.environ.get("CXX", "")
    folder = settings.cache_dir() / "aot" / digest(name, *contents, *options, asked, torch.__version__, str(TORCH))
    path = folder / name
    if path.is_file():
        return path
    compiler = asked or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        raise BuildError(f"{name} cannot be compiled: no C++ compiler is on the path")
    make_private(folder)
    includes = [
        part for place in ("", "torch/csrc/api/include") for part in ("-isystem", str(TORCH / "include" / place))
    ]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / name
        command = [
            compiler,
            "-std=c++20",
            *options,
            *includes,
            *(str(SOURCES / file) for file in files),
            "-o",
            str(made),
        ]
        linked = [*_cxx_library(), *(f"-l{one}" for one in libraries), "-ldl"]
        command += [f"-L{TORCH / 'lib'}", "-Wl,--no-as-needed", *linked]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
        except subprocess.CalledProcessError as error:
            raise BuildError(f"{name} cannot be compiled: {error.stderr.strip()[-2000:]}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"{name} cannot be compiled: {error}") from error
        os.replace(made, path)
    return path
