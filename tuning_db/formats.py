"""The tables of a winners file, of this format and of older ones."""

from autotopk.tuning_db.columns import (
    CONFIG,
    DEVICE,
    LONGEST_CONFIG,
    NAME,
    NUMBER,
    SHAPE,
    TEXT,
    TIME,
    Check,
    Columns,
    create,
    or_nothing,
)

FORMAT = 5
"""Layout of the file, its `user_version`; older ones are read too, newer ones refused."""

LONGEST_NUMBERS, LONGEST_NAME = 1 << 18, LONGEST_CONFIG + 100
"""Characters of a row of what was fitted: its numbers, and its name, which may hold a candidate."""

COLUMNS: Columns = {
    "device": TEXT,
    **SHAPE,
    "strategy": NAME,
    "config": CONFIG,
    "source": TEXT,
    "code": TEXT,
    "time_us": TIME,
    "baseline_us": TIME,
    "ratio": TIME,
    "baseline": TEXT,
    "measured_at": TEXT,
    "runner_up_strategy": or_nothing(NAME),
    "runner_up_config": or_nothing(CONFIG),
    "gap": or_nothing(NUMBER),
    "adversarial_slowdown": or_nothing(TIME),
    "margin": or_nothing(NUMBER),
}
"""A winner's fields in their order, spelled out; `device` is a fingerprint of the other table."""

KEY_3 = "device, dtype, rows, cols, k, sorted"
KEY = f"{KEY_3}, routing"
"""The columns that no two winners share; also the order of the rows."""

FITTED_KEY = "device, kind, part, name"
"""The same of what was fitted."""


FITTED: Columns = {
    "device": TEXT,
    "kind": TEXT,
    "part": NAME,
    "name": Check(
        "TEXT",
        lambda value: type(value) is str and len(value) <= LONGEST_NAME and value.isprintable(),
        f"a printable text of up to {LONGEST_NAME} characters",
    ),
    "numbers": Check(
        "TEXT", lambda value: type(value) is str and len(value) <= LONGEST_NUMBERS, "a JSON array of numbers"
    ),
}
"""The fields of a `prediction.Fitted`; its numbers are parsed, and checked, where they are first needed."""

TABLES = {
    "device": create("device", DEVICE, "fingerprint"),
    "winner": create("winner", COLUMNS, KEY),
    "fitted": create("fitted", FITTED, FITTED_KEY),
    "digest": "CREATE TABLE digest (sha256 TEXT)",
}
"""All that the database holds."""

TABLES_4 = {name: table for name, table in TABLES.items() if name != "fitted"}


def _without(*names: str) -> dict[str, str]:
    """The tables of an older format, whose winners lack these columns."""
    columns = {name: check for name, check in COLUMNS.items() if name not in names}
    return TABLES_4 | {"winner": create("winner", columns, KEY_3)}


TABLES_3, TABLES_2 = _without("routing"), _without("routing", "margin")
OLDER = {2: TABLES_2, 3: TABLES_3, 4: TABLES_4}
"""Of formats that lack no more than tables and columns."""
