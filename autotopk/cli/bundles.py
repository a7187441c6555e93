"""Which kernels go into a bundle: those that its winners name, compiled where they are not yet."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import autotopk
from autotopk import registry
from autotopk.cli.transfer import check_any
from autotopk.cli.wording import counted
from autotopk.compilers import nvcc
from autotopk.device import Device
from autotopk.errors import ArtifactError, inert
from autotopk.fitted import Fitted
from autotopk.kernel import Kernel, KernelSource, distribution_version
from autotopk.runtime.winners import problem_of, program_of
from autotopk.tuning_db import artifact, bundle, ownership
from autotopk.tuning_db.bundle import kernel_name
from autotopk.tuning_db.records import Winner


@dataclass(frozen=True)
class Written:
    """What came into a bundle."""

    kernels: int
    missing: tuple[str, ...]
    """Kernels that are not in it, with the reasons."""


def write_bundle(
    winners: Sequence[Winner],
    path: Path,
    archs: Sequence[int] = (),
    fitted: Iterable[Fitted] = (),
    *,
    key: Path | None = None,
    partial: bool = False,
    force: bool = False,
) -> Written:
    """Write winners and the kernels that they name, compiled where they are not yet.

    Args:
        winners: at most one per device and key.
        path: the file.
        archs: compute capabilities to bring kernels for, 90 for 9.0; by default each winner's own.
        fitted: what was fitted to measurements of their devices.
        key: a private key to sign with.
        partial: whether kernels may be missing.
        force: whether a file may be replaced that is no bundle.

    Raises:
        ArtifactError: there are no winners, a kernel is missing, or the file cannot be written.
    """
    check_any(winners, path)
    if not force:
        ownership.refuse_to_overwrite_with_bundle(path)
    wanted, missing = _named(winners, archs)
    kernels = _compiled(wanted, missing)
    if missing and not partial:
        told = f"{counted(len(missing), 'kernel')} of these winners missing, the first: {missing[0]}"
        raise ArtifactError(f"{told}; --partial leaves them out")
    about = {
        "autotopk": autotopk.__version__,
        "compilers": {
            "nvcc": nvcc.version(),
            **{name: distribution_version(name) for name in ("tilelang", "triton")},
        },
        "devices": sorted({winner.device.fingerprint for winner in winners}),
    }
    bundle.write(path, artifact.to_bytes(winners, fitted), [winner.key for winner in winners], kernels, about, key)
    return Written(len(kernels), tuple(missing))


@dataclass(frozen=True)
class _Wanted:
    """A kernel that a winner names, for a compute capability."""

    source: KernelSource
    winner: Winner
    device: Device

    def __str__(self) -> str:
        return f"{self.winner.candidate} at {self.winner.key} for sm_{self.device.arch}"


def _named(winners: Sequence[Winner], archs: Sequence[int]) -> tuple[dict[str, _Wanted], list[str]]:
    """The kernels of winners by the name of their member, and why some are not known."""
    found: dict[str, _Wanted] = {}
    missing = []
    for winner in winners:
        own = winner.device
        for arch in (archs or [own.arch]) if own.type == "cuda" else ():
            device = own if arch == own.arch else replace(own, capability=divmod(arch, 10))
            try:
                if device != own and registry.get(winner.candidate.strategy).reasons_unable(problem_of(winner), device):
                    continue  # the family does not run there
                for source in program_of(replace(winner, device=device)).sources:
                    found.setdefault(kernel_name(source, arch), _Wanted(source, winner, device))
            except Exception as error:  # a strategy may be anyone's code
                missing.append(f"{winner.candidate} at {winner.key} for sm_{arch}: {inert(error)}")
    return found, missing


def _compiled(wanted: dict[str, _Wanted], missing: list[str]) -> dict[str, Kernel]:
    """The kernels by name, compiled where they are not in the cache; `missing` learns what cannot be."""
    kernels = {name: one.source.cached(one.device.arch) for name, one in wanted.items()}
    lacking = {name: wanted[name] for name, found in kernels.items() if found is None}
    for device in dict.fromkeys(one.device for one in lacking.values()) if len(lacking) > 1 else ():
        _compile_side_by_side([one for one in lacking.values() if one.device == device], device)
    for name, one in lacking.items():
        try:
            kernels[name] = one.source.load(one.device.arch)
        except Exception as error:  # a source may be anyone's code
            missing.append(f"{one}: {inert(error)}")
    return {name: found for name, found in kernels.items() if found is not None}


def _compile_side_by_side(wanted: Sequence[_Wanted], device: Device) -> None:
    """Leave kernels of one device in the cache, as far as they can be compiled."""
    from autotopk.cli.progress_bar import ProgressBar
    from autotopk.cli.tables import console
    from autotopk.tuning.compile_pool import CompilePool

    with closing(CompilePool(device)) as pool, ProgressBar(console(stderr=True)) as bar:
        for one in wanted:
            pool.submit(problem_of(one.winner), [one.winner.candidate])
        for at, one in enumerate(wanted):
            bar.step(f"compiling {one}", at, len(wanted))
            for _ in pool.ready(problem_of(one.winner), [one.winner.candidate], inf):
                pass
