"""Triton as a compiler to the `Kernel` record, on machines with and without a GPU."""

import importlib
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotopk.compilers import nvcc
from autotopk.compilers.device_code import check_imports, device_digest
from autotopk.errors import BuildError
from autotopk.files import scratch_folder
from autotopk.kernel import Kernel, KernelSource, Parameter, ParameterKind, distribution_version

_renaming = threading.Lock()
_KINDS: dict[str, ParameterKind] = {"i32": "int32", "i64": "int64"}

SWITCHES = (
    "DISABLE_LLVM_OPT",
    "DISABLE_MMA_V3",
    "DISABLE_MMA_V5",
    "DISABLE_PTXAS_OPT",
    "LLVM_EXTRACT_DI_LOCAL_VARIABLES",
    "LLVM_PASS_PLUGIN_PATH",
    "PTXAS_OPTIONS",
    "TRITON_DEFAULT_FP_FUSION",
    "TRITON_DISABLE_LINE_INFO",
    "TRITON_DISABLE_RESHAPE_ENCODING_INFERENCE",
    "TRITON_ENABLE_ASAN",
    "TRITON_ENABLE_EXPERIMENTAL_CONSAN",
    "TRITON_F32_DEFAULT",
    "TRITON_INSTRUMENTATION_MODE",
    "TRITON_KERNEL_OVERRIDE",
    "TRITON_LIBDEVICE_PATH",
    "TRITON_MOCK_PTX_VERSION",
    "TRITON_OVERRIDE_ARCH",
    "TRITON_OVERRIDE_DIR",
    "TRITON_PASS_PLUGIN_PATH",
    "TRITON_PLUGIN_PATHS",
    "TRITON_PTXAS_BLACKWELL_PATH",
    "TRITON_PTXAS_PATH",
    "TRITON_SWAP_MIR",
)
"""Environment variables by which Triton compiles other machine code."""


@dataclass(frozen=True)
class TritonSource(KernelSource):
    """A `@triton.jit` function with everything that specialises it."""

    function: str
    """"package.module:name" of the kernel."""
    signature: tuple[tuple[str, str], ...]
    """Run-time parameters in order, with Triton's types: ("x", "*i32"), ("rows", "i32"), ..."""
    constants: tuple[tuple[str, int | bool | str], ...]
    """The `tl.constexpr` parameters."""
    divisors: tuple[tuple[str, int], ...] = ()
    """Powers of two known to divide a parameter (bytes for pointers): what makes loads wide."""
    warps: int = 4
    stages: int = 1
    """Of Triton's software pipelining."""
    symbol: str = ""
    """Name of the compiled kernel; that of the function by default."""
    code_dependencies: tuple[str, ...] = ()
    """Packages outside the kernel's folder whose device code it is made of."""

    def cache_key(self) -> str:
        """See KernelSource."""
        switches = {name: os.environ[name] for name in SWITCHES if name in os.environ}
        return f"triton {distribution_version('triton')} {switches}|{self.recipe()}"

    def device_code(self) -> tuple[str, str]:
        """See KernelSource."""
        return " ".join((self._module, *self.code_dependencies)), device_digest(self._module, self.code_dependencies)

    def compile(self, arch: int) -> Kernel:
        """See KernelSource. Any failure inside the compiler becomes a BuildError."""
        try:
            import triton
            from triton.backends.compiler import GPUTarget
            from triton.compiler import ASTSource
        except ImportError as error:
            raise BuildError(f"Triton cannot be imported: {error}") from error
        check_imports(self._module, self.code_dependencies)
        kernel = self._jit_function()
        if self.symbol:
            kernel = triton.jit(kernel.fn, repr=lambda _: self.symbol)
        names = kernel.arg_names
        types = dict(self.signature)
        source = ASTSource(
            fn=kernel,
            signature={name: types.get(name, "constexpr") for name in names},
            constexprs={(names.index(name),): value for name, value in self.constants},
            attrs={(names.index(name),): [["tt.divisibility", value]] for name, value in self.divisors if value > 1},
        )
        try:
            with triton.knobs.compilation.scope(), _as_nvcc_names_architectures(arch):
                triton.knobs.compilation.always_compile = True  # kernels in Triton's own cache may have other symbols
                compiled = triton.compile(
                    source,
                    target=GPUTarget("cuda", arch, 32),
                    options={"num_warps": self.warps, "num_stages": self.stages},
                )
        except Exception as error:  # MLIR, LLVM and ptxas each raise types of their own
            raise BuildError(f"{self.function} for sm_{arch}: {type(error).__name__}: {error}") from error
        if compiled.metadata.global_scratch_size:
            raise BuildError(f"{self.function} asks for global scratch memory, which launches do not provide")
        parameters = [Parameter(name, _KINDS.get(kind, "pointer")) for name, kind in self.signature]
        # Triton appends pointers to scratch memory of its own; how many depends on its version
        hidden = _entry_parameters(compiled.asm["ptx"]) - len(parameters)
        parameters += [Parameter("null", "pointer")] * hidden
        registers, spill_bytes = _resources(compiled.asm["cubin"])
        return Kernel(
            cubin=compiled.asm["cubin"],
            symbol=compiled.metadata.name,
            parameters=tuple(parameters),
            threads=32 * self.warps,
            shared_bytes=compiled.metadata.shared,
            registers=registers,
            spill_bytes=spill_bytes,
        )

    def interpret(self, grid: tuple[int, int, int], arguments: Mapping[str, Any]) -> None:
        """Run on CPU tensors in Triton's interpreter; needs TRITON_INTERPRET=1 since the process started.

        Tensors are seen as the signature's element type, as a launch sees the memory at an address.
        """
        run_time = {name: _seen_as(kind, arguments[name]) for name, kind in self.signature}
        self._jit_function()[grid](**run_time, **dict(self.constants))

    @property
    def _module(self) -> str:
        return self.function.partition(":")[0]

    def _jit_function(self) -> Any:
        return getattr(importlib.import_module(self._module), self.function.partition(":")[2])


