"""Winners files of autotopk 0.1, which name a device by its fingerprint alone and the code by a version."""

import re

from autotopk.candidate import Candidate
from autotopk.device import H100, Device
from autotopk.identity import Identity
from autotopk.key import TuningKey
from autotopk.tuning_db.columns import CONFIG, NAME, NUMBER, SHAPE, TEXT, TIME, Columns, Row, create, or_nothing
from autotopk.tuning_db.records import Winner

COLUMNS: Columns = {
    "device": TEXT,
    **SHAPE,
    "strategy": NAME,
    "config": CONFIG,
    "version": TEXT,
    "time_us": TIME,
    "control_us": TIME,
    "ratio": TIME,
    "control": TEXT,
    "measured_at": TEXT,
    "runner_up": or_nothing(TEXT),
    "gap": or_nothing(NUMBER),
    "worst_ratio": or_nothing(TIME),
}

TABLES = {
    "winner": create("winner", COLUMNS, "device, dtype, rows, cols, k, sorted"),
    "digest": "CREATE TABLE digest (sha256 TEXT)",
}

FINGERPRINT = re.compile(
    r"(?P<type>\w+)\|(?P<name>.+?)(\|sm_(?P<major>\d+)(?P<minor>\d))?\|(?P<processors>\d+) (SMs|cores)"
    r"(\|(?P<memory>\d+) GiB)?"
)

SHARED_KIB = {75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}
"""Largest shared memory of one block by compute capability (CUDA C++ Programming Guide, technical specifications)."""


def winner(row: Row) -> Winner:
    """A row as a winner. Raises ValueError where its device or its runner-up is not written as they were."""
    device, dtype, rows, cols, k, sorted_, strategy, config, version, *rest = row
    time_us, baseline_us, ratio, baseline, measured_at, second, gap, slowdown = rest
    return Winner(
        _device(device),
        TuningKey(dtype, rows, cols, k, bool(sorted_)),
        Candidate(strategy, config),
        Identity("", f"version {version}"),
        time_us,
        baseline_us,
        ratio,
        baseline,
        measured_at,
        None if second is None else Candidate(*_two(second)),
        gap,
        slowdown,
    )


def _two(text: str) -> tuple[str, str]:
    """A strategy and its configuration, a space between."""
    strategy, _, config = text.partition(" ")
    if not (NAME.accepts(strategy) and CONFIG.accepts(config)):
        raise ValueError(f"runner_up is {text!r}, not a strategy and its configuration")
    return strategy, config


def _device(fingerprint: str) -> Device:
    """A device as far as its fingerprint tells; the size of its L2 is not in it."""
    if fingerprint == H100.fingerprint:
        return H100
    match = FINGERPRINT.fullmatch(fingerprint)
    if match is None:
        raise ValueError(f"device is {fingerprint!r}, not a device's fingerprint")
    major, minor = int(match["major"] or 0), int(match["minor"] or 0)
    return Device(
        type=match["type"],
        name=match["name"],
        capability=(major, minor),
        processors=int(match["processors"]),
        memory_gib=int(match["memory"] or 0),
        shared_bytes=SHARED_KIB.get(10 * major + minor, 48) << 10 if match["type"] == "cuda" else 0,
    )
