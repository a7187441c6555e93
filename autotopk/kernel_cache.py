"""The folder of compiled kernels: whose files are loaded, who compiles what it lacks, what killed processes left.

A kernel runs with the rights of the process that loads it. So a file counts only where nobody but the user and root
can have written it: it and its folder belong to one of the two, and neither is writable for others. From a folder that
does not pass nothing is loaded, and nothing is written to it: kernels stay in memory until the process ends.
"""

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from autotopk.errors import warn
from autotopk.files import make_private, sweep, sweep_scratch, try_lock, unlock, write_atomically

MAX_BYTES = 16 << 20
"""Largest file that is read; ours have some 100 KiB."""

WAIT_S = 60.0
"""Longest wait for another process that compiles the same kernel; most are compiled within 10 s."""

OR = "or set AUTOTOPK_CACHE_DIR to a folder of your own"
"""The other cure of `reasons_untrusted`."""

_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.2  # between looks at a lock
_LEFT = re.compile(r"[0-9a-f]{32}(-[\w.+]+)?\.(lock|kernel\d*\w{8}\.tmp)")  # locks, and files half written

_in_memory: dict[Path, bytes] = {}
"""What could not be written to disk."""

_told: set[Path] = set()
"""Folders that a warning was given of."""


def read(path: Path) -> bytes | None:
    """The first MAX_BYTES + 1 bytes of a cached file; None where none is to be trusted, which is told once a folder."""
    if path in _in_memory:
        return _in_memory[path]
    try:
        with os.fdopen(_open(path), "rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError:
        return None


def holds(path: Path) -> bool:
    """Whether `read` would return bytes."""
    if path in _in_memory:
        return True
    try:
        os.close(_open(path))
    except OSError:
        return False
    return True


def write(path: Path, data: bytes) -> None:
    """Keep a file: on disk, or in memory where the folder is not to be trusted or cannot be written."""
    try:
        make_private(path.parent)
        if reasons_untrusted(path.parent):
            raise PermissionError(path.parent)
        write_atomically(path, data)
    except OSError:
        _in_memory[path] = data


def reasons_untrusted(folder: Path) -> list[str]:
    """Why nothing is loaded from a folder, each with the cure; empty where files are, and where there is no folder."""
    try:
        return reasons(os.stat(folder), folder)
    except OSError:
        return []


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """Let one process compile what a file lacks, and others wait; who enters has to look for the file again.

    The first to come enters at once, the others when it leaves. If it left no file, they compile side by side; if it
    was killed, one of them compiles and the others wait on. A wait ends after WAIT_S. Where files cannot be locked,
    everybody enters at once.
    """
    handle = _locked(path.with_suffix(".lock"))
    try:
        yield
    finally:
        if handle is not None:
            with suppress(OSError):
                path.with_suffix(".lock").unlink()
            unlock(handle)


@cache
def sweep_once(folder: Path) -> None:
    """Remove what killed processes left in a folder and among temporary files, the first time in a process."""
    if not reasons_untrusted(folder):
        sweep(folder, _LEFT)
    sweep_scratch()


def _open(path: Path) -> int:
    """A descriptor of a regular file to be trusted. Raises OSError; warns where one is there that is not.

    What is looked at is what was opened: nobody can put another in its place in between.
    """
    if not hasattr(os, "geteuid"):
        return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check(os.fstat(folder), path.parent, path.parent)
        file = os.open(path.name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=folder)  # a FIFO would wait
    finally:
        os.close(folder)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is no regular file")
        _check(found, path, path.parent)
    except BaseException:
        os.close(file)
        raise
    return file


def _check(found: os.stat_result, path: Path, folder: Path) -> None:
    """Raise PermissionError where others can have written it, and warn, once a folder."""
    if not (told := reasons(found, path)):
        return
    if folder not in _told:
        _told.add(folder)
        message = f"cached kernels are compiled again instead of loaded: {' and '.join(told)}, {OR}"
        warn(message)
    raise PermissionError(path)


def reasons(found: os.stat_result, path: Path) -> list[str]:
    """Who else can have written what `path` led to, each with the cure."""
    told = []
    if hasattr(os, "geteuid"):
        user = os.geteuid()
        if found.st_uid not in (user, 0):
            told.append(f"{path} belongs to user {found.st_uid}, not {user}: `chown -R {user} {path}`")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            told.append(f"others can write to {path}: `chmod -R go-w {path}`")
    return told


def _locked(lock: Path) -> int | None:
    """The handle of a lock file that is locked now; None where that was another's to lock, or cannot be."""
    try:
        make_private(lock.parent)
        if reasons_untrusted(lock.parent):
            return None
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return None
    if _wait(handle):
        return handle
    os.close(handle)
    return None


def _wait(handle: int) -> bool:
    """Lock a lock file; False where another had locked it and is done now, or WAIT_S passed."""
    until, pause = time.monotonic() + WAIT_S, _PAUSE_S
    try:
        while not try_lock(handle):
            if time.monotonic() > until:
                return False
            time.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE_S)
        return os.fstat(handle).st_nlink > 0  # who is done has removed it, who was killed has not
    except OSError:  # a file system without locks
        return False
