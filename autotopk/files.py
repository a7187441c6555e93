"""Files that several processes read and write at the same time, or that somebody else made."""

import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO


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
