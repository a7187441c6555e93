"""What processes of one machine tell each other through a file that all of them map: no device has to wait.

Every rank has two slots, which take turns: who writes to a slot has heard, with the call before, what all others told
after they had heard what was in it. What is in a slot counts once its checksum is right, so that no order of stores
matters.
"""

import mmap
import os
import tempfile
import time
from pathlib import Path
from zlib import crc32

PATIENCE_S = 600.0
"""Until a rank that waits for another one raises, as collectives do."""

MOST_BYTES = 256
"""That a rank tells at once."""

_NUMBER_BYTES = 8
_CHECK_BYTES = 4
_SLOT_BYTES = MOST_BYTES + 16  # the round before, and a checksum behind
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
    """Of one rank. The file may be removed once all ranks have opened it.

    All tell, and then all hear, in turns, as many bytes each.
    """

    def __init__(self, file: Path, rank: int, ranks: int) -> None:
        """Map a file of `new_file`. Raises OSError, ValueError."""
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), 2 * ranks * _SLOT_BYTES)
        self._rank, self._ranks, self._round, self._own = rank, ranks, 0, b""

    def tell(self, message: bytes) -> None:
        """Begin a round. Nothing waits."""
        self._round, self._own = self._round + 1, message
        told = self._round.to_bytes(_NUMBER_BYTES, "little") + message
        self._write(self._round % 2 * self._ranks + self._rank, told + crc32(told).to_bytes(_CHECK_BYTES, "little"))

    def heard(self) -> list[bytes]:
        """What all ranks tell in this round, in rank order; waits for all. Raises TimeoutError."""
        first = self._round % 2 * self._ranks
        return [self._own if rank == self._rank else self._read(first + rank) for rank in range(self._ranks)]

    def _write(self, slot: int, data: bytes) -> None:
        self._memory[slot * _SLOT_BYTES : slot * _SLOT_BYTES + len(data)] = data

    def _read(self, slot: int) -> bytes:
        start, looks, until = slot * _SLOT_BYTES, 0, 0.0
        end = start + _NUMBER_BYTES + len(self._own)
        begun = self._round.to_bytes(_NUMBER_BYTES, "little")
        while True:
            told, check = self._memory[start:end], self._memory[end : end + _CHECK_BYTES]
            if told.startswith(begun) and crc32(told) == int.from_bytes(check, "little"):
                return told[_NUMBER_BYTES:]
            looks += 1
            if looks > _SPINS:
                until = until or time.monotonic() + PATIENCE_S
                if time.monotonic() > until:
                    raise TimeoutError(f"rank {slot % self._ranks} of the group has not come for {PATIENCE_S:.0f} s")
                time.sleep(0 if looks < 20 * _SPINS else 1e-4)
