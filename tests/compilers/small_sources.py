"""Sources that compile in no time, for the tests of the cache alone."""

import json
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from autotopk import kernel, packs
from autotopk.kernel import Kernel, KernelSource, Parameter
from autotopk.packs import file

KERNEL = Kernel(
    cubin=b"\x7fELF\n\x00\xff",
    symbol="select_rows",
    parameters=(Parameter("x", "pointer"), Parameter("rows", "int32")),
    threads=64,
    shared_bytes=1024,
    cluster=2,
    cooperative=True,
    programmatic_launch=True,
    registers=40,
    spill_bytes=8,
)


@dataclass(frozen=True)
class CountingSource(KernelSource):
    """Counts compilations in a file."""

    log: Path
    code: str = "a"
    kernel: Kernel = KERNEL
    """What it compiles to, but for the symbol."""
    seconds: float = 0.0

    def cache_key(self) -> str:
        return self.code

    def compile(self, arch: int) -> Kernel:
        with self.log.open("a") as file:
            file.write("x")
        time.sleep(self.seconds)
        return replace(self.kernel, symbol=f"{self.code}_{arch}")

    @property
    def compilations(self) -> int:
        return len(self.log.read_text()) if self.log.exists() else 0


@dataclass(frozen=True)
class TravellingSource(CountingSource):
    """One whose compiled kernels may travel: `device` stands for the bytes of its device files."""

    device: str = field(default="1", repr=False)

    def compile(self, arch: int) -> Kernel:
        """Other machine code for every `code`."""
        shared = self.kernel.shared_bytes + (crc32(self.code.encode()) % 99_999 if self.code != "a" else 0)
        return replace(super().compile(arch), shared_bytes=shared)

    def cache_key(self) -> str:
        return f"compiler|{self.recipe()}"

    def device_code(self) -> tuple[str, str]:
        return "small device files", self.device


def pack(folder: Path, sources: Collection[KernelSource], arch: int = 90, *checked: int) -> Path:
    """Write a pack of what sources compile to, and that all of it was right on GPUs of these compute capabilities."""
    contents = {}
    for source in sources:
        compiled, name = source.compile(arch), packs.name_of(source, arch)
        contents[name] = (compiled.to_bytes(name), compiled.code)
    file.write(packs.pack_path(folder, arch), contents)
    made = packs.Made(dict(source.device_code() for source in sources))
    (folder / packs.SOURCES).write_text(json.dumps({arch: asdict(made)}))
    check = packs.Check("a GPU", frozenset(code for _, code in contents.values())).to_json()
    for capability in checked:
        packs.Packs(folder).check_paths(capability)[0].write_text(check)
    packs.reload()
    return folder


def header(of: Kernel) -> dict[str, Any]:
    """The fields that a file of a kernel holds as JSON."""
    return {name: value for name, value in asdict(of).items() if name != "cubin"}


def sealed(content: bytes, file: str = "") -> bytes:
    """A file with a right digest, as who can write to the folder could make it."""
    return kernel._first_line(content, file) + content


def forged(of: Kernel, **changes: Any) -> bytes:
    """The file of a kernel with other fields, and with a right digest."""
    return sealed(json.dumps(header(of) | changes).encode() + b"\n" + of.cubin)
