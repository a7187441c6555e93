"""Problems that were asked for and had no measured winner: counted, warned about once, written on request."""

import json
import warnings
from collections import Counter
from dataclasses import asdict

from autotopk import settings
from autotopk.device import Device
from autotopk.errors import AutotopkWarning
from autotopk.key import TuningKey


class Misses(Counter[tuple[str, TuningKey]]):
    """How often plans were made without a measured winner, by device fingerprint and key."""

    def __init__(self) -> None:
        super().__init__()
        self._warned: set[str] = set()

    def note(self, key: TuningKey, device: Device) -> None:
        """Count one; the first of a device costs a warning."""
        self[device.fingerprint, key] += 1
        if device.fingerprint not in self._warned:
            self._warned.add(device.fingerprint)
            message = f"nothing like {key} was tuned on {device.name}; `autotopk tune` measures what is fastest here"
            warnings.warn(message, AutotopkWarning, stacklevel=3)

    def clear(self) -> None:
        """Forget counts, and what was warned about."""
        super().clear()
        self._warned.clear()

    def write(self) -> None:
        """Append them to AUTOTOPK_MISSES, one JSON object a line."""
        path = settings.misses_path()
        if path is None or not self:
            return
        lines = [json.dumps({"device": device, "count": count, **asdict(key)}) for (device, key), count in self.items()]
        try:
            with path.open("a") as file:
                file.write("\n".join(lines) + "\n")
        except OSError as error:
            warnings.warn(f"misses cannot be written to {path}: {error}", AutotopkWarning, stacklevel=2)
