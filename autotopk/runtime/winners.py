"""The measured winners that run time serves: where they are read from, merged, and looked up."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotopk import registry, settings
from autotopk.errors import ArtifactError, AutotopkWarning, BuildError
from autotopk.key import TuningKey
from autotopk.problem import Problem
from autotopk.program import HostProgram
from autotopk.tuning_db.records import Winner


@dataclass(frozen=True)
class Winners:
    """The winners of one device, by key and by bucket."""

    by_key: Mapping[TuningKey, Winner] = field(default_factory=dict)
    by_bucket: Mapping[TuningKey, tuple[Winner, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, by_key: Mapping[TuningKey, Winner]) -> "Winners":
        """Also by bucket."""
        buckets: dict[TuningKey, tuple[Winner, ...]] = {}
        for key, winner in by_key.items():
            buckets[key.bucket()] = (*buckets.get(key.bucket(), ()), winner)
        return cls(by_key, buckets)


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
