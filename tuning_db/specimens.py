"""How far processors of one model differ: what the same code of a candidate took of torch.topk's time on each."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from statistics import median

from sqlalchemy.orm import Session

from autotopk.candidate import TORCH_TOPK
from autotopk.key import TuningKey
from autotopk.tuning_db.leases import shape
from autotopk.tuning_db.models import (
    CandidateRow,
    DeviceRow,
    EnvironmentRow,
    MeasurementRow,
    RunRow,
)
from autotopk.tuning_db.records import Specimens
from autotopk.tuning_db.rows import checked, key_from, select_evidence
from autotopk.tuning_db.store import Store
from autotopk.tuning_db.winners import difference

Race = tuple[tuple[str, ...], str, float]
"""Strategy, configuration, code and baseline; specimen; ratio."""


def differences(store: Store) -> list[Specimens]:
    """Of every model that was raced on more than one of, by fingerprint. Raises DatabaseError."""
    races: defaultdict[str, defaultdict[TuningKey, list[Race]]] = defaultdict(lambda: defaultdict(list))
    for fingerprint, key, race in store.read(lambda session: list(_races(session))):
        races[fingerprint][key].append(race)
    found = (_of_model(fingerprint, races[fingerprint]) for fingerprint in sorted(races))
    return [one for one in found if one.count > 1]


def _races(session: Session) -> Iterator[tuple[str, TuningKey, Race]]:
    """The good races on specimens that were noted, the oldest first."""
    candidate = (CandidateRow.strategy, CandidateRow.config, MeasurementRow.code, EnvironmentRow.baseline)
    columns = (DeviceRow.fingerprint, *candidate, RunRow.specimen, MeasurementRow.ratio, *shape())
    query = (
        select_evidence()
        .with_only_columns(*columns, maintain_column_froms=True)
        .where(MeasurementRow.stage == "race", MeasurementRow.status == "ok", RunRow.specimen != "")
    )
    for row in checked(session, query):
        fingerprint, strategy, config, code, baseline, specimen, ratio, *key = row.values()
        if (strategy, config) != (TORCH_TOPK.strategy, TORCH_TOPK.config):  # which is as fast as itself
            yield fingerprint, key_from(*key), ((strategy, config, code, baseline), specimen, ratio)


def _of_model(fingerprint: str, races: Mapping[TuningKey, Iterable[Race]]) -> Specimens:
    count = len({specimen for of_key in races.values() for _, specimen, _ in of_key})
    apart = {key: found for key, of_key in races.items() if (found := difference(of_key)) > 0}
    widest = max(apart, key=apart.__getitem__, default=None)
    return Specimens(
        device=fingerprint,
        count=count,
        workloads=len(apart),
        median=median(apart.values()) if apart else None,
        widest=apart[widest] if widest else None,
        key=widest,
    )
