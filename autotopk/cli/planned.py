"""What `tune --dry-run` prints."""

from collections.abc import Mapping, Sequence
from typing import Any

from autotopk.cli.options import print_json
from autotopk.cli.tables import console, dry_run_parts
from autotopk.database import Database
from autotopk.device import Device
from autotopk.tuning.dry_run import plan
from autotopk.workloads import Workload


def show(workloads: Sequence[Workload], device: Device, db: Database, as_json: bool, asked: Mapping[str, Any]) -> None:
    """What would be measured with these arguments of `dry_run.plan`."""
    planned = plan(workloads, device, db, **asked)
    if as_json:
        print_json(planned)
        return
    for part in dry_run_parts(planned):
        console().print(part)
