"""The measured winners that run time serves: where they are read from, merged, and looked up."""

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heapify, heappop
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotopk import kernel, registry, settings
from autotopk.device import Device
from autotopk.errors import ArtifactError, BuildError, inert, warn
from autotopk.fitted import model_of
from autotopk.key import NEIGHBOUR_RADIUS, Bucket, TuningKey, bucket_of
from autotopk.prediction import Model
from autotopk.problem import Problem
from autotopk.program import HostProgram, Program
from autotopk.tuning_db.records import Winner
from autotopk.workloads import Workload

if TYPE_CHECKING:
    from autotopk.tuning_db.artifact import Contents
    from autotopk.tuning_db.bundle import Bundle

Key = tuple[str, int, int, int, bool, str]
"""The fields of a `TuningKey`."""

Row = tuple[Any, ...]
"""Of a winners file: fingerprint, the fields of the key, and more."""

_KEY_END = 7
"""In a row."""

_SIZES = slice(2, 5)
"""In a row: rows, cols and k."""

Stored = tuple[Row, Callable[[Row], Winner]]
"""A winner as its row, and what makes it of that: of thousands a process serves few."""


FEW_BUCKETS = 100
"""So many winners are asked for their distance as fast as all buckets around a key are looked up."""


class Winners:
    """The winners of one device, by key and by bucket, each in the order of the layers."""

    def __init__(self, device: Device | None = None) -> None:
        self.device = device
        self.lenders: tuple[Sequence[Winners], Sequence[Winners]] | None = None
        """Twins and kin among those that were read with these, once they were asked for; see `borrowing`."""
        self._by_key: dict[Key, Stored] = {}
        self._by_bucket: dict[Bucket, list[Stored]] = {}
        self._fitted: list[dict[str, list[Row]]] = []
        self._models: dict[str, list[Model]] = {}

    def __iter__(self) -> Iterator[Winner]:
        """All of them."""
        return (winner(row) for row, winner in self._by_key.values())

    def add(self, row: Row, winner: Callable[[Row], Winner]) -> None:
        """Take in the winner of a row, unless an earlier layer has one of that key."""
        key = row[1:_KEY_END]
        if key not in self._by_key:
            self._by_key[key] = stored = row, winner
            self._by_bucket.setdefault(bucket_of(*key), []).append(stored)

    def fit(self, rows: Iterable[Row]) -> None:
        """Take in what was fitted, by a layer."""
        fitted = dict[str, list[Row]]()
        for row in rows:
            fitted.setdefault(row[1], []).append(row)
        self._fitted.append(fitted)

    def fitted(self) -> Iterator[Row]:
        """All of that by the first layer that has any."""
        return chain.from_iterable(self._fitted[0].values() if self._fitted else ())

    def models(self, kind: str) -> Sequence[Model]:
        """What layers fitted for a kind of problems, see `prediction.kind_of`; parsed once."""
        if kind not in self._models:
            found = []
            for rows in (fitted[kind] for fitted in self._fitted if kind in fitted):
                try:
                    with _collecting_later():
                        found.append(model_of(rows))
                except ValueError as error:
                    warn(f"times of {kind} are not predicted: {inert(error)}")
            self._models[kind] = found
        return self._models[kind]

    def exact(self, key: TuningKey) -> Winner | None:
        """The one of that very key."""
        stored = self._by_key.get((key.dtype, key.rows, key.cols, key.k, key.sorted, key.routing))
        return None if stored is None else stored[1](stored[0])

    def like(self, key: TuningKey) -> list[Winner]:
        """The others in the key's bucket, the nearest first."""
        found = [winner(row) for row, winner in self._by_bucket.get(key.bucket(), ())]
        return sorted((one for one in found if one.key != key), key=lambda one: key.distance(one.key))

    def near(self, key: TuningKey) -> Iterator[Winner]:
        """Those of other buckets within `NEIGHBOUR_RADIUS`, the nearest first.

        Looks into the few hundred buckets that may hold one, however many winners there are, or into all where there
        are fewer.
        """
        own = key.bucket()
        if len(self._by_bucket) > FEW_BUCKETS:
            around = key.buckets_within(NEIGHBOUR_RADIUS)
        else:
            around = (one for one in self._by_bucket if one[0] == own[0] and one[4:] == own[4:])
        found = [stored for bucket in around if bucket != own for stored in self._by_bucket.get(bucket, ())]
        distances = ((key.doublings(*row[_SIZES]), at) for at, (row, _) in enumerate(found))
        heap = [one for one in distances if one[0] <= NEIGHBOUR_RADIUS]
        heapify(heap)
        while heap:
            row, winner = found[heappop(heap)[1]]
            yield winner(row)


