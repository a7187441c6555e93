"""Whether every winner of a file would be served: `autotopk verify`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autotopk import kernel, registry, settings
from autotopk.candidate import Candidate
from autotopk.cli.wording import counted
from autotopk.cubin import architecture
from autotopk.device import Device, device_of
from autotopk.errors import AutotopkError, inert
from autotopk.kernel import Kernel, KernelSource
from autotopk.program import KernelProgram, Program
from autotopk.runtime.launch import load
from autotopk.runtime.winners import is_current, problem_of, program_of
from autotopk.tuning_db import artifact
from autotopk.tuning_db.bundle import Bundle, kernel_name
from autotopk.tuning_db.records import Winner

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Entry:
    """Whether a winner would be served; None is what was not asked, or not found out."""

    workload: str
    device: str
    candidate: Candidate
    resolves: bool
    """Its strategy is installed, and takes the configuration for the problem."""
    loads: bool | None = None
    """All its kernels are there, for its architecture."""
    fits: bool | None = None
    """They load on the device here; None for winners of other devices."""
    current: bool | None = None
    """They are what was measured."""
    reason: str = ""
    """What is wrong."""

    @property
    def good(self) -> bool:
        """It would be served as it was measured."""
        return self.resolves and self.loads is True and self.current is True and self.fits is not False


@dataclass(frozen=True)
class Verified:
    """A file of winners."""

    path: str
    kind: Literal["bundle", "winners"]
    signed: bool
    """It bears a signature; whose, only a key tells."""
    made_by: dict[str, object]
    """Versions in the manifest of a bundle."""
    kernels: int
    loss: str | None
    """Winners that are left out, and why."""
    here: str | None
    """The device that `fits` was asked for."""
    winners: list[Entry]

    @property
    def good(self) -> bool:
        """All are served, at least one of them here."""
        served_here = self.here is None or any(entry.fits for entry in self.winners)
        return self.loss is None and served_here and all(entry.good for entry in self.winners)

    def lines(self) -> list[str]:
        """What is said beside the entries."""
        good = sum(entry.good for entry in self.winners)
        told = f"{good} of {counted(len(self.winners), 'winner')} served as measured"
        if self.kind == "bundle":
            told += f"; {counted(self.kernels, 'kernel')}, {'signed' if self.signed else 'unsigned'}"
        lines = [told]
        if self.here is not None and not any(entry.fits for entry in self.winners):
            lines.append(f"none is for {inert(self.here)}")
        return lines if self.loss is None else [*lines, self.loss]


def verify_file(path: Path, key: Path | None, here: "torch.device | None") -> Verified:
    """Examine a bundle or a winners file.

    Args:
        path: the file.
        key: the public key that must have signed it; AUTOTOPK_DB_KEY by default.
        here: a device to load kernels on; None does without one.

    Raises:
        ArtifactError: the file cannot be read, is damaged, or not signed by the key.
    """
    key = key or settings.deployed_key_path()
    found, opened = artifact.opened(path, key)
    kernel.deploy(opened)
    try:
        entries = [_Examination(winner, opened, here).entry() for winner in found.winners()]
    finally:
        kernel.deploy(None)
    about = {} if opened is None else {name: opened.manifest.get(name) for name in ("autotopk", "compilers")}
    return Verified(
        path=str(path),
        kind="winners" if opened is None else "bundle",
        signed=opened is not None and opened.signed,
        made_by=about,
        kernels=0 if opened is None else len(opened.kernels),
        loss=found.loss,
        here=None if here is None else device_of(here).fingerprint,
        winners=entries,
    )


class _RefusedError(AutotopkError):
    """Why a winner is not served."""


class _Examination:
    """Of one winner, question by question."""

    def __init__(self, winner: Winner, opened: Bundle | None, here: "torch.device | None") -> None:
        self.winner, self.opened, self.here = winner, opened, here
        self.answers: dict[str, bool | None] = {"resolves": False}

    def entry(self) -> Entry:
        """All answers; those after the first refusal are not known."""
        reason = ""
        try:
            self._ask("resolves", self._resolve)
            self._ask("loads", self._load)
            if self.here is not None and self._is_for(device_of(self.here)):
                self._ask("fits", self._fit)
            self._ask("current", self._compare)
        except _RefusedError as error:
            reason = str(error)
        winner, given = self.winner, self.answers.get
        return Entry(
            workload=str(winner.key),
            device=winner.device.fingerprint,
            candidate=winner.candidate,
            resolves=bool(given("resolves")),
            loads=given("loads"),
            fits=given("fits"),
            current=given("current"),
            reason=reason,
        )

    def _ask(self, question: str, check: Callable[[], None]) -> None:
        self.answers[question] = False
        try:
            check()
        except _RefusedError:
            raise
        except Exception as error:  # a strategy may be anyone's code
            raise _RefusedError(inert(error) or type(error).__name__) from error
        self.answers[question] = True

    def _resolve(self) -> None:
        self._check_able(self.winner.device)
        self.program: Program = program_of(self.winner)

    def _check_able(self, device: Device) -> None:
        strategy, problem = registry.get(self.winner.candidate.strategy), problem_of(self.winner)
        config = strategy.parse_config(self.winner.candidate.config)
        if reasons := strategy.reasons_unable(problem, device):
            raise _RefusedError("; ".join(reasons))
        if not strategy.valid(config, problem, device):
            raise _RefusedError(f"the configuration does not fit {problem}")

    def _load(self) -> None:
        arch = self.winner.device.arch
        self.kernels = [self._kernel(source, arch) for source in self.program.sources]

    def _kernel(self, source: KernelSource, arch: int) -> Kernel:
        """Of a bundle, without the cache of this machine, which others do not have."""
        name, untrusted = kernel_name(source, arch), self.opened.reasons_untrusted if self.opened else ()
        if self.opened is None:
            found = source.cached(arch)
        else:
            stored = source.stored(arch)
            found = None if stored is None else Kernel.from_bytes(stored[1].read(), stored[1].name)
        if found is None and untrusted:
            raise _RefusedError(f"its kernels are not loaded: {' and '.join(untrusted)}")
        if found is None:
            raise _RefusedError(f"kernel {name} is not {'compiled yet' if self.opened is None else 'in the bundle'}")
        if (made_for := architecture(found.cubin)) is None or not _runs_on(made_for, arch):
            raise _RefusedError(f"kernel {name} is for sm_{made_for}")
        return found

    def _is_for(self, device: Device) -> bool:
        own = self.winner.device
        return own.arch == device.arch if device.type == own.type == "cuda" else own == device

    def _fit(self) -> None:
        assert self.here is not None
        device = device_of(self.here)
        self._check_able(device)
        for one in self.kernels:
            if one.shared_bytes > device.shared_bytes:
                raise _RefusedError(f"{one.symbol} needs {one.shared_bytes:,} bytes of shared memory")
            load(one, self.here)

    def _compare(self) -> None:
        winner, arch = self.winner, self.winner.device.arch
        if isinstance(self.program, KernelProgram):  # of what was loaded, not of what would be compiled here
            codes = [one.code for one in self.kernels]
            current = self.program.identity_as(codes, problem_of(winner), arch).code == winner.identity.code
        else:
            current = is_current(winner) is True
        if not current:
            raise _RefusedError(f"stale: {self.winner.candidate.strategy} compiles to other code since")


def _runs_on(made_for: int, arch: int) -> bool:
    """Machine code runs on its architecture, and on later ones of the same first digit."""
    return made_for // 10 == arch // 10 and made_for <= arch
