"""The file of a pack: many compiled kernels, of which each is found by its name and read with few others.

autotopk pack 1 SHA256          of the next line
{"groups": [LENGTH, ...], "kernels": {NAME: [GROUP, START, LENGTH, CODE], ...}}
data                            groups, one after another, each of KIN kernels that were compressed together
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from autotopk.errors import DamagedKernelError
from autotopk.files import write_atomically

MAGIC = "autotopk pack 1"

KIN = 4
"""Kernels that are compressed together: a quarter less than alone, and read in twice the time; eight save 10 % more."""

MAX_INDEX_BYTES = 4 << 20

_LZMA2 = {"id": 0x21, "dict_size": 4 << 20, "lc": 0, "lp": 4, "pb": 4}  # instructions have 16 bytes


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
    groups: Sequence[tuple[int, int]]
    """(offset in the file, length) of each."""
    kernels: Mapping[str, tuple[int, int, int, str]]
    """Name to (group, where it begins there, length, code)."""
    _found: dict[str, Stored] = field(default_factory=dict, repr=False, compare=False)

    def find(self, name: str) -> Stored | None:
        """The kernel of that name, the same object every time."""
        if (entry := self.kernels.get(name)) is None:
            return None
        group, start, length, code = entry
        return self._found.setdefault(name, Stored(name, code, partial(self._read, group, start, length)))

    def _read(self, group: int, start: int, length: int) -> bytes:
        offset, packed = self.groups[group]
        with self.path.open("rb") as file:
            file.seek(offset)
            return decompressed(file.read(packed), start + length)[start:]


def read(path: Path) -> Pack:
    """The pack of a file, of which the index is read. Raises OSError or DamagedKernelError."""
    with path.open("rb") as file:
        first, index = file.readline(len(MAGIC) + 66), file.readline(MAX_INDEX_BYTES)
        start = file.tell()
        size = os.fstat(file.fileno()).st_size
    digest = hashlib.sha256(index).hexdigest()
    if first != f"{MAGIC} {digest}\n".encode():
        raise DamagedKernelError(f"{path} is no whole pack of this version")
    content = json.loads(index)
    *offsets, end = accumulate(content["groups"], initial=start)
    if size != end:
        raise DamagedKernelError(f"{path} is cut off")
    return Pack(path, [*zip(offsets, content["groups"], strict=True)], content["kernels"])


def write(path: Path, kernels: Mapping[str, tuple[bytes, str]]) -> None:
    """Write a pack of (bytes, code) by name: the same file for the same kernels in the same order.

    Those that are alike should follow each other. All cores compress.
    """
    from concurrent.futures import ThreadPoolExecutor

    names = list(kernels)
    groups = [names[at : at + KIN] for at in range(0, len(names), KIN)]
    index: dict[str, tuple[int, int, int, str]] = {}
    for at, group in enumerate(groups):
        start = 0
        for name in group:
            content, code = kernels[name]
            index[name] = at, start, len(content), code
            start += len(content)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        data = list(pool.map(compressed, [b"".join(kernels[name][0] for name in group) for group in groups]))
    line = json.dumps({"groups": [*map(len, data)], "kernels": index}).encode() + b"\n"
    write_atomically(path, f"{MAGIC} {hashlib.sha256(line).hexdigest()}\n".encode() + line + b"".join(data))


def compressed(data: bytes) -> bytes:
    """As packs hold it."""
    import lzma

    return lzma.compress(data, lzma.FORMAT_RAW, filters=[{**_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}])


def decompressed(data: bytes, length: int) -> bytes:
    """So many bytes of the beginning. Raises DamagedKernelError."""
    import lzma  # which some Pythons are built without

    try:
        return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[_LZMA2]).decompress(data, length)
    except lzma.LZMAError as error:
        raise DamagedKernelError(f"not compressed as packs are: {error}") from error
