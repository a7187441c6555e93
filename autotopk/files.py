"""Files and folders that several processes share or somebody else made, and what is left of those that were killed."""

import errno
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

ABANDONED_S = 3600.0
"""Age from which `sweep` removes what nobody has locked; no compilation takes as long."""

_SWEEP_S = 1.0  # longest sweep
_SCRATCH = re.compile(r"autotopk-(nvcc|tilelang|triton)-\w{8}")


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone whatever the umask. Raises OSError."""
    missing = [one for one in (folder, *folder.parents) if not one.is_dir()]
    for one in reversed(missing):
        one.mkdir(0o700, exist_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old or the new one, whole, also when several processes write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def try_lock(handle: int) -> bool:
    """Lock an open file or folder until it is unlocked or the process ends; False where another has locked it.

    Raises OSError where files cannot be locked.
    """
    if fcntl is None:
        raise OSError("this platform has no flock")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(handle: int) -> None:
    """Undo `try_lock`, also for children that inherited the handle, and close it."""
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


def sync(path: Path) -> None:
    """Have a file's bytes on disk. Raises OSError."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """One at a time in a folder, and its new names on disk at the end, as far as the file system can."""
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def scratch_folder(purpose: Literal["nvcc", "tilelang", "triton"]) -> Iterator[Path]:
    """A folder for temporary files, removed in the end; if this process is killed, by a later `sweep_scratch`."""
    with tempfile.TemporaryDirectory(prefix=f"autotopk-{purpose}-", ignore_cleanup_errors=True) as folder:
        handle = None
        try:
            with suppress(OSError):  # where folders cannot be locked, their age has to do
                handle = os.open(folder, os.O_RDONLY)
                try_lock(handle)
            yield Path(folder)
        finally:
            if handle is not None:
                os.close(handle)


def sweep_scratch() -> None:
    """Remove scratch folders of processes that were killed."""
    sweep(Path(tempfile.gettempdir()), _SCRATCH)


def sweep(folder: Path, names: re.Pattern[str]) -> None:
    """Remove what killed processes of this user left in a folder under such names, for at most a second.

    That is what is older than ABANDONED_S and not locked. What cannot be removed stays.
    """
    until = time.monotonic() + _SWEEP_S
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if time.monotonic() > until:
                return
            if names.fullmatch(entry.name):
                with suppress(OSError):
                    _remove_abandoned(entry.path)


def _remove_abandoned(path: str) -> None:
    """Raises OSError."""
    if not hasattr(os, "geteuid"):
        return
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or found.st_mtime > time.time() - ABANDONED_S or not try_lock(handle):
            return
        if stat.S_ISDIR(found.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    finally:
        os.close(handle)


def open_regular(path: Path, limit: int | None = None) -> BinaryIO:
    """Open a file to read. Raises OSError, without waiting for a FIFO, unless it is regular and has no more bytes."""
    return os.fdopen(_open_regular(path, os.O_RDONLY, limit), "rb")


def read_regular(path: Path, limit: int) -> bytes:
    """The bytes of a file. Raises OSError as `open_regular` does."""
    with open_regular(path, limit) as file:
        content = file.read(limit + 1)
    if len(content) > limit:  # it grew, or its size is not known
        raise _too_large(path, len(content))
    return content


def append_regular(path: Path, data: bytes, limit: int) -> None:
    """Append to a regular file, made where there is none, in one write.

    Raises OSError on anything else, at once, and where the file has more bytes than that already.
    """
    descriptor = _open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, limit)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def _open_regular(path: Path, flags: int, limit: int | None) -> int:
    """A descriptor, opened without blocking."""
    flags |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except ValueError as error:  # a null character in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and (limit is None or found.st_size <= limit):
        return descriptor
    os.close(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    raise _too_large(path, found.st_size)


def _too_large(path: Path, size: int) -> OSError:
    return OSError(errno.EFBIG, f"too large: {size:,} bytes", str(path))
