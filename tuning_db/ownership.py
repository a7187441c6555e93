"""Which files autotopk wrote: those of a publication may be replaced, others never."""

import os
import re
from pathlib import Path

from autotopk import settings
from autotopk.errors import ArtifactError
from autotopk.files import open_regular

APPLICATION_ID = int.from_bytes(b"atkW")
"""Marks the SQLite file as a winners file."""

TWIN = rb'\{\n  "format": \d+,\n  "(devices|winners)": '
"""How the JSON twin begins."""


def is_winners_file(path: Path) -> bool:
    """Whether a file says that it is one, whatever its state."""
    try:
        with open_regular(path) as file:
            header = file.read(72)
    except OSError:
        return False
    return header.startswith(b"SQLite format 3\0") and header[68:] == APPLICATION_ID.to_bytes(4)


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
            raise ArtifactError(f"{file} is no file that autotopk wrote, and is left alone: choose another name")


def beside(path: Path) -> tuple[Path, Path]:
    """The JSON twin and the checksums of a winners file."""
    return path.with_suffix(".json"), path.with_name(f"{path.name}.sha256")


def _begins(path: Path, pattern: bytes) -> bool:
    try:
        with open_regular(path) as file:
            return re.match(pattern, file.read(4096)) is not None
    except OSError:
        return False
