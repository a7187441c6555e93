"""Environment variables and folders, read in one place. Nothing here raises: what makes no sense costs one warning."""

import os
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from autotopk.database import Database, Server, named
from autotopk.errors import SelectionError, inert, warn

OFF, ON = ("0", "no", "false", "off"), ("", "1", "yes", "true", "on")

BuildMode = Literal["background", "wait", "never"]
"""Who compiles the kernel that a call would run and that is not there yet: a process beside, the call, nobody."""

PACKAGE = Path(__file__).parent

PACKS = PACKAGE / "packs"
"""Those that are shipped: who looks for a kernel asks for them."""

_warned: set[str] = set()


def _text(variable: str) -> str | None:
    """As `os.environ.get`, by fewer calls: first calls ask for several variables."""
    try:
        return os.environ[variable]
    except KeyError:
        return None


def cache_dir() -> Path:
    """Folder of compiled kernels, the tuning database and the user's winners.

    `AUTOTOPK_CACHE_DIR`, else the platform's cache folder for autotopk; without a home, one among temporary files.
    """
    text = os.environ.get("AUTOTOPK_CACHE_DIR")
    if text and (path := _existing_home(text)):
        return path
    usual = _usual_cache_dir(os.path.expanduser("~"), *map(os.environ.get, _CACHES))
    found = usual or Path(tempfile.gettempdir(), f"autotopk-{_user()}")
    if text:
        _warn(f"AUTOTOPK_CACHE_DIR={inert(text)} names no home that is known here; {found} is used")
    elif usual is None:
        _warn(f"no home is known here; {found} is used, or what AUTOTOPK_CACHE_DIR names")
    return found


_CACHES = ("XDG_CACHE_HOME", "LOCALAPPDATA")
"""What platforms find their cache folder by, beside the user's home."""


@lru_cache(8)  # a first call that looks for a kernel in vain asks for it
def _usual_cache_dir(*told_by: str | None) -> Path | None:
    """The platform's cache folder for autotopk, as long as the home and `_CACHES` are these."""
    import platformdirs

    try:
        return _existing_home(platformdirs.user_cache_dir("autotopk", appauthor=False))
    except RuntimeError:  # as later versions say that there is no home
        return None


def kernel_dir() -> Path:
    """Folder of compiled kernels."""
    return cache_dir() / "kernels"


def database_path() -> Path:
    """The file that `autotopk tune` writes where no other database is named."""
    return cache_dir() / "tuning.sqlite"


def database() -> Database:
    """The user's tuning database: `AUTOTOPK_TUNING_DB`, a file or the URL of a PostgreSQL server, else a file."""
    text = os.environ.get("AUTOTOPK_TUNING_DB")
    try:
        found = named(text) if text else database_path()
    except SelectionError as error:
        _warn(f"AUTOTOPK_TUNING_DB: {error}; {database_path()} is used")
        return database_path()
    return found.expanduser() if isinstance(found, Path) and _existing_home(str(found)) else found


def lease_s() -> float:
    """`AUTOTOPK_LEASE`: seconds that a tuner of a fleet holds a workload without renewing it, 3 to 86400, else 60."""
    return _number("AUTOTOPK_LEASE", 60.0, 3.0, 86400.0)


def patience_s() -> float:
    """`AUTOTOPK_DB_PATIENCE`: seconds for which a lost database server is tried again, 0 to 86400, else 600."""
    return _number("AUTOTOPK_DB_PATIENCE", 600.0, 0.0, 86400.0)


def user_winners_path() -> Path:
    """The winners that `autotopk tune` publishes for this user."""
    return cache_dir() / "winners.sqlite"


def published_path(source: Database) -> Path:
    """Where the winners of a tuning database go: the user's from the user's own, those of any other file beside it.

    Those of another server are in the cache folder.
    """
    own = database()
    if isinstance(source, Server) or isinstance(own, Server):
        same = source == own
    else:
        try:
            same = os.path.samefile(source, own)
        except (OSError, ValueError):  # one of them is not there yet
            same = source == own
    if same:
        return user_winners_path()
    if isinstance(source, Server):
        return cache_dir() / f"{source.name}.winners.sqlite"
    return source.parent / f"{source.stem}.winners.sqlite"


def deployed_winners_path() -> Path | None:
    """`AUTOTOPK_DB`: the winners, or the bundle with their kernels, that a deployment brings along."""
    return _path("AUTOTOPK_DB")


