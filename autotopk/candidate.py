"""One strategy in one configuration, by name: what is compiled, checked, timed, stored and chosen."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

Knob = str | int | float | bool


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """Plain text, so that it travels between processes and into databases."""

    strategy: str
    config: str
    """Canonical JSON of its knobs, see `knobs_json`."""

    @property
    def knobs(self) -> dict[str, Knob]:
        """The configuration as plain values. Raises ValueError where it is no configuration."""
        return parse_knobs(self.config)

    def __str__(self) -> str:
        return f"{self.strategy} {self.config}"


TORCH_TOPK = Candidate("torch_fallback", '{"chunk":0,"method":"topk"}')
"""torch.topk as it is: what every other candidate must beat."""


def knobs_json(knobs: Mapping[str, Knob]) -> str:
    """The canonical text of a configuration: sorted keys, no spaces."""
    return json.dumps(knobs, sort_keys=True, separators=(",", ":"))


def parse_knobs(text: str) -> dict[str, Knob]:
    """The inverse of `knobs_json`. Raises ValueError on anything but an object of texts, finite numbers and bools."""
    try:
        knobs = json.loads(text)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if type(knobs) is not dict or not all(map(_is_knob, knobs.values())):
        raise ValueError("not a JSON object of texts, finite numbers, true and false")
    return knobs


def _is_knob(value: object) -> bool:
    return isinstance(value, (str, int)) or (type(value) is float and isfinite(value))
