"""Whose measurements serve a problem, in which order: the device's own, then those of the GPUs most like it.

A twin has the same compute capability and as many multiprocessors: its winners are as good as own ones. Kin have the
same compute capability alone. What either was measured with runs only where it fits the device itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from autotopk.device import Device
from autotopk.errors import AutotopkError
from autotopk.key import TuningKey
from autotopk.runtime.winners import NONE, Winners, is_current
from autotopk.tuning_db.records import Winner

MeasuredStep = Literal["exact", "bucket", "neighbour"]


Lenders = tuple[Sequence[Winners], Sequence[Winners]]
"""The winners of twins, and those of kin, the nearest first."""


def holders(device: Device, known: Mapping[str, Winners]) -> tuple[Winners, Lenders]:
    """The device's own winners, and whose else may serve there: nobody's on a CPU."""
    own = known.get(device.fingerprint, NONE)
    if own is NONE:
        return own, _lenders(device, known)
    if own.lenders is None:
        own.lenders = _lenders(device, known)
    return own, own.lenders


def _lenders(device: Device, known: Mapping[str, Winners]) -> Lenders:
    if device.type != "cuda":
        return [], []
    others = [
        (one.device, one)
        for one in known.values()
        if one.device is not None
        and one.device.type == "cuda"
        and one.device.capability == device.capability
        and one.device.fingerprint != device.fingerprint
    ]
    others.sort(key=lambda other: (abs(other[0].processors - device.processors), other[0].fingerprint))
    twins = [winners for one, winners in others if one.processors == device.processors]
    return twins, [winners for one, winners in others if one.processors != device.processors]


def exact(key: TuningKey, own: Winners, lenders: Lenders) -> Iterator[Winner]:
    """Winners of that very key, best first: the device's own, then its twins'.

    An own one whose code has changed since gives way to a current one that was measured elsewhere, on kin as well.
    """
    twins, kin = lenders
    found = own.exact(key)
    lent = [lender.exact(key) for lender in twins]
    if found is not None:
        others = [one for one in (*lent, *(lender.exact(key) for lender in kin)) if one is not None]
        if others and is_stale(found):
            yield from (one for one in others if not is_stale(one))
        yield found
    for one in lent:
        if one is not None:
            yield one


def around(key: TuningKey, own: Winners, lenders: Lenders) -> Iterator[tuple[MeasuredStep, Winner]]:
    """Other winners that may serve the key, best first.

    Of the device and its twins those of its bucket, then neighbours; of kin the same, after those of that very key.
    """
    twins, kin = lenders
    for group in ([own, *twins], *([lender] for lender in kin)):
        if group[0] in kin:
            yield from (("exact", found) for winners in group if (found := winners.exact(key)) is not None)
        yield from (("bucket", found) for winners in group for found in winners.like(key))
        yield from (("neighbour", found) for winners in group for found in winners.near(key))


def is_stale(winner: Winner) -> bool:
    """Whether another program runs today than was measured, as far as that is known without compiling."""
    try:
        return is_current(winner) is False
    except AutotopkError:  # it cannot be served at all
        return True
