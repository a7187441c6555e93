from collections.abc import Callable

from autotopk.runtime.driver import LaunchRecord

def prepare(launches: tuple[LaunchRecord, ...], addresses: int) -> Callable[..., int]: ...
