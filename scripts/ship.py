"""Winners to ship: `python -m scripts.ship [TUNING.sqlite [sm_90.check]] [--beaten FILE]`, of a database of any GPU.

What is shipped now is the incumbent, whatever its code, of what the database measured (`tuning_db.winners.derive`): it
stays unless the other is 3 % faster beside torch.topk, in the same run where it was raced again. Where its kernel has
become other machine code, or may have, since nobody compiled it, what was measured of it takes its place, or if it was
not raced again, another that is not 3 % slower: else it is stale then. Stale ones of GPUs that the
database knows nothing of are left out. Predictions are fitted to docs/figures/predictions, as `python -m
scripts.predictions` has them; without a database these alone are shipped anew. Winners that something else has beaten
there since, by 3 %, are counted, and written to a file that `autotopk tune --from-misses` races again. What that GPU
found out about shipped kernels, in `checks` of its cache folder, is added to what is known of those that are shipped:
it checks those alone that nobody had checked.
"""

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from autotopk import settings
from autotopk.candidate import Candidate
from autotopk.errors import AutotopkError
from autotopk.fitted import rows_of
from autotopk.key import TuningKey
from autotopk.packs import Check, Packs, read_check
from autotopk.runtime import borrowing, misses
from autotopk.runtime.winners import is_current
from autotopk.tuning import bounds
from autotopk.tuning.fitting import Times
from autotopk.tuning_db import artifact
from autotopk.tuning_db.records import Winner
from autotopk.tuning_db.store import Store
from autotopk.tuning_db.winners import REPLACE, derive
from scripts.predictions import tuned

GONE = "stale, and of another GPU"


Raced = Mapping[tuple[str, TuningKey, Candidate], float]
"""Ratios to torch.topk, of a device, as its fingerprint."""


def chosen(shipped: Iterable[Winner], measured: Iterable[Winner], raced: Raced) -> dict[str, list[Winner]]:
    """By why: every device's and key's winner once; those of `GONE` are not to be shipped.

    An incumbent that was `raced` is compared by that ratio, in one run with the other.
    """
    whys = ("kept", "kept, stale", "measured again", "faster", "new", GONE)
    found: dict[str, list[Winner]] = {why: [] for why in whys}
    measured = list(measured)
    devices = {one.device.fingerprint for one in measured}
    incumbents = {(one.device.fingerprint, one.key): one for one in shipped}
    for one in measured:
        held = incumbents.pop((one.device.fingerprint, one.key), None)
        if held is None:
            found["new"].append(one)
            continue
        again = raced.get((one.device.fingerprint, one.key, held.candidate))
        standing = held.ratio if again is None else again
        if not is_known(held):
            lost = again is None and held.ratio <= one.ratio * (1 - REPLACE)
            found["kept, stale" if lost else "measured again"].append(held if lost else one)
        elif one.candidate != held.candidate and one.ratio <= standing * (1 - REPLACE):
            found["faster"].append(one)
        else:
            found["kept"].append(held)
    for one in incumbents.values():
        gone = one.device.fingerprint not in devices and borrowing.is_stale(one)
        found[GONE if gone else "kept"].append(one)
    return found


def is_known(winner: Winner) -> bool:
    """Whether the program that runs today is for sure the one that was measured."""
    try:
        return is_current(winner) is True
    except AutotopkError:
        return False


def beaten(winners: Iterable[Winner], times: Times, fingerprint: str) -> list[TuningKey]:
    """Problems at which another time of the device on record is shorter than that of its winner by `REPLACE`."""
    found = []
    for one in winners:
        its = times.get(one.key, {}) if one.device.fingerprint == fingerprint else {}
        if one.candidate in its and min(its.values()) <= its[one.candidate] * (1 - REPLACE):
            found.append(one.key)
    return found


def checked(shipped: Check | None, found: Check, codes: Collection[str]) -> Check:
    """Both, of kernels with these codes."""
    both = found if shipped is None else shipped.then(found)
    failed = {code: reason for code, reason in both.failed.items() if code in codes}
    return Check(both.device, both.passed & {*codes}, failed)


def ship_check(path: Path) -> None:
    """Of a file that is named as the one beside the packs. Raises ValueError where it is no such file."""
    folder, found = settings.packs_dir(), read_check(path)
    arch = path.stem.removeprefix("sm_")
    pack = Packs(folder).pack(int(arch)) if folder and arch.isdigit() else None
    if folder is None or found is None or pack is None:
        raise ValueError(
            f"{path} does not say of kernels that are shipped whether they were right, as sm_90.check does"
        )
    codes = {code for *_, code in pack.kernels.values()}
    both = checked(read_check(folder / path.name), found, codes)
    (folder / path.name).write_text(both.to_json())
    print(f"{len(both.passed)} of {len(codes)} kernels of sm_{arch} were right, {len(both.failed)} were not")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("database", nargs="?", type=Path)
    parser.add_argument("check", nargs="?", type=Path)
    parser.add_argument("--beaten", type=Path, metavar="FILE")
    asked = parser.parse_args(arguments)
    if asked.check:
        ship_check(asked.check)
    path = settings.shipped_winners_path()
    assert path is not None
    shipped = list(artifact.read(path))
    found = {"kept": shipped}
    if asked.database:
        with Store.open(asked.database, read_only=True) as store:
            raced = {
                (one.fingerprint, one.key, one.candidate): one.ratio
                for one in store.tried()
                if one.stage == "race" and one.status == "ok" and one.ratio is not None
            }
            measured = derive(store.evidence(), {(one.device.fingerprint, one.key): one.candidate for one in shipped})
        found = chosen(shipped, measured.values(), raced)
    times, device = tuned()
    fitted = [
        row for kind, model in bounds.fit(times, device).items() for row in rows_of(model, device.fingerprint, kind)
    ]
    winners = [one for why, several in found.items() if why != GONE for one in several]
    artifact.publish(winners, path, fitted)
    lost = beaten(winners, times, device.fingerprint)
    print(f"{len(lost)} winners of {device.name} were beaten by other times on record")
    if asked.beaten:
        asked.beaten.write_text("".join(misses.line_of(key, device.fingerprint) for key in lost))
    print(", ".join(f"{len(several)} {why}" for why, several in found.items()))
    print(f"of {Counter(one.candidate.strategy for one in winners)}; {sum(map(borrowing.is_stale, winners))} are stale")


if __name__ == "__main__":
    main()
