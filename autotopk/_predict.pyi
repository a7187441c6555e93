from collections.abc import Callable, Sequence
from typing import Any

def curve(
    doubt: float,
    coefficients: bytes,
    limits: bytes,
    depth: int,
    traits: int,
    asked: bytes,
    thresholds: bytes,
    leaves: bytes,
    /,
) -> Callable[
    [Sequence[float], float, list[tuple[float, dict[str, float]]], str, Sequence[float], Sequence[float]], float | None
]: ...
def around(
    reach: float, farthest: float, judges: int, places: bytes, said: list[dict[str, float]], judging: list[Any], /
) -> Callable[[tuple[float, ...]], tuple[list[tuple[float, dict[str, float]]], list[Any]]]: ...
def mean(doubt: float, weighted: list[tuple[float, dict[str, float]]], name: str, /) -> float: ...
