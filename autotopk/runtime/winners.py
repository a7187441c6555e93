"""The measured winners that run time serves: where they are read from, merged, and looked up."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop
from pathlib import Path

from autotopk import registry, settings
from autotopk.errors import ArtifactError, AutotopkWarning, BuildError
from autotopk.key import NEIGHBOUR_RADIUS, TuningKey
from autotopk.problem import Problem
from autotopk.program import HostProgram
from autotopk.tuning_db.records import Winner


@dataclass(frozen=True)
class Winners:
    """The winners of one device, by key and by bucket, each in the order of the layers."""

    by_key: Mapping[TuningKey, Winner] = field(default_factory=dict)
    by_bucket: Mapping[TuningKey, Sequence[Winner]] = field(default_factory=dict)

    @classmethod
    def of(cls, by_key: Mapping[TuningKey, Winner]) -> "Winners":
        """Also by bucket."""
        buckets: dict[TuningKey, list[Winner]] = {}
        for key, winner in by_key.items():
            buckets.setdefault(key.bucket(), []).append(winner)
        return cls(by_key, buckets)

    def like(self, key: TuningKey) -> list[Winner]:
        """The others in the key's bucket, the nearest first."""
        found = [winner for winner in self.by_bucket.get(key.bucket(), ()) if winner.key != key]
        return sorted(found, key=lambda winner: key.distance(winner.key))

    def near(self, key: TuningKey) -> Iterator[Winner]:
        """Those of other buckets within `NEIGHBOUR_RADIUS`, the nearest first.

        Looks into the few hundred buckets that may hold one, however many winners there are.
        """
        own = key.bucket()
        buckets = [self.by_bucket.get(bucket, ()) for bucket in key.buckets_within(NEIGHBOUR_RADIUS) if bucket != own]
        winners = [winner for bucket in buckets for winner in bucket]
        distances = ((key.distance(winner.key), at) for at, winner in enumerate(winners))
        heap = [one for one in distances if one[0] <= NEIGHBOUR_RADIUS]
        heapify(heap)
        while heap:
            yield winners[heappop(heap)[1]]


NONE = Winners()


NAMES = {"AUTOTOPK_DB": "AUTOTOPK_DB", "user cache": "the user's winners", "shipped": "the shipped winners"}
"""Of the layers, in a sentence."""


def layers() -> tuple[tuple[str, Path | None], ...]:
    """The winners files of run time, the first to be asked first; None is one that is not set."""
    return (
        ("AUTOTOPK_DB", settings.deployed_winners_path()),
        ("user cache", settings.user_winners_path()),
        ("shipped", settings.shipped_winners_path()),
    )


def read_layers() -> dict[str, Winners]:
    """By device fingerprint, merged key by key; a file that cannot be read costs a warning."""
    from autotopk.tuning_db import artifact  # brings sqlite3, which plans already made do without

    merged: dict[str, dict[TuningKey, Winner]] = {}
    for label, path in layers():
        if path is None or (label != "AUTOTOPK_DB" and not os.path.exists(path)):
            continue
        try:
            for winner in artifact.read(path):
                merged.setdefault(winner.device.fingerprint, {}).setdefault(winner.key, winner)
        except ArtifactError as error:
            warnings.warn(f"{NAMES[label]} cannot be used: {error}", AutotopkWarning, stacklevel=2)
    return {fingerprint: Winners.of(by_key) for fingerprint, by_key in merged.items()}


def is_current(winner: Winner) -> bool | None:
    """Whether a winner's strategy still makes the program that was measured; None where only compiling would tell.

    Compiles nothing: programs are compared by what they are made from, then by a compiled kernel in the cache.
    Raises UnknownStrategyError or UnsupportedProblemError where the winner cannot be served at all.
    """
    strategy, device = registry.get(winner.candidate.strategy), winner.device
    problem = problem_of(winner)
    program = strategy.program(strategy.parse_config(winner.candidate.config), problem, device)
    try:
        if program.source_digest(problem, device.arch) == winner.identity.source:
            return True
        if isinstance(program, HostProgram):
            return program.identity(problem, device.arch).code == winner.identity.code
        kernels = [source.cached(device.arch) for source in program.sources]
    except BuildError:  # device files are missing
        return False
    codes = [kernel.code for kernel in kernels if kernel is not None]
    known = len(codes) == len(kernels)
    return program.identity_as(codes, problem, device.arch).code == winner.identity.code if known else None


def problem_of(winner: Winner) -> Problem:
    """What a winner was measured on."""
    key = winner.key
    return Problem.contiguous(key.rows, key.cols, key.k, key.dtype, winner.device.type, sorted=key.sorted)
