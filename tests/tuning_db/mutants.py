"""Files that no publisher and no tuner wrote: seeded changes of good ones, from flipped bits to odd values in order."""

import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from autotopk.tuning_db import artifact, formats
from autotopk.tuning_db.columns import DEVICE

JSON = [
    "",
    "5",
    "[]",
    "{}",
    "null",
    "nope",
    "[5]",
    '["5"]',
    "[NaN]",
    "[1e999]",
    "[0]",
    "[-1.5]",
    "[[1.5]]",
    "[true]",
    '{"a":1}',
    '{"a":null}',
    '{"a":"\\u001b[31m"}',
    f'{{"a":{"9" * 5000}}}',
    f'{{"a":{"9" * 400}}}',
    "[" * 3000,
    '{"chunk":-1,"method":"chunked"}',
    '{"chunk":true,"method":"sort"}',
    '{"chunk":512.0,"method":"chunked"}',
    '{"chunk":1e400,"method":"chunked"}',
]
VALUES = [
    None,
    0,
    1,
    -1,
    2**31,
    2**63 - 1,
    -(2**63),
    1.0,
    8.0,
    1.5,
    5e-324,
    1e308,
    float("inf"),
    "5",
    "nan",
    "ok",
    "x" * 5000,
    "[/red]",
    "\x1b[2Jcleared",
    "\u202etxt",
    "a\nb",
    "\0",
    "masked_argmax",
    "lane_merge",
    "block_radix",
    "torch_fallback",
    "os.system",
    "float33",
    "float64",
    b"",
    b"\x00\xff",
    *JSON,
]

Sql = tuple[str, Sequence[object]]


def edited(path: Path, *statements: Sql, untyped: str | None = None) -> None:
    """Run statements on a file; through a table whose columns convert nothing, if one is named."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        if untyped:
            (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", [untyped]).fetchone()
            bare = sql
            for kind in (" TEXT", " INTEGER", " REAL", " VARCHAR", " FLOAT", " DOUBLE", " JSON", " BOOLEAN"):
                bare = bare.replace(kind, "")
            connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", [bare, untyped])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement, values in statements:
            with suppress(sqlite3.Error, OverflowError):
                connection.execute(statement, list(values))
        if untyped:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", [sql, untyped])


def flip_bits(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    end = draw.choice([100, 300, len(content), len(content), len(content)])
    for _ in range(draw.randint(1, 8)):
        content[draw.randrange(end)] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def cut(path: Path, draw: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: draw.choice([draw.randrange(len(content)), draw.randrange(len(content)) & -4096])])


def append(path: Path, draw: random.Random) -> None:
    with path.open("ab") as file:
        file.write(draw.choice([b"\0", b"\n", bytes(4096), draw.randbytes(draw.randint(1, 9000))]))


def move_pages(path: Path, draw: random.Random) -> None:
    """One page over another, or both exchanged, or one cleared."""
    content = path.read_bytes()
    pages = [content[at : at + 4096] for at in range(0, len(content), 4096)]
    one, other = draw.randrange(len(pages)), draw.randrange(len(pages))
    how = draw.randrange(3)
    pages[one], old = bytes(4096) if how == 0 else pages[other], pages[one]
    if how == 2:
        pages[other] = old
    path.write_bytes(b"".join(pages))


def change_schema(path: Path, draw: random.Random) -> None:
    """Tables that are others, views and triggers of infinite work, other numbers in the header."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        one, other = draw.choice(tables), draw.choice(tables)
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
        column = draw.choice([row[1] for row in connection.execute(f"PRAGMA table_info({one})")])
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [other]).fetchone()
        connection.execute("PRAGMA writable_schema = ON")
        for statement in draw.choice(
            [
                [f"UPDATE sqlite_master SET rootpage = {root} WHERE name = '{one}'"],
                [f"ALTER TABLE {one} RENAME TO spare", f"ALTER TABLE {other} RENAME TO {one}"],
                [f"DROP TABLE {one}", f"CREATE VIEW {one} AS {endless}"],
                [f"CREATE TRIGGER more BEFORE INSERT ON {one} BEGIN {endless}; END"],
                [f"CREATE VIEW more AS {endless}"],
                [f"ALTER TABLE {one} ADD COLUMN more DEFAULT 'x'"],
                [f"ALTER TABLE {one} RENAME COLUMN {column} TO other"],
                [f"UPDATE sqlite_master SET sql = replace(sql, '{column} ', '\"{'x' * 3000}\" ') WHERE name = '{one}'"],
                [f"UPDATE sqlite_master SET sql = 'nonsense' WHERE name = '{one}'"],
                [f"DELETE FROM sqlite_master WHERE name = '{one}'"],
                [f"PRAGMA user_version = {draw.choice([-1, 0, 1, 2, 3, 4, 2**31 - 1])}"],
                [f"PRAGMA application_id = {draw.choice([0, -1, 12345])}"],
            ]
        ):
            with suppress(sqlite3.Error):
                connection.execute(statement)


