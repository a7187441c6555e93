"""Sources that compile in no time, for the tests of the cache alone."""

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from autotopk import kernel
from autotopk.kernel import Kernel, KernelSource, Parameter

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


def header(of: Kernel) -> dict[str, Any]:
    """The fields that a file of a kernel holds as JSON."""
    return {name: value for name, value in asdict(of).items() if name != "cubin"}


def sealed(content: bytes, file: str = "") -> bytes:
    """A file with a right digest, as who can write to the folder could make it."""
    return kernel._first_line(content, file) + content


def forged(of: Kernel, **changes: Any) -> bytes:
    """The file of a kernel with other fields, and with a right digest."""
    return sealed(json.dumps(header(of) | changes).encode() + b"\n" + of.cubin)