def reasons_unbuildable() -> list[str]:
    """Why no Triton kernel can be compiled here; empty where they can. Imports nothing."""
    return ["triton is not installed (pip install triton)"] if distribution_version("triton") == "absent" else []


@contextmanager
def _as_nvcc_names_architectures(arch: int) -> Iterator[None]:
    """From 10.0 on Triton compiles for one GPU alone; in this thread for later ones too, see `nvcc.architecture`."""
    if arch <= 90:
        yield
        return
    from triton.backends.nvidia import compiler

    with _renaming:
        before, thread = compiler.sm_arch_from_capability, threading.get_ident()
        compiler.sm_arch_from_capability = lambda one: (
            f"sm_{nvcc.architecture(one)}" if threading.get_ident() == thread else before(one)
        )
        try:
            yield
        finally:
            compiler.sm_arch_from_capability = before


def _seen_as(kind: str, argument: Any) -> Any:
    if not kind.startswith("*"):
        return argument
    import torch

    dtype = getattr(torch, {"i": "int", "u": "uint"}[kind[1]] + kind[2:])
    offset, rest = divmod(argument.storage_offset() * argument.element_size(), dtype.itemsize)
    assert rest == 0, f"{argument.dtype} at {argument.storage_offset()} cannot be seen as {dtype}"
    return torch.empty(0, dtype=dtype).set_(argument.untyped_storage(), offset, (1,), (1,))  # only its address counts


def _entry_parameters(ptx: str) -> int:
    entry = re.search(r"\.entry[^(]*\(([^)]*)\)", ptx)
    return entry[1].count(".param") if entry else 0


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers and local bytes of a thread as cuobjdump reports them; zeros where Triton brings no cuobjdump."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.exists():
        return 0, 0
    with scratch_folder("triton") as folder:
        file = folder / "kernel.cubin"
        file.write_bytes(cubin)
        report = subprocess.run([tool, "-res-usage", file], capture_output=True, text=True, check=False).stdout
    usage = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", report))
    return int(usage.get("REG", 0)), int(usage.get("STACK", 0)) + int(usage.get("LOCAL", 0))
