"""A tuner among others: which workloads are its own, how it holds them, and what the others have done."""

import os
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

import torch

from autotopk import settings
from autotopk.device import Device
from autotopk.errors import DatabaseError, SelectionError
from autotopk.key import TuningKey
from autotopk.tuning.events import WorkloadOutcome
from autotopk.tuning_db.columns import LONGEST_TEXT
from autotopk.tuning_db.leases import Claim, Leases
from autotopk.tuning_db.records import Environment
from autotopk.tuning_db.store import Store

COMPLETE: frozenset[WorkloadOutcome] = frozenset({"tuned", "confirmed", "known", "unclear", "failed"})
"""Outcomes after which no other tuner of the campaign begins the workload."""

POLL_S = 2.0
"""Longest pause before the others' progress is looked at again."""


def campaign_name(
    asked: str | None, store: Store, environment: Environment, effort: str, strategies: Iterable[str] | None
) -> str | None:
    """The campaign of a run: as asked for; on a server by default one of all that measure alike; else None.

    Raises SelectionError where the name is none.
    """
    if asked is not None:
        if not asked or not asked.isprintable() or len(asked) > LONGEST_TEXT:
            raise SelectionError(f"campaign {asked[:80]!r} is not a printable text of 1 to {LONGEST_TEXT} characters")
        return asked
    if not store.shared:
        return None
    of = "" if strategies is None else f", {' '.join(sorted(strategies))}"
    return f"{effort}, torch {environment.torch}, autotopk {environment.autotopk}{of}"


def holder_of(place: torch.device) -> str:
    """Who this process is to people: host:pid:gpu."""
    return f"{socket.gethostname()}:{os.getpid()}:{place.type}{'' if place.index is None else place.index}"


class Sharing:
    """The workloads of a run, shared with the other tuners of its campaign on the same model of device.

    While a workload is held, a thread renews the claim every third of a lease.
    """

    def __init__(self, store: Store, campaign: str, device: Device, place: torch.device) -> None:
        self._leases = Leases(store, campaign, device, holder_of(place), settings.lease_s())
        self._claim: Claim | None = None
        self._lost = threading.Event()
        self._ended = threading.Event()

    def enrol(self, keys: Sequence[TuningKey]) -> None:
        """Make workloads part of the campaign."""
        self._leases.enrol(keys)

    def complete(self) -> dict[TuningKey, str]:
        """The outcomes of what any tuner has completed."""
        return self._leases.complete_keys()

    def claim(self, keys: Sequence[TuningKey]) -> TuningKey | None:
        """Hold the first of some workloads that can be had, and keep holding it; None where there is none."""
        claim = self._leases.claim(keys)
        if claim is None:
            return None
        self._claim, self._lost, self._ended = claim, threading.Event(), threading.Event()
        threading.Thread(target=self._renew, args=(claim, self._lost, self._ended), daemon=True).start()
        return claim.key

    def held(self) -> bool:
        """Whether nobody else is known to have claimed what this tuner measures."""
        return not self._lost.is_set()

    def finish(self, outcome: WorkloadOutcome) -> bool:
        """Complete what is held, or give it back where the outcome is none to end with.

        False where somebody else has claimed it since: it is theirs to complete.
        """
        claim, self._claim = self._claim, None
        self._ended.set()
        if claim is None:
            return False
        if outcome in COMPLETE:
            return self._leases.complete(claim, outcome)
        if not self._leases.renew(claim):
            return False
        self._leases.release(claim)
        return True

    def give_up(self) -> None:
        """Give back what is held, if the database lets it.

        Ctrl-C between a claim, or its end, and what is known of it here leaves nothing held.
        """
        self._claim = None
        self._ended.set()
        with suppress(DatabaseError):
            self._leases.release_all()

    def wait(self, until: float) -> None:
        """Let the others work for a moment, not beyond some time of the monotonic clock."""
        pause = min(POLL_S, self._leases.lease_s / 4, until - time.monotonic())
        time.sleep(max(0.0, pause))

    def _renew(self, claim: Claim, lost: threading.Event, ended: threading.Event) -> None:
        while not ended.wait(self._leases.lease_s / 3):
            with suppress(DatabaseError):  # whoever measures meets it too; the lease may still hold
                if not self._leases.renew(claim) and not ended.is_set():
                    lost.set()
                    return
