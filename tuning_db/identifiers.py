"""Numbers of rows that are the same wherever they are referred to."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from autotopk.tuning_db.models import Base


def row_id(session: Session, table: type[Base], columns: Mapping[str, Any], unique: tuple[str, ...] = ()) -> int:
    """The row whose unique columns (all, unless named) are these, added first where there is none."""
    query = select(table.id).filter_by(**{name: columns[name] for name in unique or columns})
    found = session.scalar(query)
    if found is None:
        # on a server another tuner may add the same meanwhile
        dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
        places = None if not unique else list(unique)
        session.execute(dialect.insert(table).on_conflict_do_nothing(index_elements=places), [dict(columns)])
        found = session.scalars(query).one()
    return found
