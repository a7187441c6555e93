"""Where a tuning database is: a file, or a PostgreSQL server whose password is shown to nobody."""

import re
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from autotopk.errors import SelectionError

SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
"""Of URLs that name a server."""

_SECRET = re.compile(r"password|passwd|secret", re.IGNORECASE)


class Server:
    """A database on a PostgreSQL server, by its URL. Printed, it has no password."""

    __slots__ = ("_parts", "url")

    def __init__(self, url: str) -> None:
        """Raises SelectionError, which does not quote the URL, where it is none or names no database."""
        try:
            self._parts = urlsplit(url)
            named = self._parts.scheme in SCHEMES and self._parts.path.strip("/") and self._parts.port != 0
        except ValueError:
            named = False
        if not named:
            raise SelectionError("the URL of a tuning database is not postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
        self.url = url

    @property
    def name(self) -> str:
        """Of the database and its host, as a file may be named."""
        text = f"{unquote(self._parts.path.strip('/'))}@{self._parts.hostname or 'local'}"
        return re.sub(r"[^\w.@-]", "_", text)

    def conceal(self, text: str) -> str:
        """A text from a driver without the passwords of this URL."""
        secrets = [self._parts.password or "", *(value for name, value in self._query() if _SECRET.search(name))]
        for secret in sorted({form for one in secrets for form in (one, unquote(one), quote(one, safe=""))}, key=len):
            if secret:
                text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", text)
        return text

    def __str__(self) -> str:
        user, place = self._parts.username, self._parts.netloc.rpartition("@")[2]
        before = f"{user}@" if user else ""
        query = "&".join(f"{name}={'***' if _SECRET.search(name) else value}" for name, value in self._query())
        return f"postgresql://{before}{place}{self._parts.path}{'?' if query else ''}{query}"

    def __repr__(self) -> str:
        return f"Server({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Server) and self.url == other.url

    def __hash__(self) -> int:
        return hash(self.url)

    def _query(self) -> list[tuple[str, str]]:
        return parse_qsl(self._parts.query, keep_blank_values=True)


Database = Path | Server
"""Where a tuning database is."""


def named(text: str) -> Database:
    """A file, or where the text is a URL a server. Raises SelectionError on a URL of something else."""
    if re.match(r"[a-zA-Z][\w+.-]*://", text):
        return Server(text)
    return Path(text)
