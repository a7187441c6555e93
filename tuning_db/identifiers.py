"""Numbers of rows that are the same wherever they are referred to."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, TypeVar, cast

from sqlalchemy import Select, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from autotopk.candidate import Candidate
from autotopk.key import TuningKey
from autotopk.tuning_db.models import Base

T = TypeVar("T")


class Met:
    """What stays as it is of the rows that a transaction meets: looked up once, also by the transactions after it."""

    def __init__(self, before: "Met | None" = None) -> None:
        """Set up, for a transaction after others."""
        self._known: dict[object, Any] = {} if before is None else before._known
        self._new: dict[object, Any] = {}

    def number(self, session: Session, table: type[Base], record: Candidate | TuningKey) -> int:
        """Of the row of a record, which is added first where there is none."""
        return self.once(record, lambda: row_id(session, table, asdict(record)))

    def once(self, what: object, look_up: Callable[[], T]) -> T:
        """What a look-up finds, or found."""
        for found in (self._known, self._new):
            if what in found:
                return cast(T, found[what])
        self._new[what] = looked_up = look_up()
        return looked_up

    def keep(self) -> None:
        """For later transactions: this one is committed."""
        self._known |= self._new


def row_id(session: Session, table: type[Base], columns: Mapping[str, Any], unique: tuple[str, ...] = ()) -> int:
    """The row whose unique columns (all, unless named) are these, added first where there is none."""
    names = unique or tuple(columns)
    query, values = _finding(table, names), {name: columns[name] for name in names}
    connection = session.connection()
    found = connection.scalar(query, values)
    if found is None:
        # on a server another tuner may add the same meanwhile
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        places = None if not unique else list(unique)
        connection.execute(dialect.insert(table).on_conflict_do_nothing(index_elements=places), [dict(columns)])
        found = connection.scalars(query, values).one()
    return found


@cache
def _finding(table: type[Base], names: tuple[str, ...]) -> Select[int]:
    """By what is in these columns."""
    return select(table.id).where(*[getattr(table, name) == bindparam(name) for name in names])