@contextmanager
def _collecting_later() -> Iterator[None]:
    """Without the garbage collector, which would look through a hundred thousand new objects again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


NONE = Winners()


NAMES = {"AUTOTOPK_DB": "AUTOTOPK_DB", "user cache": "the user's winners", "shipped": "the shipped winners"}
"""Of the layers, in a sentence."""


Layers = tuple[tuple[str, Path | None], ...]
"""(label, winners file), the first to be asked first; None is one that is not set."""


def layers() -> Layers:
    """The winners files of run time, unless ranks agreed on others."""
    return (
        ("AUTOTOPK_DB", settings.deployed_winners_path()),
        ("user cache", settings.user_winners_path()),
        ("shipped", settings.shipped_winners_path()),
    )


def read_layers(files: Layers) -> dict[str, Winners]:
    """By device fingerprint, merged key by key; what cannot be read costs a warning for each file."""
    merged: dict[str, Winners] = {}
    kernel.deploy(None)
    for label, path in files:
        if path is None or (label != "AUTOTOPK_DB" and not os.path.exists(path)):
            continue
        try:
            found, bundle = contents(label, path)
        except ArtifactError as error:
            warn(f"{NAMES[label]} cannot be used: {error}")
            continue
        if found.loss:
            warn(f"{path}: {found.loss}")
        merge_fitted(found, merged)
        for row in found.rows:
            merged[row[0]].add(row, found.winner)
        if bundle is not None and bundle.kernels and label == "AUTOTOPK_DB":
            if bundle.reasons_untrusted:
                warn(f"kernels are not loaded from {NAMES[label]}: {' and '.join(bundle.reasons_untrusted)}")
            kernel.deploy(bundle)
    return merged


def merge_fitted(found: "Contents", merged: dict[str, Winners]) -> None:
    """Take in the devices of a file, and what was fitted of each."""
    for fingerprint, device in found.devices.items():
        merged.setdefault(fingerprint, Winners(device))
    for fingerprint, rows in groupby(found.fitted, key=itemgetter(0)):
        merged[fingerprint].fit(rows)


def contents(label: str, path: Path) -> tuple["Contents", "Bundle | None"]:
    """What can be used of a layer's file, and the bundle that it is. Raises ArtifactError."""
    from autotopk.tuning_db import artifact  # brings sqlite3, which plans already made do without

    return artifact.opened(path, settings.deployed_key_path() if label == "AUTOTOPK_DB" else None)


def is_current(winner: Winner) -> bool | None:
    """Whether a winner's strategy still makes the program that was measured; None where only compiling would tell.

    Compiles nothing: programs are compared by what they are made from, then by a compiled kernel in the cache.
    Raises UnknownStrategyError or UnsupportedProblemError where the winner cannot be served at all.
    """
    problem, device = problem_of(winner), winner.device
    program = program_of(winner)
    try:
        if program.source_digest(problem, device.arch) == winner.identity.source:
            return True
        if isinstance(program, HostProgram):
            return program.identity(problem, device.arch).code == winner.identity.code
        found = [source.cached(device.arch) for source in program.sources]
    except BuildError:  # device files are missing
        return False
    codes = [one.code for one in found if one is not None]
    known = len(codes) == len(found)
    return program.identity_as(codes, problem, device.arch).code == winner.identity.code if known else None


def program_of(winner: Winner) -> Program:
    """What its strategy makes of it now. Raises UnknownStrategyError or UnsupportedProblemError."""
    strategy = registry.get(winner.candidate.strategy)
    return strategy.program(strategy.parse_config(winner.candidate.config), problem_of(winner), winner.device)


def problem_of(winner: Winner) -> Problem:
    """What a winner was measured on."""
    return Workload.of(winner.key).problem(winner.device.type)