def change_winners(path: Path, draw: random.Random) -> None:
    """Odd values, missing and further rows, under a digest that holds."""
    table = draw.choice(["winner", "winner", "winner", "device"])
    columns = list(formats.COLUMNS if table == "winner" else DEVICE)
    where = draw.choice(["1", "1", f"{columns[0]} LIKE 'cpu%'", "k = 8", "rows = 4 AND cols = 1024 AND k = 8"])
    column, value = draw.choice(columns), draw.choice(VALUES)
    marks = ", ".join("?" * len(columns))
    statements: list[Sql] = [
        (f"UPDATE {table} SET {column} = ? WHERE {where}", [value]),
        (f"UPDATE {table} SET {column} = ? WHERE {where}", [value]),
        (f"UPDATE {table} SET {column} = ? WHERE {where}", [value]),
        (f"UPDATE {table} SET {column} = CAST(x'ff41' AS TEXT) WHERE {where}", []),
        (f"UPDATE {table} SET {column} = {draw.choice(columns)} WHERE {where}", []),
        (f"DELETE FROM {table} WHERE {where}", []),
        (f"INSERT INTO {table} VALUES ({marks})", [draw.choice(VALUES) for _ in columns]),
    ]
    edited(path, draw.choice(statements), untyped=draw.choice([None, table]))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection, suppress(sqlite3.Error, ValueError):
        rows = [*artifact._device_rows(connection), *artifact._rows(connection)]
        connection.execute("UPDATE digest SET sha256 = ?", [artifact._digest(rows)])


def change_fits(path: Path, draw: random.Random) -> None:
    """Odd numbers, names and parts of what was fitted, under a digest that holds."""
    columns = list(formats.FITTED)
    numbers = [
        "[1e308,1e308]",
        "[-1,-1,-1]",
        "[0]",
        f"[{'9' * 400}]",
        f"[{'1e308,' * 60}1]",
        f"[{'-1,' * 60}0]",
        "[7.5]",
    ]
    value = draw.choice([*VALUES, *numbers * 6])
    where = draw.choice(["1", "part = 'point'", "part = 'strategy'", "part = 'candidate'", "part = 'regions'"])
    statements: list[Sql] = [
        (f"UPDATE fitted SET numbers = ? WHERE {where}", [value]),
        (f"UPDATE fitted SET numbers = ? WHERE {where}", [value]),
        (f"UPDATE fitted SET numbers = replace(numbers, ?, ?) WHERE {where}", draw.choices("0123.,-e", k=2)),
        (f"UPDATE fitted SET {draw.choice(columns)} = ? WHERE {where}", [value]),
        (
            f"UPDATE fitted SET part = ? WHERE {where}",
            [draw.choice(["point", "strategy", "candidate", "regions", "odd"])],
        ),
        (f"DELETE FROM fitted WHERE {where}", []),
        ("INSERT INTO fitted VALUES (?, ?, ?, ?, ?)", [draw.choice(VALUES) for _ in columns]),
    ]
    edited(path, draw.choice(statements), untyped=draw.choice([None, "fitted"]))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection, suppress(sqlite3.Error, ValueError):
        rows = [*artifact._device_rows(connection), *artifact._rows(connection), *artifact._fitted_rows(connection)]
        connection.execute("UPDATE digest SET sha256 = ?", [artifact._digest(rows)])


def change_measurements(path: Path, draw: random.Random) -> None:
    """Odd values, missing and further rows in any table."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for change in ("update", "delete"):
            connection.execute(f"DROP TRIGGER measurement_refuses_{change}")
        tables = ["measurement"] * 4 + [
            "device",
            "environment",
            "candidate",
            "workload",
            "run",
            "winner",
            "task",
            "task",
        ]
        table = draw.choice(tables)
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    column, where = draw.choice(columns), draw.choice(["1", "id = 1", "id % 3 = 0"])
    statements: list[Sql] = [
        (f"UPDATE {table} SET {column} = ? WHERE {where}", [draw.choice(VALUES)]),
        (f"UPDATE {table} SET {column} = ? WHERE {where}", [draw.choice(VALUES)]),
        (f"UPDATE {table} SET {column} = ? WHERE {where}", [draw.choice(JSON)]),
        (f"UPDATE {table} SET {column} = CAST(x'ff41' AS TEXT) WHERE {where}", []),
        (f"UPDATE {table} SET {column} = {draw.choice(columns)} WHERE {where}", []),
        (f"DELETE FROM {table} WHERE {where}", []),
    ]
    pragma: Sql = ("PRAGMA ignore_check_constraints = ON", [])
    edited(path, pragma, draw.choice(statements), untyped=draw.choice([None, table]))


Mutation = Callable[[Path, random.Random], None]
OF_ANY: list[Mutation] = [flip_bits, flip_bits, cut, append, move_pages, change_schema]
OF_WINNERS: list[Mutation] = [*OF_ANY, *[change_winners] * 8]
OF_FITS: list[Mutation] = [*OF_ANY, *[change_fits] * 12]
OF_DATABASES: list[Mutation] = [*OF_ANY, *[change_measurements] * 8]


def mutate(content: bytes, path: Path, seed: int, mutations: list[Mutation]) -> str:
    """Write a changed file. Returns what was done."""
    draw = random.Random(seed)
    path.write_bytes(content)
    mutation = draw.choice(mutations)
    mutation(path, draw)
    return f"{mutation.__name__} by seed {seed}"
