"""Do tuning runs choose alike? `python scripts/flips.py FIRST.sqlite SECOND.sqlite ... [--json FILE]`.

Each database is compared with the one before it: of runs on several GPUs and on one, or of one database copied after
each of several runs with `--force`. Where two have other winners for a workload, each tells by its own last races how
much slower the other's winner is: a tie at most 2 % or the joint 95 % margin from it. A flip is outside of the
tie band where whoever raced both says that it is none: then the two contradict each other.
"""

import json
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from autotopk.candidate import Candidate
from autotopk.key import TuningKey
from autotopk.tuning_db.records import Measurement
from autotopk.tuning_db.store import Store
from autotopk.tuning_db.winners import SAME, joint_margin, ratio_of

Place = tuple[str, TuningKey]
"""A device's fingerprint, and what was asked of it."""

Raced = Mapping[Candidate, Measurement]
"""The last race of each."""


@dataclass(frozen=True)
class Flip:
    """Two winners of one workload."""

    key: str
    before: str
    after: str
    gaps: tuple[float | None, ...]
    """How much slower the other's winner is, as a fraction, by the first database and by the second; None unknown."""
    bands: tuple[float | None, ...]
    """Within what it is a tie."""

    @property
    def outside(self) -> bool:
        """Of the tie band, by all that raced both; also where nobody did."""
        told = [
            gap > band for gap, band in zip(self.gaps, self.bands, strict=True) if gap is not None and band is not None
        ]
        return all(told)


def read(path: Path) -> tuple[dict[Place, Candidate], dict[Place, Raced]]:
    """The winners, and what they raced against."""
    with Store.open(path, read_only=True) as store:
        winners = {(one.device.fingerprint, one.key): one.candidate for one in store.winners()}
        raced: dict[Place, dict[Candidate, Measurement]] = {}
        for one in (found.measurement for found in store.evidence()):
            if one.stage == "race" and one.status == "ok":
                raced.setdefault((one.device.fingerprint, one.key), {})[one.candidate] = one
    return winners, dict(raced)


def gap(raced: Raced, mine: Candidate, other: Candidate) -> tuple[float | None, float | None]:
    """How much slower the other is, and the tie band; None where they were not both raced."""
    if mine not in raced or other not in raced:
        return None, None
    own, its = raced[mine], raced[other]
    return ratio_of(its) / ratio_of(own) - 1, max(SAME, joint_margin(own, its))


def flips(first: Path, second: Path) -> tuple[int, Iterator[Flip]]:
    """How many workloads both have winners of, and those whose winners differ."""
    (before, raced_before), (after, raced_after) = read(first), read(second)
    both = [place for place in before if place in after]

    def found() -> Iterator[Flip]:
        for place in both:
            if (old := before[place]) != (new := after[place]):
                sides = (
                    gap(raced_before.get(place, {}), old, new),
                    gap(raced_after.get(place, {}), new, old),
                )
                gaps, bands = zip(*sides, strict=True)
                yield Flip(str(place[1]), str(old), str(new), gaps, bands)

    return len(both), found()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("databases", type=Path, nargs="+")
    parser.add_argument("--json", type=Path, help="where the figures go as well")
    asked = parser.parse_args(arguments)
    document = []
    for first, second in pairwise(asked.databases):
        count, found = flips(first, second)
        listed = list(found)
        outside = sum(one.outside for one in listed)
        print(f"{first.name}, {second.name}: {count} workloads, {len(listed)} flips, {outside} outside of the tie band")
        for one in listed:
            told = " and ".join("not raced" if of is None else f"{of:+.1%}" for of in one.gaps)
            print(f"  {'OUTSIDE ' if one.outside else ''}{one.key}: {one.before} to {one.after}, slower by {told}")
        document.append(
            {"databases": [first.name, second.name], "workloads": count, "flips": [asdict(one) for one in listed]}
        )
    if asked.json:
        asked.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
