"""CUDA C++ as a compiler to the `Kernel` record: files of a strategy, their headers inlined, through nvcc."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autotopk.compilers import nvcc
from autotopk.compilers.device_code import package_folder
from autotopk.errors import BuildError
from autotopk.identity import digest
from autotopk.kernel import Kernel, KernelSource, Parameter, ParameterKind

_QUOTED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]*)".*$', re.MULTILINE)


@dataclass(frozen=True)
class CudaText:
    """CUDA source of one kernel, and how it wants to be launched, as in `Kernel`."""

    text: str
    symbol: str
    parameters: tuple[Parameter, ...]
    threads: int
    shared_bytes: int
    cluster: int = 1
    programmatic_launch: bool = False
    cooperative: bool = False
    include_dirs: tuple[Path, ...] = ()
    """Where headers of other projects are; only what TileLang generates needs any."""

    def compile(self, arch: int) -> Kernel:
        """Compile for a compute capability (90 for 9.0). Raises BuildError."""
        compiled = nvcc.compile(self.text, arch, self.symbol, self.include_dirs)
        return Kernel(
            cubin=compiled.cubin,
            symbol=self.symbol,
            parameters=self.parameters,
            threads=self.threads,
            shared_bytes=self.shared_bytes,
            cluster=self.cluster,
            cooperative=self.cooperative,
            programmatic_launch=self.programmatic_launch,
            registers=compiled.registers,
            spill_bytes=compiled.spill_bytes,
        )


@dataclass(frozen=True)
class CudaSource(KernelSource):
    """A file of CUDA C++ with one kernel, and everything that specialises it.

    The file declares `extern "C" __global__ void KERNEL(...)`. It includes, in quotes, files of its own package and of
    `code_dependencies`, and in angle brackets what comes with the compiler.
    """

    file: str
    """"package/file.cu": a package, and a file in its folder."""
    constants: tuple[tuple[str, int | bool | str], ...]
    """Macros that are defined before the text; booleans as 0 and 1."""
    parameters: tuple[tuple[str, ParameterKind], ...]
    """Names and kinds, in the order of the kernel's signature."""
    threads: int
    symbol: str
    """Name of the compiled kernel, which KERNEL is defined to be."""
    shared_bytes: int = 0
    cluster: int = 1
    cooperative: bool = False
    programmatic_launch: bool = False
    code_dependencies: tuple[str, ...] = ()
    """Packages whose files may be included, beside the own one."""

    def cache_key(self) -> str:
        """See KernelSource; nvcc's version is left out, as it is for TileLang."""
        return f"cuda {nvcc.FLAGS} {nvcc.switches()}|{self.recipe()}"

    def device_code(self) -> tuple[str, str]:
        """See KernelSource."""
        return self.file, text_digest(self.file, self.code_dependencies)

    def generate(self, arch: int) -> CudaText:
        """The text that nvcc gets, the same for every compute capability; needs no nvcc. Raises BuildError."""
        constants = {name: int(value) if isinstance(value, bool) else value for name, value in self.constants}
        defines = [f"#define {name} {value}\n" for name, value in {"KERNEL": self.symbol, **constants}.items()]
        return CudaText(
            text="".join([*defines, _whole(self.file, self.code_dependencies)]),
            symbol=self.symbol,
            parameters=tuple(Parameter(name, kind) for name, kind in self.parameters),
            threads=self.threads,
            shared_bytes=self.shared_bytes,
            cluster=self.cluster,
            programmatic_launch=self.programmatic_launch,
            cooperative=self.cooperative,
        )

    def compile(self, arch: int) -> Kernel:
        """See KernelSource."""
        try:
            return self.generate(arch).compile(arch)
        except (BuildError, OSError) as error:
            raise BuildError(f"{self.file}: {error}") from error


@cache
def text_digest(file: str, code_dependencies: Sequence[str]) -> str:
    """Of a file with all that it includes: who edits a header makes anew what includes it, and nothing else."""
    return digest(_whole(file, code_dependencies))


def _whole(file: str, code_dependencies: Sequence[str]) -> str:
    """A file with all that it includes in quotes. Raises BuildError."""
    package, _, name = file.partition("/")
    return _inlined(name, [package_folder(one) for one in (package, *code_dependencies)], set(), file)


def _inlined(name: str, folders: Sequence[Path], seen: set[Path], includer: str) -> str:
    """A file with every quoted include replaced by what it names, the first time; nothing the next times.

    Lines are counted anew in every file, so that the compiler names the file and the line.
    """
    places = [folder / name for folder in folders]
    found = next((place for place in places if place.is_file() and place.name != "__init__.py"), None)
    if found is None or not any(found.resolve().is_relative_to(folder.resolve()) for folder in folders):
        raise BuildError(
            f'{includer} includes "{name}", which is not beside it: device code includes device code alone, from its '
            "own folder and from the packages that `code_dependencies` names"
        )
    if found in seen:
        return ""
    seen.add(found)
    text = found.read_text().removesuffix("\n") + "\n"

    def include(match: re.Match[str]) -> str:
        line = text.count("\n", 0, match.start()) + 2
        return _inlined(match[1], folders, seen, name) + f'#line {line} "{name}"'

    return f'#line 1 "{name}"\n' + _QUOTED.sub(include, text)
