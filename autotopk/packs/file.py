"""The file of a pack: many compiled kernels, of which each is found by its name and read alone.

autotopk pack 1 SHA256          of the next line
{"kernels": {NAME: [OFFSET, LENGTH, CODE], ...}}
data                            where offsets count from; each kernel compressed on its own
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from autotopk.errors import DamagedKernelError
from autotopk.files import write_atomically
from autotopk.identity import DIGITS

MAGIC = "autotopk pack 1"

MAX_INDEX_BYTES = 4 << 20

_LZMA2 = {"id": 0x21, "dict_size": 1 << 20, "lc": 0, "lp": 4, "pb": 4}  # instructions have 16 bytes


class Stored(NamedTuple):
    """A compiled kernel that came along."""

    name: str
    """What its bytes were sealed with, see `Kernel.from_bytes`."""
    code: str
    """`Kernel.code`."""
    read: Callable[[], bytes]
    """What `Kernel.to_bytes` wrote. Raises OSError or DamagedKernelError."""


@dataclass(frozen=True)
class Pack:
    """An open pack: its index."""

    path: Path
    digest: str
    """32 hexadecimal digits over the index, and so over the code of every kernel."""
    kernels: Mapping[str, tuple[int, int, str]]
    """Name to (offset in the file, length, code)."""

    def find(self, name: str) -> Stored | None:
        """The kernel of that name."""
        if (entry := self.kernels.get(name)) is None:
            return None
        return Stored(name, entry[2], partial(self._read, name))

    def compressed(self, name: str) -> bytes:
        """What `write` was given of a kernel. Raises OSError."""
        offset, length, _ = self.kernels[name]
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def _read(self, name: str) -> bytes:
        return decompressed(self.compressed(name))


def read(path: Path) -> Pack:
    """The pack of a file, of which the index is read. Raises OSError or DamagedKernelError."""
    with path.open("rb") as file:
        first, index = file.readline(len(MAGIC) + 66), file.readline(MAX_INDEX_BYTES)
        start = file.tell()
        size = os.fstat(file.fileno()).st_size
    digest = hashlib.sha256(index).hexdigest()
    if first != f"{MAGIC} {digest}\n".encode():
        raise DamagedKernelError(f"{path} is no whole pack of this version")
    kernels = json.loads(index)["kernels"]
    if size != start + sum(length for _, length, _ in kernels.values()):
        raise DamagedKernelError(f"{path} is cut off")
    entries = {name: (start + offset, length, code) for name, (offset, length, code) in kernels.items()}
    return Pack(path, digest[:DIGITS], entries)


def write(path: Path, kernels: Mapping[str, tuple[bytes, str]]) -> None:
    """Write a pack of (compressed, code) by name: the same bytes for the same kernels."""
    index, data = {}, b""
    for name in sorted(kernels):
        content, code = kernels[name]
        index[name] = [len(data), len(content), code]
        data += content
    line = json.dumps({"kernels": index}).encode() + b"\n"
    write_atomically(path, f"{MAGIC} {hashlib.sha256(line).hexdigest()}\n".encode() + line + data)


def compressed(data: bytes) -> bytes:
    """As packs hold it."""
    import lzma

    return lzma.compress(data, lzma.FORMAT_RAW, filters=[{**_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}])


def decompressed(data: bytes) -> bytes:
    """The inverse. Raises DamagedKernelError."""
    import lzma  # which some Pythons are built without

    try:
        return lzma.decompress(data, lzma.FORMAT_RAW, filters=[_LZMA2])
    except lzma.LZMAError as error:
        raise DamagedKernelError(f"not compressed as packs are: {error}") from error
