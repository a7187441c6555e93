from collections.abc import Callable

def prepare(
    function: int,
    grid: tuple[int, int, int],
    threads: int,
    shared_bytes: int,
    cluster: int,
    cooperative: bool,
    programmatic: bool,
    parameters: tuple[tuple[int, int], ...],
) -> Callable[..., int]: ...
