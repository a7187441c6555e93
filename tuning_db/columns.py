"""What the columns of databases may hold: SQL types, and the checks of values that somebody else wrote."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple
from datetime import datetime
from math import inf, isfinite
from typing import Any, NamedTuple

from autotopk.candidate import parse_knobs
from autotopk.device import Device
from autotopk.errors import inert
from autotopk.key import TuningKey
from autotopk.problem import DTYPE_BYTES, OPERATIONS
from autotopk.routing import Routing
from autotopk.workloads import Workload

LONGEST_TEXT = 500
"""Characters of a name, a date, a digest."""

LONGEST_CONFIG = 4000
"""Characters of a configuration; those of the strategies here have less than 100."""

LARGEST = 1 << 63
"""Integers are less."""


class Check(NamedTuple):
    """Of one stored value."""

    sql: str
    accepts: Callable[[Any], bool]
    words: str
    """What is accepted."""


def or_nothing(check: Check) -> Check:
    """The same for a column that may be empty."""
    return Check(check.sql, lambda value: value is None or check.accepts(value), f"{check.words}, or nothing")


def one_of(words: Iterable[str]) -> Check:
    """These texts and no other."""
    accepted = frozenset(words)
    return Check(
        "TEXT", lambda value: type(value) is str and value in accepted, f"one of {', '.join(sorted(accepted))}"
    )


def _is_text(value: object) -> bool:
    return type(value) is str and len(value) <= LONGEST_TEXT and value.isprintable()


def _is_moment(value: object) -> bool:
    if type(value) is not str or not _is_text(value):
        return False
    try:
        return datetime.fromisoformat(value) is not None
    except ValueError:
        return False


def _is_config(value: object) -> bool:
    if type(value) is not str or len(value) > LONGEST_CONFIG or not value.isprintable():
        return False
    try:
        knobs = parse_knobs(value)
    except ValueError:
        return False
    return all(
        f"{name}{knob}".isprintable() and (type(knob) is not int or abs(knob) < LARGEST) for name, knob in knobs.items()
    )


def _is_routing(value: object) -> bool:
    try:
        return type(value) is str and (value in ("", *OPERATIONS) or str(Routing.parse(value)) == value)
    except ValueError:
        return False


TEXT = Check("TEXT", _is_text, f"a printable text of up to {LONGEST_TEXT} characters")
MOMENT = Check("TEXT", _is_moment, "a time as ISO 8601 writes it")
NAME = Check("TEXT", lambda value: _is_text(value) and value.isidentifier(), "an identifier")
DTYPE = one_of(DTYPE_BYTES)
ROUTING = Check("TEXT", _is_routing, "a router's rule, as in sigmoid+bias:4of8, windows, kth, or empty")
CONFIG = Check("TEXT", _is_config, "a JSON object of printable texts, finite numbers, true and false")
SIZE = Check("INTEGER", lambda value: type(value) is int and 0 < value < LARGEST, "a positive integer")
COUNT = Check("INTEGER", lambda value: type(value) is int and 0 <= value < LARGEST, "zero or a positive integer")
FLAG = Check("INTEGER", lambda value: type(value) is int and value in (0, 1), "0 or 1")
BOOL = Check("BOOLEAN", lambda value: type(value) is bool, "true or false")
NUMBER = Check("REAL", lambda value: type(value) is float and isfinite(value), "a number")
TIME = Check("REAL", lambda value: type(value) is float and 0 < value < inf, "a positive number")

Columns = Mapping[str, Check]
Row = tuple[Any, ...]

SHAPE: Columns = {"dtype": DTYPE, "rows": SIZE, "cols": SIZE, "k": SIZE, "sorted": FLAG, "routing": ROUTING}
"""Of a `TuningKey`."""

DEVICE: Columns = {
    "fingerprint": TEXT,
    "type": TEXT,
    "name": TEXT,
    "major": COUNT,
    "minor": COUNT,
    "processors": SIZE,
    "l2_bytes": COUNT,
    "memory_gib": COUNT,
    "shared_bytes": COUNT,
}
"""Of a `Device`, whose compute capability is major and minor."""


def misfit(key: TuningKey) -> str | None:
    """Why fields that are right by themselves are no key together, if they are none."""
    if key.k > key.cols:
        return f"k is {key.k}, more than cols, {key.cols}"
    try:
        if key.routing:
            Workload.of(key)
    except ValueError as error:
        return str(error)
    return None


def create(table: str, columns: Columns, key: str) -> str:
    """The statement that makes a table with a primary key."""
    declared = ", ".join(f"{name} {check.sql}" for name, check in columns.items())
    return f"CREATE TABLE {table} ({declared}, PRIMARY KEY ({key})) WITHOUT ROWID"


def why_not(name: str, check: Check, value: object) -> str | None:
    """What is wrong with a value of a column, if anything is."""
    return None if check.accepts(value) else f"{name} is {inert(repr(value))}, not {check.words}"


def odd_rows(columns: Columns, rows: Iterable[Row]) -> dict[int, str]:
    """The places of rows that hold what the columns do not, each with a reason."""
    odd: dict[int, str] = {}
    for (name, check), values in zip(columns.items(), zip(*rows, strict=True), strict=False):
        mixed = {int, float} <= set(map(type, values))  # 1 and 1.0 are equal, so a set has one of them
        distinct = values if mixed else set(values)  # most repeat
        if all(map(check.accepts, distinct)):
            continue
        for place, value in enumerate(values):
            if reason := why_not(name, check, value):
                odd.setdefault(place, reason)
    return odd


def devices_of(rows: list[Row]) -> tuple[dict[str, Device], dict[str, str]]:
    """The devices by their fingerprints, and why some are none."""
    odd = {rows[place][0]: reason for place, reason in odd_rows(DEVICE, rows).items()}
    devices = {}
    for fingerprint, type_, name, major, minor, *rest in rows:
        if fingerprint not in odd:
            device = Device(type_, name, (major, minor), *rest)
            if device.fingerprint == fingerprint:
                devices[fingerprint] = device
            else:
                odd[fingerprint] = f"device {fingerprint!r} has the columns of {inert(repr(device.fingerprint))}"
    return devices, odd


def device_row(device: Device) -> Row:
    """The inverse."""
    type_, name, capability, *rest = astuple(device)
    return (device.fingerprint, type_, name, *capability, *rest)
