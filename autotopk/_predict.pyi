from collections.abc import Callable, Sequence
from typing import Any

def curve(
    coefficients: bytes,
    limits: bytes,
    depth: int,
    traits: int,
    unit: float,
    thresholds: bytes,
    nodes: bytes,
    leaves: bytes,
    /,
) -> Callable[[Sequence[float], float, dict[str, float], str, Sequence[float], Sequence[float]], float | None]: ...
def around(
    reach: float,
    farthest: float,
    doubt: float,
    judges: int,
    places: bytes,
    said: list[dict[str, float]],
    judging: list[Any],
    /,
) -> Callable[[tuple[float, ...]], tuple[dict[str, float], list[Any]]]: ...
