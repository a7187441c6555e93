"""Which files autotopk wrote: those of a publication may be replaced, others never."""

import os
import re
from pathlib import Path

from autotopk import settings
from autotopk.errors import ArtifactError
from autotopk.files import open_regular

APPLICATION_ID = int.from_bytes(b"atkW")
"""Marks the SQLite file as a winners file."""

SQLITE = b"SQLite format 3\0"
"""How an SQLite file begins."""

BUNDLE = b"autotopk bundle "
"""How a bundle begins."""

TWIN = rb'\{\n  "format": \d+,\n  "(devices|winners)": '
"""How the JSON twin begins."""


def is_winners_file(path: Path) -> bool:
    """Whether a file says that it is one, whatever its state."""
    try:
        with open_regular(path) as file:
            header = file.read(72)
    except OSError:
        return False
    return header.startswith(SQLITE) and header[68:] == APPLICATION_ID.to_bytes(4)


def is_bundle(path: Path) -> bool:
    """Whether a file says that it is a bundle, whatever its state."""
    return _begins(path, re.escape(BUNDLE))


def holds_winners(path: Path) -> bool:
    """Whether a file says that it is a winners file or a bundle, whatever its state."""
    return is_winners_file(path) or is_bundle(path)


def refuse_to_overwrite(path: Path) -> None:
    """Raise ArtifactError where `publish` would replace a file that it did not write.

    Where this user's winners belong, all is its own, damaged or not.
    """
    if path == settings.user_winners_path():
        return
    twin, checksums = beside(path)
    lines = rf"[0-9a-f]{{64}}  {re.escape(path.name)}\n[0-9a-f]{{64}}  {re.escape(twin.name)}\n"
    for file, pattern in ((path, None), (twin, TWIN), (checksums, os.fsencode(lines))):
        if os.path.lexists(file) and not (is_winners_file(file) if pattern is None else _begins(file, pattern)):
            raise ArtifactError(_refusal(file, "file"))


def refuse_to_overwrite_with_bundle(path: Path) -> None:
    """Raise ArtifactError where a bundle would replace what is none."""
    if os.path.lexists(path) and not is_bundle(path):
        raise ArtifactError(_refusal(path, "bundle"))


def _refusal(path: Path, kind: str) -> str:
    return f"{path} is no {kind} that autotopk wrote, and is left alone: choose another name, or export with --force"


def beside(path: Path) -> tuple[Path, Path]:
    """The JSON twin and the checksums of a winners file."""
    return path.with_suffix(".json"), path.with_name(f"{path.name}.sha256")


def _begins(path: Path, pattern: bytes) -> bool:
    try:
        with open_regular(path) as file:
            return re.match(pattern, file.read(4096)) is not None
    except OSError:
        return False
