"""What differs between two files of winners: `autotopk diff`."""

from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Literal, get_args

from autotopk.tuning_db import artifact
from autotopk.tuning_db.records import Winner

Change = Literal["added", "removed", "changed"]


@dataclass(frozen=True)
class Changed:
    """A winner that two files have not alike."""

    change: Change
    workload: str
    device: str
    old: Winner | None
    new: Winner | None


@dataclass(frozen=True)
class Differences:
    """Between two files of winners."""

    winners: list[Changed]
    kernels: dict[str, Change]
    """By name, as far as both files are bundles."""
    predictions: bool = False
    """Whether other numbers were fitted to what was measured."""

    @property
    def any(self) -> bool:
        """Whether anything differs."""
        return bool(self.winners or self.kernels or self.predictions)

    def lines(self) -> list[str]:
        """How much, in words."""
        if not self.any:
            return ["the same winners and kernels"]
        lines = []
        for what, changes in (("winners", [one.change for one in self.winners]), ("kernels", [*self.kernels.values()])):
            counts = [f"{changes.count(one)} {one}" for one in get_args(Change) if one in changes]
            lines.append(f"{what}: {', '.join(counts) or 'the same'}")
        return [*lines, "predictions: changed"] if self.predictions else lines


def compare_files(old: Path, new: Path) -> Differences:
    """What differs from one bundle or winners file to another. Raises ArtifactError."""
    (ours, our_bundle), (theirs, their_bundle) = artifact.opened(old), artifact.opened(new)
    before, after = (
        {(one.device.fingerprint, *astuple(one.key)): one for one in found.winners()} for found in (ours, theirs)
    )
    winners = [
        Changed(_change(one, other), str(some.key), some.device.fingerprint, one, other)
        for place in sorted({*before, *after})
        if (one := before.get(place)) != (other := after.get(place)) and (some := one or other)
    ]
    predictions = ours.fitted != theirs.fitted
    if our_bundle is None or their_bundle is None:
        return Differences(winners, {}, predictions)
    was, is_ = our_bundle.kernels, their_bundle.kernels
    names = sorted(name for name in {*was, *is_} if was.get(name) != is_.get(name))
    return Differences(winners, {name: _change(was.get(name), is_.get(name)) for name in names}, predictions)


def _change(old: object, new: object) -> Change:
    return "added" if old is None else "removed" if new is None else "changed"
