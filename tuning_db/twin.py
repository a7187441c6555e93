"""The winners as JSON, for people."""

import json
from dataclasses import asdict

from autotopk.candidate import Candidate
from autotopk.tuning_db.records import Winner


def to_json(format: int, winners: tuple[Winner, ...]) -> str:
    """Knobs as an object, devices once."""
    devices = {winner.device.fingerprint: asdict(winner.device) for winner in winners}
    listed = [
        {
            **asdict(winner),
            "device": winner.device.fingerprint,
            "candidate": _as_object(winner.candidate),
            "runner_up": winner.runner_up and _as_object(winner.runner_up),
        }
        for winner in winners
    ]
    return json.dumps({"format": format, "devices": devices, "winners": listed}, indent=2) + "\n"


def _as_object(candidate: Candidate) -> dict[str, object]:
    return {"strategy": candidate.strategy, "knobs": candidate.knobs}
