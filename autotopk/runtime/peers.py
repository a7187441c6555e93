"""Memory of GPUs of one machine that all of them read: results are exchanged without NCCL, and not even copied.

Every rank writes its part to memory that torch's symmetric memory maps for all, waits on the device until all have,
and reads theirs. Parts take turns between two places: who writes to a place has waited, with the call before, until
all had come to it, and so had read what was there.
"""

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from autotopk import settings
from autotopk.errors import inert, warn
from autotopk.lists import Lists, Parts, listed
from autotopk.runtime.board import Board, new_file

T = TypeVar("T")

MOST_WORDS = 1 << 21
"""Of 64 bits, of a part: of longer ones NCCL takes little more time than the links do."""

_LEAST_WORDS = 1 << 16
_PATIENCE_MS = 600_000
"""Until ranks that wait for another one end with an error, as NCCL's do."""

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Peers:
    """Of a group. All ranks make one, with the same size, and use it by the same calls."""

    def __init__(self, group: Any, device: torch.device, words: int, board: Board) -> None:
        """Waits for all ranks. Raises RuntimeError and others where GPUs cannot read each other's memory."""
        import torch.distributed._symmetric_memory as symmetric

        self.words = words
        self.board = board
        self._device = device
        self._memory = symmetric.empty(2 * words, dtype=torch.int64, device=device)
        self._handle = symmetric.rendezvous(self._memory, group)
        self.rank = self._handle.rank
        self._turn = 0
        self._stream = torch.cuda.current_stream(device)

    def parts(self, turn: int, lists: Lists) -> Parts:
        """Where the parts of all ranks are at a turn, 0 or 1."""
        handle, first, words = self._handle, turn * self.words, lists.part_bytes // 8
        all_parts = [handle.get_buffer(rank, (words,), torch.int64, first) for rank in range(handle.world_size)]
        numbers = listed(lists, 8 * first)
        return Parts(all_parts[self.rank], handle.buffer_ptrs_dev, numbers, partial(torch.cat, all_parts))

    def begin(self) -> int:
        """The turn of a call, whose part is to be written by the current stream; the same again until all meet."""
        stream = torch._C._cuda_getCurrentRawStream(self._device.index)
        if stream != self._stream.cuda_stream:
            last, self._stream = self._stream, torch.cuda.current_stream(self._device)
            self._stream.wait_stream(last)
        return self._turn

    def meet(self) -> None:
        """What comes next on the current stream reads the parts of all. Nothing waits on the host."""
        self._handle.barrier(0, _PATIENCE_MS)
        self._turn ^= 1


def known_peers(group: Any) -> Peers | None:
    """What all ranks of a group have made by calls before."""
    return _known.get(group)


_known: WeakKeyDictionary[Any, Peers | None] = WeakKeyDictionary()
"""By groups; None where there is no such memory."""

_lock = Lock()


def peers_of(group: Any, device: torch.device, words: int) -> Peers | None:
    """With room for parts of so many words; None where NCCL is to gather them.

    Where it is not known yet, or for smaller parts, all ranks find out together: they call it with the same size.
    """
    if words > MOST_WORDS or device.type != "cuda":
        return None
    with _lock:
        found: Peers | None = _known.get(group, _UNKNOWN)
        if found is _UNKNOWN or (found and found.words < words):
            found = _known[group] = _made(group, device, max(_LEAST_WORDS, 1 << (words - 1).bit_length()))
        return found


_UNKNOWN: Any = object()


def _made(group: Any, device: torch.device, words: int) -> Peers | None:
    """The same on all ranks, None included."""
    before = known_peers(group)
    board = before.board if before else _board_of(group, device)
    return None if board is None else _agreed(lambda: Peers(group, device, words, board), group)


def _board_of(group: Any, device: torch.device) -> Board | None:
    """Of ranks on one machine, whose GPUs are several."""
    abouts = told_by_all(_about(group, device), group)
    hosts, gpus = {host for host, _ in abouts}, {gpu for _, gpu in abouts}
    rank, ranks = dist.get_rank(group), len(abouts)
    if len(hosts) > 1 or "" in gpus or len(gpus) < ranks or ranks == 1:
        return None
    file = None
    with suppress(OSError):
        file = new_file(ranks) if rank == 0 else None
    (first, *_) = told_by_all(file, group)
    found = _agreed(lambda: Board(first, rank, ranks), group)
    if file:  # all have opened it
        file.unlink()
    return found


def _agreed(make: Callable[[], T], group: Any) -> T | None:
    """What this rank makes, if all do."""
    found, failed = None, ""
    try:
        found = make()
    except Exception as error:  # whatever a driver, a container or another torch lacks; NCCL does without
        failed = f"{type(error).__name__}: {inert(str(error).strip().partition(chr(10))[0])}"
    if any(failures := told_by_all(failed, group)):
        warn(f"GPUs of this group do not read each other's memory, NCCL gathers: {next(filter(None, failures))}")
        return None
    return found


def _about(group: Any, device: torch.device) -> tuple[str, str]:
    """The machine, and the GPU; empty where it is not to be read by others."""
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    able = settings.peers() and torch.version.hip is None and "nccl" in dist.get_backend(group)
    gpu = str(torch.cuda.get_device_properties(device).uuid) if able else ""
    return f"{socket.gethostname()} {boot}", gpu


def told_by_all(mine: Any, group: Any) -> Sequence[Any]:
    """An object of every rank, in rank order; a collective."""
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, mine, group=group)
    return found
