from collections.abc import Callable, Mapping
from typing import Any

from autotopk.runtime.driver import LaunchRecord

READ: tuple[str, ...]

def prepare(
    launches: tuple[LaunchRecord, ...], addresses: int, numbers: Mapping[str, int], /
) -> Callable[..., int]: ...
def bind(
    launch: Callable[..., int],
    twin: Callable[..., Any],
    empty: Callable[..., Any],
    values: tuple[Any, ...] | None,
    indices: tuple[Any, ...],
    current_device: Callable[[], int] | None,
    current_stream: Callable[[int], int],
    index: int,
    /,
) -> Callable[..., Any]: ...
def asker(plans: dict[Any, Any], /, *torchs: Any) -> Callable[..., Any]: ...
