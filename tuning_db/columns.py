"""What the columns of a winners file may hold: SQL types, and the checks of values that somebody else wrote."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, isfinite
from typing import Any, NamedTuple

from autotopk.candidate import parse_knobs
from autotopk.problem import DTYPE_BYTES


class Check(NamedTuple):
    """Of one stored value."""

    sql: str
    accepts: Callable[[Any], bool]
    words: str
    """What is accepted."""


def or_nothing(check: Check) -> Check:
    """The same for a column that may be empty."""
    return Check(check.sql, lambda value: value is None or check.accepts(value), check.words)


def _is_config(value: object) -> bool:
    try:
        return type(value) is str and parse_knobs(value) is not None
    except ValueError:
        return False


TEXT = Check("TEXT", lambda value: type(value) is str, "a text")
NAME = Check("TEXT", lambda value: type(value) is str and value.isidentifier(), "an identifier")
DTYPE = Check("TEXT", DTYPE_BYTES.__contains__, f"one of {', '.join(DTYPE_BYTES)}")
CONFIG = Check("TEXT", _is_config, "a JSON object of texts, finite numbers, true and false")
SIZE = Check("INTEGER", lambda value: type(value) is int and value > 0, "a positive integer")
COUNT = Check("INTEGER", lambda value: type(value) is int and value >= 0, "zero or a positive integer")
FLAG = Check("INTEGER", (0, 1).__contains__, "0 or 1")
NUMBER = Check("REAL", lambda value: type(value) is float and isfinite(value), "a number")
TIME = Check("REAL", lambda value: type(value) is float and 0 < value < inf, "a positive number")

Columns = Mapping[str, Check]
Row = tuple[Any, ...]

SHAPE: Columns = {"dtype": DTYPE, "rows": SIZE, "cols": SIZE, "k": SIZE, "sorted": FLAG}
"""Of a `TuningKey`."""


def create(table: str, columns: Columns, key: str) -> str:
    """The statement that makes a table with a primary key."""
    declared = ", ".join(f"{name} {check.sql}" for name, check in columns.items())
    return f"CREATE TABLE {table} ({declared}, PRIMARY KEY ({key})) WITHOUT ROWID"


def check_rows(columns: Columns, rows: Iterable[Row]) -> None:
    """Raise ValueError on a value that the columns do not hold."""
    for (name, check), values in zip(columns.items(), zip(*rows, strict=True), strict=False):
        for value in set(values):  # configurations and devices repeat
            if not check.accepts(value):
                raise ValueError(f"{name} is {value!r}, not {check.words}")


def check_shapes(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Raise ValueError where k exceeds the columns of a row."""
    cols, k = columns.index("cols"), columns.index("k")
    for row in rows:
        if row[k] > row[cols]:
            raise ValueError(f"k is {row[k]}, more than cols, {row[cols]}")
