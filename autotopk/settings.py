"""Environment variables and folders, read in one place."""

import os
from pathlib import Path

from autotopk.errors import AutotopkError


def cache_dir() -> Path:
    """Folder of compiled kernels, the tuning database and the user's winners.

    `AUTOTOPK_CACHE_DIR`, else the platform's cache folder for autotopk.
    """
    if path := os.environ.get("AUTOTOPK_CACHE_DIR"):
        return Path(path).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_path("autotopk", appauthor=False))


def kernel_dir() -> Path:
    """Folder of compiled kernels."""
    return cache_dir() / "kernels"


def database_path() -> Path:
    """The tuning database that `autotopk tune` writes."""
    return cache_dir() / "tuning.sqlite"


def user_winners_path() -> Path:
    """The winners that `autotopk tune` publishes for this user."""
    return cache_dir() / "winners.sqlite"


def deployed_winners_path() -> Path | None:
    """`AUTOTOPK_DB`: the winners that a deployment brings along."""
    path = os.environ.get("AUTOTOPK_DB")
    return Path(path).expanduser() if path else None


def shipped_winners_path() -> Path | None:
    """The winners inside the package, unless `AUTOTOPK_SHIPPED=0`."""
    if os.environ.get("AUTOTOPK_SHIPPED", "1") == "0":
        return None
    return Path(__file__).parent / "tuning_db" / "shipped" / "winners.sqlite"


def misses_path() -> Path | None:
    """`AUTOTOPK_MISSES`: where problems without a tuned winner are written when the process ends."""
    path = os.environ.get("AUTOTOPK_MISSES")
    return Path(path).expanduser() if path else None


def forced_strategy() -> str | None:
    """`AUTOTOPK_STRATEGY`: the name of a strategy to use wherever it is able."""
    return os.environ.get("AUTOTOPK_STRATEGY") or None


def max_contention() -> float:
    """`AUTOTOPK_MAX_CONTENTION`: the share of a CPU's time that other processes may have while it is tuned, else 0.05.

    Two busy loops beside two threads make it 0.5, idle machines stay below 0.01. Raises AutotopkError.
    """
    text = os.environ.get("AUTOTOPK_MAX_CONTENTION") or "0.05"
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise AutotopkError(f"AUTOTOPK_MAX_CONTENTION={text!r} is not a number from 0 to 1")
    return share
