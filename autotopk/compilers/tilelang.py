"""TileLang as a compiler to the `Kernel` record: TileLang writes CUDA source, nvcc compiles it; neither needs a GPU."""

import importlib
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from autotopk.compilers import nvcc
from autotopk.compilers.cuda import CudaText
from autotopk.compilers.device_code import check_imports, device_digest
from autotopk.errors import BuildError
from autotopk.files import scratch_folder
from autotopk.kernel import (
    Kernel,
    KernelSource,
    Parameter,
    ParameterKind,
    distribution_version,
    scalars,
)
from autotopk.problem import Problem

PASSES = {
    "tl.disable_shared_memory_reuse": True,
    "tl.disable_thread_storage_sync": True,
    "tl.disable_safe_memory_legalize": True,
}
"""Kernels place their own barriers and check their own bounds; buffers that other blocks read must not be merged."""

INSTALL = 'pip install "tilelang>=0.1.15"'

_environment = threading.Lock()
_KINDS: dict[str, ParameterKind] = {"handle": "pointer", "int32": "int32", "int64": "int64"}


@dataclass(frozen=True)
class TileLangSource(KernelSource):
    """A function that builds a TileLang kernel, with everything that specialises it."""

    shares_work: ClassVar[bool] = True

    function: str
    """"package.module:name" of a function that, called with the constants by keyword, returns a `T.prim_func`."""
    constants: tuple[tuple[str, int | bool | str], ...]
    symbol: str = ""
    """Name of the compiled kernel, which TileLang puts "_kernel" behind; that of the `T.prim_func` by default."""
    code_dependencies: tuple[str, ...] = ()
    """Packages outside the builder's folder whose device code the kernel is made of."""

    def cache_key(self) -> str:
        """See KernelSource.

        The compilers' versions are not part of it: the machine that runs a cached kernel may have neither. TileLang's
        is in the file's name (see `cache_path`); nvcc's would cost a process to ask for, and is left out.
        """
        return f"tilelang {nvcc.FLAGS} {nvcc.switches()} {PASSES}|{self.recipe()}"

    def device_code(self) -> tuple[str, str]:
        """See KernelSource."""
        return " ".join((self._module, *self.code_dependencies)), device_digest(self._module, self.code_dependencies)

    def cache_path(self, arch: int) -> Path:
        """As KernelSource says, one file per version of TileLang; where TileLang is absent, a file of any."""
        path = super().cache_path(arch)
        version = distribution_version("tilelang")
        own = path.with_stem(f"{path.stem}-{version}")
        if version != "absent":
            return own
        return max(path.parent.glob(f"{path.stem}-*{path.suffix}"), default=own)

    def generate(self, arch: int) -> CudaText:
        """CUDA source for a compute capability; needs no nvcc. Any failure inside TileLang becomes a BuildError."""
        with _scratch_folder():
            try:
                import tilelang
            except (ImportError, OSError) as error:
                raise BuildError(f"TileLang cannot be imported: {error}") from error
            try:
                target = tilelang.tvm.target.Target({"kind": "cuda", "arch": f"sm_{nvcc.architecture(arch)}"})
                with target, tilelang.tvm.transform.PassContext(opt_level=3, config=PASSES):
                    artifact = tilelang.lower(
                        self._prim_func(), target=target, enable_host_codegen=False, enable_device_compile=False
                    )
                return _cuda_text(artifact)
            except Exception as error:  # the builder, TileLang's passes and TVM each raise types of their own
                raise BuildError(f"{self.function} for sm_{arch}: {type(error).__name__}: {error}") from error

    def compile(self, arch: int) -> Kernel:
        """See KernelSource."""
        return next(self.compile_for([arch]))

    def compile_for(self, archs: Sequence[int]) -> Iterator[Kernel]:
        """See KernelSource. TileLang, which takes most of the time, writes the same for all on which a kernel runs."""
        if reasons := reasons_unbuildable():
            raise BuildError(f"{self.function} cannot be compiled: {'; '.join(reasons)}")
        check_imports(self._module, self.code_dependencies)
        text = self.generate(archs[0])
        for arch in archs:
            try:
                yield text.compile(arch)
            except BuildError as error:
                raise BuildError(f"{self.function}: {error}") from error

    @property
    def _module(self) -> str:
        return self.function.partition(":")[0]

    def _prim_func(self) -> Any:
        builder = getattr(importlib.import_module(self._module), self.function.partition(":")[2])
        built = builder(**dict(self.constants))
        return built.with_attr("global_symbol", self.symbol) if self.symbol else built


def reasons_unbuildable() -> list[str]:
    """Why no TileLang kernel can be compiled here, each with what to install; empty where they can. Imports nothing."""
    absent = distribution_version("tilelang") == "absent"
    reasons = [f"tilelang is not installed ({INSTALL})"] if absent else []
    return reasons + nvcc.reasons_missing()


@contextmanager
def _scratch_folder() -> Iterator[None]:
    """TileLang makes folders in the user's home when imported, and fails where it cannot: give it another place."""
    with (
        _environment,  # threads share it
        scratch_folder("tilelang") as folder,
    ):
        before = os.environ.get("TILELANG_CACHE_DIR")
        os.environ["TILELANG_CACHE_DIR"] = str(folder)
        try:
            yield
        finally:
            if before is None:
                del os.environ["TILELANG_CACHE_DIR"]
            else:
                os.environ["TILELANG_CACHE_DIR"] = before


def _include_dirs() -> tuple[Path, ...]:
    import tilelang

    package = Path(tilelang.__file__).parent
    return package / "src", package / "3rdparty" / "cutlass" / "include"


def _cuda_text(artifact: Any) -> CudaText:
    functions = list(artifact.device_mod.functions.values())
    if len(functions) != 1:
        raise ValueError(f"a launch runs one kernel, not {len(functions)}")
    attributes = dict(functions[0].attrs.items())
    extents = {str(axis): extent for axis, extent in attributes["thread_extent"].items()}
    return CudaText(
        text=str(artifact.kernel_source),  # TVM's own strings must not be copied deeply
        symbol=str(attributes["global_symbol"]),
        parameters=tuple(map(_parameter, functions[0].params)),
        threads=_along_x("threads", [extents.get(f"threadIdx.{axis}", 1) for axis in "xyz"]),
        shared_bytes=int(attributes.get("dyn_shared_memory_buf", 0)),
        cluster=_along_x("clusters", attributes.get("cluster_dims", [1])),
        programmatic_launch=bool(attributes.get("has_cuda_pdl_sync", False)),
        cooperative=bool(attributes.get("use_cooperative_groups", False)),
        include_dirs=_include_dirs(),
    )


def _along_x(what: str, sizes: Any) -> int:
    x, *others = map(int, sizes)
    if any(size != 1 for size in others):
        raise ValueError(f"{what} extend along x alone, not {[x, *others]}")
    return x


def _parameter(variable: Any) -> Parameter:
    """A parameter by its name in the vocabulary of launches; TileLang may add "_handle" or a number to a name."""
    name = re.sub(r"(_handle)?(_\d+)?$", "", str(variable.name))
    kind = _KINDS.get(str(variable.dtype))
    known = kind == "pointer" or name in scalars(Problem.contiguous(1, 1, 1))  # tensors are bound by name
    if kind is None or not known:
        raise ValueError(f"no launch provides the parameter {variable.name} ({variable.dtype})")
    return Parameter(name, kind)
