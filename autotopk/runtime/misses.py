"""Problems that were asked for and had no measured winner: warned about once, written on request, and read again."""

import json
import threading
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from autotopk import settings
from autotopk.device import Device
from autotopk.errors import LONGEST_PATH, SelectionError, inert, warn
from autotopk.files import append_regular, read_regular
from autotopk.key import TuningKey

if TYPE_CHECKING:
    from autotopk.workloads import Workload

MAX_KEYS = 4096
"""Most problems that one process writes: tuning them takes a day."""

MAX_BYTES = 16 << 20
"""Of the file, which all processes append to: some 100,000 lines."""


class Misses:
    """The problems without a measured winner that a process wrote to AUTOTOPK_MISSES, each once.

    A line is written when its problem is first met, so no way to end a process loses one. How often a problem is asked
    for is not known: only its first call comes by here.
    """

    def __init__(self) -> None:
        self._written: set[tuple[str, TuningKey]] = set()
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    def note(self, key: TuningKey, device: Device, *, tuned: bool = False) -> None:
        """Write a problem that is new; the first of a device costs a warning, but for one whose winner cannot serve."""
        if path := settings.misses_path():
            self._write(path, key, device)
        if not tuned:
            what = f"nothing like {key} was tuned on {inert(device.name)}"
            self._warn(device.fingerprint, f"{what}; `autotopk tune` measures what is fastest here")

    def _write(self, path: Path, key: TuningKey, device: Device) -> None:
        with self._lock:
            known, full = (device.fingerprint, key) in self._written, len(self._written) >= MAX_KEYS
            if not (known or full):
                self._written.add((device.fingerprint, key))
        if known:
            return
        if full:
            self._warn("full", f"{MAX_KEYS} problems without a winner are in {path}; further ones are left out")
            return
        try:
            append_regular(path, line_of(key, device.fingerprint).encode(), MAX_BYTES)
        except OSError as error:
            told = f"{inert(path, LONGEST_PATH)}: {error.strerror or error}"
            self._warn("unwritten", f"misses cannot be written to {told}")

    def clear(self) -> None:
        """Forget what was written, and what was warned about."""
        self._written.clear()
        self._warned.clear()

    def _warn(self, subject: str, message: str) -> None:
        """Warn of a subject once."""
        with self._lock:
            known = subject in self._warned
            self._warned.add(subject)
        if not known:
            warn(message)


def line_of(key: TuningKey, fingerprint: str) -> str:
    """A problem of a device, as `read` takes it."""
    return json.dumps({"device": fingerprint, **asdict(key)}) + "\n"


def read(path: Path, device: Device) -> "list[Workload]":
    """The problems of a device in a file that AUTOTOPK_MISSES named: what most processes met first.

    Raises SelectionError.
    """
    from autotopk.tuning_db.columns import BOOL, SHAPE, TEXT, why_not
    from autotopk.workloads import Workload, check_size

    columns = {"device": TEXT, **SHAPE, "sorted": BOOL}
    counts: Counter[Workload] = Counter()
    others: set[str] = set()
    try:
        lines = read_regular(path, 2 * MAX_BYTES).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SelectionError(f"misses {path}: {inert(error)}") from error
    for number, line in enumerate(lines, 1):
        try:
            miss = json.loads(line)
            place = miss.pop("device")
            miss.pop("count", None)  # of plans, in files of earlier versions
            for name, value in {"device": place, **miss}.items():
                if reason := why_not(name, columns[name], value):
                    raise ValueError(reason)
            workload = Workload.of(TuningKey(**{"dtype": "float32", "sorted": True, **miss}))
            check_size(workload.rows, workload.cols, workload.dtype)
            if place == device.fingerprint:
                counts[workload] += 1
            else:
                others.add(place)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            told = f"{inert(repr(line))} is no miss ({inert(error)})"
            raise SelectionError(f"misses {path}, line {number}: {told}") from error
    if not counts:
        told = inert("; ".join(sorted(others)) or "none")
        raise SelectionError(f"{path} holds no miss of {device.fingerprint}, only of: {told}")
    return [workload for workload, _ in counts.most_common()]
