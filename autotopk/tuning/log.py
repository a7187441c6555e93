"""What earlier turns say about the candidates of one key, so that no turn is taken twice."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import hypot

from autotopk.candidate import Candidate
from autotopk.tuning_db.records import Measurement
from autotopk.tuning_db.winners import Evidence

AGREE = 0.1
"""Two races of one candidate tell the same if their ratios differ by no more, or by no more than their margins."""


@dataclass
class Log:
    """The last measurement of each candidate's last code, on one device and key and under one baseline."""

    latest: dict[Candidate, Measurement] = field(default_factory=dict)
    screened: dict[Candidate, Measurement] = field(default_factory=dict)
    """The last good screening: what decides who is raced."""
    raced: dict[Candidate, Measurement] = field(default_factory=dict)
    """The last good race."""
    confirmed: set[Candidate] = field(default_factory=set)
    """Those whose last two good races agree."""
    glimpsed: dict[Candidate, Measurement] = field(default_factory=dict)
    """Screenings too noisy to keep: they say who is raced until a better one is taken."""

    @classmethod
    def of(cls, evidence: Iterable[Evidence], baseline: str) -> "Log":
        """From a database, the oldest first; what was measured beside another torch.topk is left out."""
        log = cls()
        for one in evidence:
            if one.baseline == baseline:
                log.add(one.measurement)
        return log

    def add(self, measurement: Measurement) -> None:
        """Take in the outcome of a turn."""
        candidate = measurement.candidate
        if measurement.status == "noisy":
            if measurement.stage == "screen":
                self.glimpsed[candidate] = measurement
            return
        before = self.latest.get(candidate)
        if before is not None and before.identity.code != measurement.identity.code:
            self.forget(candidate)
        self.latest[candidate] = measurement
        if measurement.status != "ok":
            return
        if measurement.stage == "screen":
            self.screened[candidate] = measurement
            return
        earlier = self.raced.get(candidate)
        self.raced[candidate] = measurement
        if earlier is not None and _agree(earlier, measurement):
            self.confirmed.add(candidate)
        else:
            self.confirmed.discard(candidate)

    def forget(self, candidate: Candidate) -> None:
        """Drop what was measured of a candidate: it compiles to other code now."""
        for kept in (self.latest, self.screened, self.raced, self.glimpsed):
            kept.pop(candidate, None)
        self.confirmed.discard(candidate)

    def ratios(self) -> dict[Candidate, float | None]:
        """Every candidate that had its turn, with its ratio to torch.topk; None where it failed and is blocked."""
        return {one: m.ratio if m.status == "ok" else None for one, m in self.latest.items()}

    def screening(self, candidate: Candidate) -> Measurement | None:
        """The last good screening, else the last noisy one."""
        return self.screened.get(candidate) or self.glimpsed.get(candidate)

    def good(self, among: Iterable[Candidate]) -> dict[Candidate, float]:
        """The screened ratios of those candidates that did not fail since."""
        screenings = (
            (one, self.screening(one)) for one in among if one not in self.latest or self.latest[one].status == "ok"
        )
        return {one: seen.ratio for one, seen in screenings if seen is not None and seen.ratio is not None}

    def decided(self, contenders: Sequence[Candidate], rounds: int) -> bool:
        """Whether all of them ran in races of at least so many rounds."""
        return all(one in self.raced and len(self.raced[one].samples_us) >= rounds for one in contenders)


def _agree(one: Measurement, other: Measurement) -> bool:
    if one.ratio is None or other.ratio is None:
        return False
    return abs(one.ratio / other.ratio - 1) <= max(AGREE, hypot(one.margin or 0.0, other.margin or 0.0))
