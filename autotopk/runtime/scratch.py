"""Memory that programs use beside their input and outputs.

Scratch that may hold garbage is allocated in each call, as outputs are: torch's allocator gives it to later work of the
same stream alone, or keeps it in the pool of the graph that is being captured.

Scratch that must be zero when a program begins is kept: one buffer a stream and thread, zeroed when it is allocated,
because every program leaves it zero. Two streams never share one, nor do two threads: launches of their programs may
mix in one stream. While a graph is being captured each call gets its own, zeroed by a memset that is captured with it,
so that replays depend on nothing outside the graph. A buffer is dropped after a launch failed, since nobody knows what
it holds.
"""

from collections.abc import Callable
from threading import get_ident

import torch
from torch import Tensor

MAX_BUFFERS = 64
"""Most that are kept; when streams and threads come and go without end, all are dropped, and live ones made again."""

capturing: Callable[[], bool] = getattr(
    torch._C, "_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing
)

_kept: dict[tuple[int, int, int], Tensor] = {}
"""By index of the device, handle of the stream, and thread."""


def zeroed(index: int, stream: int, size: int) -> Tensor:
    """At least so many bytes that are zero for what comes next on a stream, which is the current one of its device."""
    if capturing():
        return torch.zeros(size, dtype=torch.uint8, device=f"cuda:{index}")
    owner = index, stream, get_ident()
    buffer = _kept.get(owner)
    if buffer is None or buffer.numel() < size:
        if len(_kept) >= MAX_BUFFERS:
            _kept.clear()
        buffer = _kept[owner] = torch.zeros(size, dtype=torch.uint8, device=f"cuda:{index}")
    return buffer


def drop(index: int, stream: int) -> None:
    """Forget this thread's buffer for a stream: a program failed before it could leave it zero."""
    _kept.pop((index, stream, get_ident()), None)
