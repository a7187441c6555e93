"""NVIDIA's compiler: where it is, and CUDA source to a cubin, on machines with and without a GPU."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from autotopk.errors import BuildError
from autotopk.files import scratch_folder

FLAGS = ("-std=c++17", "-O3", "-w", "-Xptxas=-v", "-cubin")
"""What the machine code depends on beside the source and the architecture; -v prints registers and spills."""

SWITCHES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
"""Environment variables by which nvcc compiles other machine code."""

TIMEOUT_S = 100.0
"""Longest run of nvcc, in seconds."""

INSTALL = 'pip install "cuda-toolkit[cccl,crt,cudart,nvcc,nvvm]>=13"'
"""From any folder; the extra `nvcc` in pyproject.toml."""


class Compiled(NamedTuple):
    """Machine code, and what a thread of it takes."""

    cubin: bytes
    registers: int
    spill_bytes: int
    """Bytes of registers stored to, or loaded from, local memory, the greater; arrays of the source do not count."""


def find() -> Path | None:
    """The nvcc of CUDA_HOME or CUDA_PATH, else of PATH, of a pip package, or of the usual folder; runs nothing."""
    return next((path for path in _places() if path.is_file() and os.access(path, os.X_OK)), None)


def _places() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            yield Path(home) / "bin" / "nvcc"
    if path := shutil.which("nvcc"):
        yield Path(path)
    spec = importlib.util.find_spec("nvidia")  # a namespace: many packages install into it, none is imported
    for folder in (spec and spec.submodule_search_locations) or ():
        yield from sorted(Path(folder).glob("cu[0-9]*/bin/nvcc"), reverse=True)
        yield Path(folder) / "cuda_nvcc" / "bin" / "nvcc"
    yield Path("/usr/local/cuda/bin/nvcc")


def version() -> str:
    """Of the nvcc that is found, as in "13.0.88"; "absent" where none runs."""
    try:
        told = subprocess.run([str(find()), "--version"], capture_output=True, text=True, timeout=TIMEOUT_S).stdout
    except (OSError, subprocess.SubprocessError):
        return "absent"
    found = re.search(r"\bV([0-9.]+)", told)
    return found[1] if found else "absent"


def switches() -> dict[str, str]:
    """Those of `SWITCHES` that are set."""
    return {name: os.environ[name] for name in SWITCHES if name in os.environ}


def reasons_missing() -> list[str]:
    """What prevents nvcc from running, each with what to install; empty where it can run."""
    reasons = []
    if find() is None:
        reasons.append(f"nvcc is not found ({INSTALL}, or let CUDA_HOME or PATH lead to one)")
    named = any("ccbin" in os.environ.get(variable, "") for variable in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"))
    if not (named or os.environ.get("NVCC_CCBIN") or shutil.which("g++")):
        reasons.append("g++ is not found (apt-get install g++)")
    return reasons


def architecture(arch: int) -> str:
    """NVIDIA's name of what is compiled for a compute capability (90 for 9.0), with the features of 9.0 alone for 9.0.

    There is no other 9.x; code for any other runs on all later ones of the same major number.
    """
    return f"{arch}a" if arch == 90 else str(arch)


def compile(text: str, arch: int, symbol: str, include_dirs: Sequence[Path] = ()) -> Compiled:
    """Compile CUDA source.

    Args:
        text: the source, with one `extern "C" __global__` function named `symbol`.
        arch: a compute capability, 90 for 9.0.
        symbol: the function whose registers and spills are asked for.
        include_dirs: where its headers are.

    Raises:
        BuildError: nvcc or its host compiler is missing, refuses the source, or takes longer than TIMEOUT_S.
    """
    if reasons := reasons_missing():
        raise BuildError("; ".join(reasons))
    name = architecture(arch)
    with scratch_folder("nvcc") as folder:
        (folder / "kernel.cu").write_text(text)
        target = f"arch=compute_{name},code=sm_{name}"
        includes = [f"-I{path}" for path in include_dirs]
        code = _run([str(find()), *FLAGS, "-gencode", target, *includes, "-o", "kernel.cubin", "kernel.cu"], folder)
        log = (folder / "log").read_text(errors="replace")
        if code:
            raise BuildError(f"nvcc for sm_{name}: {_complaint(log) or f'exit status {code}'}")
        return Compiled((folder / "kernel.cubin").read_bytes(), *_resources(log, symbol))


def _run(command: list[str], folder: Path) -> int:
    """Run in a folder that takes the output and every temporary file, and end with all children."""
    environment = os.environ | {"TMPDIR": str(folder), "LC_ALL": "C"}
    try:
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process,
        ):
            try:
                return process.wait(TIMEOUT_S)
            except BaseException:  # also Ctrl-C: nvcc's own children would outlive it
                os.killpg(process.pid, signal.SIGKILL)
                raise
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"nvcc took longer than {TIMEOUT_S:g} s") from error
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be run: {error}") from error


def _complaint(log: str) -> str:
    """The first errors of a failed run, each with the lines that show where."""
    lines = log.strip().splitlines()
    first = next((index for index, line in enumerate(lines) if re.search(r"error|fatal", line, re.IGNORECASE)), 0)
    text = "\n".join(lines[first : first + 8])
    if "preprocess host compiler" in log:
        return f"its host compiler does not run; install g++\n{text}"
    return text


def _resources(log: str, symbol: str) -> tuple[int, int]:
    """Registers and spilled bytes as ptxas reports them; zeros where it reports otherwise."""
    found = re.search(
        rf"Function properties for {re.escape(symbol)}\n.*?(\d+) bytes spill stores, (\d+) bytes spill loads"
        r".*?Used (\d+) registers",
        log[log.find(f"Compiling entry function '{symbol}'") :],
        re.DOTALL,
    )
    if not found:
        return 0, 0
    stores, loads, registers = map(int, found.groups())
    return registers, max(stores, loads)
