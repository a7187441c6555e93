"""Winners files of autotopk 0.1, which name a device by its fingerprint alone and the code by a version."""

import re
from collections.abc import Iterable

from autotopk.candidate import Candidate
from autotopk.device import H100, Device
from autotopk.identity import Identity
from autotopk.key import TuningKey
from autotopk.tuning_db.columns import CONFIG, NAME, NUMBER, SHAPE, TEXT, TIME, Check, Columns, Row, create, or_nothing
from autotopk.tuning_db.records import Winner

FINGERPRINT = re.compile(
    r"(?P<type>\w+)\|(?P<name>.+?)(\|sm_(?P<major>\d+)(?P<minor>\d))?\|(?P<processors>\d+) (SMs|cores)"
    r"(\|(?P<memory>\d+) GiB)?"
)

SHARED_KIB = {75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}
"""Largest shared memory of one block by compute capability (CUDA C++ Programming Guide, technical specifications)."""


def _device(fingerprint: str) -> Device | None:
    """A device as far as its fingerprint tells; the size of its L2 is not in it. None where it is no fingerprint."""
    if fingerprint == H100.fingerprint:
        return H100
    match = FINGERPRINT.fullmatch(fingerprint)
    if match is None:
        return None
    major, minor = int(match["major"] or 0), int(match["minor"] or 0)
    device = Device(
        type=match["type"],
        name=match["name"],
        capability=(major, minor),
        processors=int(match["processors"]),
        memory_gib=int(match["memory"] or 0),
        shared_bytes=SHARED_KIB.get(10 * major + minor, 48) << 10 if match["type"] == "cuda" else 0,
    )
    return device if device.fingerprint == fingerprint else None


def _candidate(text: str) -> Candidate | None:
    """A strategy and its configuration, a space between; None where it is not that."""
    strategy, _, config = text.partition(" ")
    return Candidate(strategy, config) if NAME.accepts(strategy) and CONFIG.accepts(config) else None


DEVICE = Check("TEXT", lambda value: TEXT.accepts(value) and _device(value) is not None, "a device's fingerprint")
CANDIDATE = Check(
    "TEXT", lambda value: type(value) is str and _candidate(value) is not None, "a strategy and its configuration"
)

COLUMNS: Columns = {  # with the rule of a router, which its files lack: it is empty
    "device": DEVICE,
    **SHAPE,
    "strategy": NAME,
    "config": CONFIG,
    "version": TEXT,
    "time_us": TIME,
    "control_us": TIME,
    "ratio": TIME,
    "control": TEXT,
    "measured_at": TEXT,
    "runner_up": or_nothing(CANDIDATE),
    "gap": or_nothing(NUMBER),
    "worst_ratio": or_nothing(TIME),
}

TABLES = {
    "winner": create(
        "winner",
        {name: check for name, check in COLUMNS.items() if name != "routing"},
        "device, dtype, rows, cols, k, sorted",
    ),
    "digest": "CREATE TABLE digest (sha256 TEXT)",
}


def devices(fingerprints: Iterable[str]) -> dict[str, Device]:
    """Those of rows whose columns were checked."""
    found = {fingerprint: _device(fingerprint) for fingerprint in fingerprints}
    return {fingerprint: device for fingerprint, device in found.items() if device is not None}


def winner(row: Row) -> Winner:
    """A row of those columns as a winner."""
    device, dtype, rows, cols, k, sorted_, _, strategy, config, version, *rest = row
    time_us, baseline_us, ratio, baseline, measured_at, second, gap, slowdown = rest
    known = _device(device)
    assert known is not None
    return Winner(
        known,
        TuningKey(dtype, rows, cols, k, bool(sorted_)),
        Candidate(strategy, config),
        Identity("", f"version {version}"),
        time_us,
        baseline_us,
        ratio,
        baseline,
        measured_at,
        second and _candidate(second),
        gap,
        slowdown,
    )
