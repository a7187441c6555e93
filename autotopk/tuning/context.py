"""What all workloads of a tuner's run share."""

from collections.abc import Callable
from dataclasses import dataclass

from autotopk.device import Device
from autotopk.tuning.compile_pool import CompilePool
from autotopk.tuning.efforts import Effort
from autotopk.tuning.events import Event
from autotopk.tuning.worker import Worker
from autotopk.tuning_db.records import Environment
from autotopk.tuning_db.store import Store


@dataclass(frozen=True)
class Context:
    """What all workloads of a run share."""

    device: Device
    environment: Environment
    effort: Effort
    store: Store
    run: int
    worker: Worker
    pool: CompilePool
    until: float
    """End of the run's budget, on the monotonic clock."""
    tell: Callable[[Event], None]
    max_contention: float = 0.05
    """Above it a time on a CPU is noise, see `noise`."""
    specimen: str = ""
    """See `environment.specimen_of`."""
    held: Callable[[], bool] = lambda: True
    """Whether the workload at hand is still this tuner's to measure."""

    @property
    def baseline(self) -> str:
        """What torch.topk is here."""
        return self.environment.baseline