def deployed_key_path() -> Path | None:
    """`AUTOTOPK_DB_KEY`: the public key that must have signed the bundle which `AUTOTOPK_DB` names."""
    return _path("AUTOTOPK_DB_KEY")


def shipped_winners_path() -> Path | None:
    """The winners inside the package, unless `AUTOTOPK_SHIPPED` is 0, no, false or off."""
    shipped = PACKAGE / "tuning_db" / "shipped" / "winners.sqlite"
    return shipped if _is_on("AUTOTOPK_SHIPPED", usual=True) else None


def packs_dir() -> Path | None:
    """Folder of the kernels that are shipped compiled: inside the package, or what `AUTOTOPK_PACKS` names.

    None where that is 0, no, false or off.
    """
    text = (_text("AUTOTOPK_PACKS") or "").strip()
    if not text:
        return PACKS
    if text.lower() in OFF:
        return None
    return PACKS if text.lower() in ON else _path("AUTOTOPK_PACKS")


def misses_path() -> Path | None:
    """`AUTOTOPK_MISSES`: where problems without a tuned winner are written."""
    return _path("AUTOTOPK_MISSES")


def forced_strategy() -> str | None:
    """`AUTOTOPK_STRATEGY`: the name of a strategy to use wherever it is able."""
    return _text("AUTOTOPK_STRATEGY") or None


def patches() -> bool:
    """`AUTOTOPK_PATCH`: whether torch.topk is patched as soon as torch is imported."""
    return _is_on("AUTOTOPK_PATCH")


def counts_calls() -> bool:
    """`AUTOTOPK_STATS`: whether calls are counted from the start, see `autotopk.stats`."""
    return _is_on("AUTOTOPK_STATS")


def nvtx() -> bool:
    """`AUTOTOPK_NVTX`: whether every call is a range of NVTX."""
    return _is_on("AUTOTOPK_NVTX")


def peers() -> bool:
    """`AUTOTOPK_PEERS`: whether GPUs of one machine read each other's results from memory; else NCCL brings them."""
    return _is_on("AUTOTOPK_PEERS", usual=True)


def build_mode() -> BuildMode:
    """`AUTOTOPK_BUILD`: what happens where a call would run a kernel that is not compiled yet, else background."""
    word = (_text("AUTOTOPK_BUILD") or "").strip().lower()
    if not word:
        return "background"
    for mode in get_args(BuildMode):
        if word == mode:
            return mode  # type: ignore[no-any-return]
    _warn(f"AUTOTOPK_BUILD={inert(word)} is none of {', '.join(get_args(BuildMode))}: background is taken")
    return "background"


def max_contention() -> float:
    """`AUTOTOPK_MAX_CONTENTION`: the share of a CPU's time that other processes may have while it is tuned, else 0.05.

    Two busy loops beside two threads make it 0.5, idle machines stay below 0.01.
    """
    return _number("AUTOTOPK_MAX_CONTENTION", 0.05, 0.0, 1.0)


def _number(variable: str, usual: float, least: float, most: float) -> float:
    """What a variable says, a number between two others."""
    text = os.environ.get(variable) or str(usual)
    try:
        number = float(text)
    except ValueError:
        number = least - 1
    if least <= number <= most:
        return number
    _warn(f"{variable}={inert(text)} is not a number from {least:g} to {most:g}: {usual:g} is taken")
    return usual


def _is_on(variable: str, *, usual: bool = False) -> bool:
    """Of a switch that is usually off, or on."""
    word = os.environ.get(variable, "").strip().lower()
    if word not in (*OFF, *ON):
        state = "on" if usual else "off"
        _warn(f"{variable}={inert(word)} is neither of {', '.join(OFF)} nor of {', '.join(ON[1:])}: it is {state}")
    return word not in OFF if usual else word in ON[1:]


def _path(variable: str) -> Path | None:
    """What a variable names. An unknown home stays as it is written, as in a shell, and is then missing."""
    text = _text(variable)
    return Path(os.path.expanduser(text)) if text else None


def _existing_home(text: str) -> Path | None:
    """A folder, unless it begins with the home of nobody: made, it would be a folder named ~."""
    path = os.path.expanduser(text)
    return None if path.startswith("~") else Path(path)


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else "user"


def _warn(message: str) -> None:
    """Warn once a process."""
    if message not in _warned:
        _warned.add(message)
        warn(message)
