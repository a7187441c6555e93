"""Numbers that processes of one machine tell each other through a file that all of them map: no device has to wait.

Every rank has two slots, which take turns: who writes to a slot has read, with the call before, what all others wrote
after they had read what was in it. What is in a slot counts once its checksum is right, so that no order of stores
matters.
"""

import mmap
import os
import struct
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

PATIENCE_S = 600.0
"""Until a rank that waits for another one raises, as collectives do."""

MOST_NUMBERS = 30
"""That a rank tells at once."""

_SLOT_BYTES = 8 * (MOST_NUMBERS + 2)  # and the round, and a checksum
_SPINS = 5000
"""Looks at a slot before others may have the processor."""

_MEMORY = Path("/dev/shm")  # a folder of files in memory, on Linux


def new_file(ranks: int) -> Path:
    """An empty file for so many ranks, which this user alone can open."""
    handle, name = tempfile.mkstemp(prefix="autotopk-", dir=_MEMORY if _MEMORY.is_dir() else None)
    os.ftruncate(handle, 2 * ranks * _SLOT_BYTES)
    os.close(handle)
    return Path(name)


class Board:
    """Of one rank. The file may be removed once all ranks have opened it."""

    def __init__(self, file: Path, rank: int, ranks: int) -> None:
        """Map a file of `new_file`. Raises OSError, ValueError."""
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), 2 * ranks * _SLOT_BYTES)
        self._rank, self._ranks, self._round = rank, ranks, 0

    def exchanged(self, numbers: Sequence[int]) -> list[list[int]]:
        """What all ranks tell, as many numbers of 64 bits each, in rank order; waits for all. Raises TimeoutError."""
        self._round += 1
        form = struct.Struct(f"<{len(numbers) + 1}q")
        told = form.pack(self._round, *numbers)
        first = self._round % 2 * self._ranks
        self._write(first + self._rank, told + crc32(told).to_bytes(4, "little"))
        return [self._read(first + rank, form) for rank in range(self._ranks)]

    def _write(self, slot: int, data: bytes) -> None:
        self._memory[slot * _SLOT_BYTES : slot * _SLOT_BYTES + len(data)] = data

    def _read(self, slot: int, form: struct.Struct) -> list[int]:
        """What is told in this round."""
        start, looks, until = slot * _SLOT_BYTES, 0, 0.0
        while True:
            data = self._memory[start : start + form.size + 4]
            told = data[: form.size]
            if crc32(told) == int.from_bytes(data[form.size :], "little"):
                number, *numbers = form.unpack(told)
                if number == self._round:
                    return numbers
            looks += 1
            if looks > _SPINS:
                until = until or time.monotonic() + PATIENCE_S
                if time.monotonic() > until:
                    raise TimeoutError(f"rank {slot % self._ranks} of the group has not come for {PATIENCE_S:.0f} s")
                time.sleep(0 if looks < 20 * _SPINS else 1e-4)
