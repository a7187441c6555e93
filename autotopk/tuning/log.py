"""What earlier turns say about the candidates of one key, so that no turn is taken twice."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from autotopk.candidate import Candidate
from autotopk.tuning_db.records import Measurement
from autotopk.tuning_db.winners import Evidence


@dataclass
class Log:
    """The last measurement of each candidate's last code, on one device and key and under one baseline."""

    latest: dict[Candidate, Measurement] = field(default_factory=dict)
    screened: dict[Candidate, Measurement] = field(default_factory=dict)
    """The last good screening: what decides who is raced."""
    raced: dict[Candidate, Measurement] = field(default_factory=dict)
    """The last good race."""

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
        before = self.latest.get(candidate)
        if before is not None and before.identity.code != measurement.identity.code:
            self.forget(candidate)
        self.latest[candidate] = measurement
        if measurement.status == "ok":
            {"screen": self.screened, "race": self.raced}[measurement.stage][candidate] = measurement

    def forget(self, candidate: Candidate) -> None:
        """Drop what was measured of a candidate: it compiles to other code now."""
        for kept in (self.latest, self.screened, self.raced):
            kept.pop(candidate, None)

    def ratios(self) -> dict[Candidate, float | None]:
        """Every candidate that had its turn, with its ratio to torch.topk; None where it failed and is blocked."""
        return {one: m.ratio if m.status == "ok" else None for one, m in self.latest.items()}

    def good(self, among: Iterable[Candidate]) -> dict[Candidate, float]:
        """The screened ratios of those candidates that did not fail since."""
        ratios = {one: self.screened[one].ratio for one in among if one in self.screened}
        return {one: r for one, r in ratios.items() if r is not None and self.latest[one].status == "ok"}

    def decided(self, contenders: Sequence[Candidate], rounds: int) -> bool:
        """Whether all of them ran in races of at least so many rounds."""
        return all(one in self.raced and len(self.raced[one].samples_us) >= rounds for one in contenders)
