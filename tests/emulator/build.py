"""The host compiler: the runtime once, a kernel once per text, kept in a folder that processes may share."""

import hashlib
import platform
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.emulator.translate import FILE

HERE = Path(__file__).parent
COMPILER = "g++"
RUNTIME_FLAGS = ("-std=c++20", "-O2", "-w", "-fPIC", "-shared")
KERNEL_FLAGS = (
    "-std=c++20",
    "-O1",
    "-gdwarf-4",
    "-fno-var-tracking",  # lines are asked for alone: a third of the time
    "-fno-var-tracking-assignments",
    "-Werror=frame-larger-than=65536",  # a fiber's stack is not much larger
    "-fPIC",
    "-shared",
    "-fno-exceptions",
    "-fno-strict-aliasing",
    "-fwrapv",
    # Calls that the linker can send to the runtime.
    "-fno-builtin-memcpy",
    "-fno-builtin-memmove",
    "-fno-builtin-memset",
    "-ffp-contract=off",
    # An unused part of a vector is loaded all the same, so that its bounds are checked.
    "-fno-tree-sra",
    "-fno-tree-fre",
    # Every load and store, basic block and doubtful operation calls the runtime.
    "-fsanitize=thread",
    "--param=tsan-instrument-func-entry-exit=0",
    "--param=tsan-distinguish-volatile=1",
    "-fsanitize=alignment,bounds,integer-divide-by-zero,shift-exponent",
    "-fno-sanitize-recover=all",
    "-fsanitize-coverage=trace-pc",
)
LINK_FLAGS = ("-Wl,-rpath,$ORIGIN", "-Wl,--wrap=memcpy", "-Wl,--wrap=memmove", "-Wl,--wrap=memset")


class CompilerError(RuntimeError):
    """The host compiler is missing, or refuses a translated kernel."""


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\0")
    return digest.hexdigest()[:24]


@cache
def _headers() -> str:
    """A hash of every C++ file of the emulator, and of what machine it is for."""
    return _digest(
        platform.machine(),
        *(path.read_bytes() for path in sorted(HERE.rglob("*.[hc]*")) if path.suffix in (".h", ".cpp")),
    )


def runtime(folder: Path) -> Path:
    """The runtime's library in the folder, compiled if it is not there."""
    path = folder / f"libsimt-{_digest(_headers(), *RUNTIME_FLAGS)}.so"
    if not path.exists():
        _compile([*RUNTIME_FLAGS, f"-Wl,-soname,{path.name}", str(HERE / "runtime" / "runtime.cpp")], path)
    return path


def kernel(code: str, folder: Path) -> Path:
    """The library of a translated kernel in the folder, compiled if it is not there. Raises CompilerError."""
    library = runtime(folder)
    path = folder / f"kernel-{_digest(code, _headers(), *KERNEL_FLAGS, *LINK_FLAGS)}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            source = Path(scratch) / "kernel.cpp"
            source.write_text(code)
            # Objects first, then linked without -fsanitize=thread, which would bring the sanitizer's own runtime.
            item = Path(scratch) / "kernel.o"
            compile_flags = [flag for flag in KERNEL_FLAGS if flag != "-shared"]
            _compile([*compile_flags, "-c", f"-I{HERE}", str(source)], item)
            _compile(["-shared", str(item), str(library), *LINK_FLAGS], path)
    return path


def _compile(arguments: list[str], output: Path) -> None:
    """Run the compiler and put its output in place whole, whoever else does the same."""
    if shutil.which(COMPILER) is None:
        raise CompilerError(f"the emulator needs {COMPILER}")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
        made = Path(scratch) / output.name
        done = subprocess.run([COMPILER, *arguments, "-o", str(made)], capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if re.search(r"error:|undefined|ld:", line)]
            raise CompilerError("; ".join(errors[:3]) or done.stderr[-500:])
        made.replace(output)


def lines_of(library: Path, offset: int) -> list[int]:
    """Lines of the kernel's text at an address of its code, of the innermost function that the text holds first."""
    if shutil.which("addr2line") is None:
        return []
    command = ["addr2line", "-i", "-e", str(library), hex(offset - 1)]  # the call, not what follows it
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return [int(number) for number in re.findall(rf"{re.escape(FILE)}:(\d+)", answer)]
