"""Ranks of a job that answer alike: the winners of rank 0 on all of them."""

from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from autotopk import settings
from autotopk.errors import ArtifactError
from autotopk.runtime import winners
from autotopk.runtime.state import Runtime, default

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

File = tuple[str, str, bytes]
"""(label of a layer, name, content)."""


def sync_winners(group: "ProcessGroup | None" = None, *, runtime: Runtime = default) -> str:
    """Have every rank of a process group use the winners that rank 0 has, at start-up and on all ranks alike.

    Digests are compared, and the files of rank 0 sent where they differ: what `AUTOTOPK_DB` names there, the user's and
    the shipped winners. Until `warmup` was called on all ranks, which waits for them, no kernel that a background build
    makes takes over from the one that answered first. No call of `topk` communicates. `reload` ends it.

    Args:
        group: of torch.distributed; all ranks by default.
        runtime: whose winners they are.

    Returns:
        The SHA-256 digest of the winners that all ranks use, in hexadecimal digits.

    Raises:
        RuntimeError: torch.distributed has no process group yet.
        ArtifactError: a rank cannot keep what it was sent.
    """
    from torch import distributed

    own = _files()
    digests: list[str] = [""] * distributed.get_world_size(group)
    distributed.all_gather_object(digests, _digest(own), group)
    first = digests[0]
    layers: winners.Layers = winners.layers()
    if any(one != first for one in digests):
        sent: list[list[File] | None] = [own]
        source = 0 if group is None else distributed.get_global_rank(group, 0)
        distributed.broadcast_object_list(sent, source, group)
        files = sent[0]
        assert files is not None
        if _digest(own) != first:
            layers = _kept(files, settings.cache_dir() / "agreed" / first)
    runtime.agree(layers, partial(distributed.barrier, group))
    return first


def _files() -> list[File]:
    """Of the layers that are there."""
    found = []
    for label, path in winners.layers():
        try:
            if path is not None:
                found.append((label, path.name, path.read_bytes()))
        except OSError:  # as where winners are read, which says so
            continue
    return found


def _digest(files: list[File]) -> str:
    told = sha256()
    for label, _, content in files:
        told.update(f"{label} {len(content)} ".encode() + content)
    return told.hexdigest()


def _kept(files: list[File], folder: Path) -> "winners.Layers":
    """The files in a folder, where ranks that share it write the same."""
    from autotopk.files import write_atomically

    layers: list[tuple[str, Path | None]] = []
    try:
        for number, (label, name, content) in enumerate(files):
            path = folder / str(number) / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(path, content)
            layers.append((label, path))
    except OSError as error:
        raise ArtifactError(f"the winners of rank 0 cannot be kept in {folder}: {error}") from error
    return tuple(layers)
