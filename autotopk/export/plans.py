"""The file of plans that the C++ operator reads: which launches serve which top-k, and their machine code.

    autotopk plans 1 CRC32         in hexadecimal, of all that follows; it shows damage and proves no author
    capability 90                  of the GPUs that the kernels are for; 0 where there are no plans
    COUNT, then so many of         kernel SYMBOL THREADS SHARED_BYTES CLUSTER COOPERATIVE PROGRAMMATIC CUBIN_BYTES
    COUNT, then so many of         program SCRATCHES (NAME ZEROED EXTENT)* LAUNCHES LAUNCH*
    COUNT, then so many of         plan DTYPE LARGEST SORTED SIDE_BY_SIDE ALIGNED VECTOR K ROWS ROWS COLS COLS PROGRAM
    end                            a line; then the cubins, one after another

    LAUNCH: KERNEL EXTENT EXTENT EXTENT PARAMETERS NAME*
    EXTENT: TIMES FACTORS (SCALAR SHARE)*

Words are between blanks; kernels and programs are counted from 0. Names are those of `addresses.TENSORS`, of
`kernel.scalars` and of the program's scratch. A plan holds from the least to the most ROWS and COLS.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from zlib import crc32

from autotopk.export.serving import MOST, Plan
from autotopk.files import write_atomically
from autotopk.kernel import Kernel
from autotopk.program import Extent, KernelProgram


def write(path: Path, plans: Sequence[Plan], arch: int) -> None:
    """Write plans and their kernels, compiled where they are not, for a compute capability (90 for 9.0).

    Raises BuildError, OSError.
    """
    write_atomically(path, to_bytes(plans, arch))


def to_bytes(plans: Sequence[Plan], arch: int) -> bytes:
    """The file. Raises BuildError."""
    programs = list(dict.fromkeys(plan.program for plan in plans))
    kernels = list(dict.fromkeys(source.load(arch) for program in programs for source in program.sources))
    lines = [f"capability {arch}", f"{len(kernels)}", *map(_kernel, kernels)]
    lines += [f"{len(programs)}", *(_program(program, kernels, arch) for program in programs)]
    lines += [f"{len(plans)}", *(_plan(plan, programs.index(plan.program)) for plan in plans), "end\n"]
    content = "\n".join(lines).encode() + b"".join(kernel.cubin for kernel in kernels)
    return f"autotopk plans 1 {crc32(content):08x}\n".encode() + content


def _words(*words: object) -> str:
    return " ".join(str(int(word)) if isinstance(word, bool) else str(word) for word in words)


def _kernel(kernel: Kernel) -> str:
    attributes = kernel.threads, kernel.shared_bytes, kernel.cluster, kernel.cooperative, kernel.programmatic_launch
    return _words("kernel", kernel.symbol, *attributes, len(kernel.cubin))


def _extent(extent: Extent) -> Iterator[object]:
    yield from (extent.times, len(extent.per))
    for name, share in extent.per:
        yield from (name, share)


def _program(program: KernelProgram, kernels: Sequence[Kernel], arch: int) -> str:
    words: list[object] = ["program", len(program.scratch)]
    for scratch in program.scratch:
        words += [scratch.name, scratch.zeroed, *_extent(scratch.bytes)]
    words.append(len(program.launches))
    for launch in program.launches:
        kernel = launch.source.load(arch)
        words.append(kernels.index(kernel))
        for extent in launch.extents:
            words += _extent(extent)
        words += [len(kernel.parameters), *(parameter.name for parameter in kernel.parameters)]
    return _words(*words)


def _plan(plan: Plan, program: int) -> str:
    asked, access = plan.asked, plan.access
    ends = (end for sizes in (asked.rows, asked.cols) for end in (sizes.least, sizes.most or MOST))
    order = asked.largest, asked.sorted, asked.inner > 1
    return _words("plan", asked.dtype, *order, access.aligned, access.vector, asked.k, *ends, program)
