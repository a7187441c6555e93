"""Kernels that are shipped compiled: found by what they are made from, and used where such a GPU has checked them.

A folder of packs holds `sm_90.pack`, `sm_90.check` and the like, and `sources.json`. A kernel's name in a pack is made
of its constants alone; `sources.json` has the digests of the device files that the packs were compiled from. So an edit
of a comment in a device file changes `sources.json`, and a pack changes where machine code does.
"""

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache, reduce
from pathlib import Path
from typing import Protocol

from autotopk import settings
from autotopk.errors import DamagedKernelError, warn
from autotopk.files import make_private, read_regular, write_atomically
from autotopk.identity import digest
from autotopk.packs.file import Pack, Stored, read

ARCHS = (80, 90, 100, 120)
"""Compute capabilities that packs are made for."""

SOURCES = "sources.json"

label = "pack"
"""How a kernel's origin is told."""

_MAX_BYTES = 4 << 20

MOST_SOUGHT = 1 << 12
"""Sources of which it is remembered whether they are packed."""


class Source(Hashable, Protocol):
    """What of a `KernelSource` is asked here; its text holds its constants."""

    def device_code(self) -> tuple[str, str]:
        """Names of its device files, and the digest of their bytes."""


@dataclass(frozen=True)
class Made:
    """What a pack was made from."""

    device_code: Mapping[str, str] = field(default_factory=dict)
    """Names of device files to the digest of their bytes."""
    compilers: Mapping[str, str] = field(default_factory=dict)
    """Versions, and the flags that were given."""


@dataclass(frozen=True)
class Check:
    """How kernels did on a kind of GPU."""

    device: str
    """Its fingerprint."""
    passed: frozenset[str] = frozenset()
    """`Kernel.code` of those that answered rightly; no other is used."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """That of those that gave a wrong answer or none, with the reason."""

    def then(self, later: "Check") -> "Check":
        """Both, where the later one prevails."""
        device = later.device if later.device in self.device else f"{self.device}, {later.device}"
        failed = {code: reason for code, reason in self.failed.items() if code not in later.passed}
        return Check(device, (self.passed - {*later.failed}) | later.passed, failed | {**later.failed})

    def to_json(self) -> str:
        """The same for the same check."""
        told = {"device": self.device, "passed": sorted(self.passed), "failed": self.failed}
        return json.dumps(told, indent=1, sort_keys=True) + "\n"


def serving(arch: int) -> int | None:
    """The compute capability of the pack whose machine code runs on another: the next lower of the same major one."""
    return max((one for one in ARCHS if one // 10 == arch // 10 and one <= arch), default=None)


def name_of(source: Source, arch: int) -> str:
    """A kernel's name in the pack of a compute capability."""
    return digest(arch, repr(source))


def pack_path(folder: Path, arch: int) -> Path:
    """The pack of a compute capability."""
    return folder / f"sm_{arch}.pack"


class Packs:
    """A folder of packs as a store of kernels."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made = _made(folder)
        self._packs: dict[int, Pack | None] = {}
        self._checks: dict[int, Check | None] = {}
        self._sought = lru_cache(MOST_SOUGHT)(self._packed)
        self._same: dict[tuple[int, int], tuple[Source, Stored | None]] = {}
        """By `id` of a source: those that strategies keep are not hashed again, which takes longest of all here."""
        self.unchecked = False
        """All kernels are found, also those that nobody has checked: for who checks them."""

    def pack(self, arch: int) -> Pack | None:
        """The pack that serves a compute capability."""
        if arch not in self._packs:
            served = serving(arch)
            self._packs[arch] = None if served is None else _open(pack_path(self.folder, served))
        return self._packs[arch]

    def check(self, arch: int) -> Check | None:
        """How kernels did on GPUs of the compute capability, here or elsewhere; None where nobody tried."""
        if arch not in self._checks:
            told = [found for path in self.check_paths(arch) if (found := read_check(path)) is not None]
            self._checks[arch] = reduce(Check.then, told) if told else None
        return self._checks[arch]

    def check_paths(self, arch: int) -> tuple[Path, Path]:
        """Where that is told: what came with the packs, and what was found out here."""
        name = f"sm_{arch}.check"
        return self.folder / name, settings.cache_dir() / "checks" / name

    def keep_check(self, arch: int, check: Check) -> None:
        """Go by what was found out here, and write it down; where that cannot be, a warning says so."""
        known, path = self.check(arch), self.check_paths(arch)[1]
        self._checks[arch] = check if known is None else known.then(check)
        before = read_check(path)
        try:
            make_private(path.parent)
            write_atomically(path, (check if before is None else before.then(check)).to_json().encode())
        except OSError as error:
            warn(f"the next process checks shipped kernels again: {error}")

    def untried(self, arch: int) -> set[str]:
        """Names of the kernels that would serve such a GPU, and nobody has checked there."""
        if (pack := self.pack(arch)) is None:
            return set()
        check = self.check(arch)
        tried = set() if check is None else check.passed | {*check.failed}
        return {name for name, (*_, code) in pack.kernels.items() if code not in tried}

    def find(self, source: Source, arch: int) -> Stored | None:
        """The kernel of a source, if it is packed as the source is today, and was right on such a GPU.

        Raises BuildError where the device files are not there.
        """
        found = self.packed(source, arch)
        if found is None or self.unchecked:
            return found
        check = self.check(arch)
        return None if check is None or found.code not in check.passed else found

    def packed(self, source: Source, arch: int) -> Stored | None:
        """The same, whether it was checked or not; looked for once."""
        same = self._same.get((id(source), arch))
        if same is not None and same[0] is source:
            return same[1]
        if len(self._same) >= MOST_SOUGHT:
            self._same.clear()
        found = self._sought(source, arch)
        self._same[id(source), arch] = source, found
        return found

    def _packed(self, source: Source, arch: int) -> Stored | None:
        if (pack := self.pack(arch)) is None or (served := serving(arch)) is None:
            return None
        files, current = source.device_code()
        made = self.made.get(served)
        if made is None or made.device_code.get(files) != current:
            return None
        return pack.find(name_of(source, served))


def here() -> Packs | None:
    """The packs in force; None where AUTOTOPK_PACKS turns them off."""
    folder = settings.packs_dir()
    return None if folder is None else _packs(folder)


def find(source: Source, arch: int) -> Stored | None:
    """See `Packs.find`."""
    packs = here()
    return None if packs is None else packs.find(source, arch)


def pack(arch: int) -> Pack | None:
    """See `Packs.pack`."""
    packs = here()
    return None if packs is None else packs.pack(arch)


def reload() -> None:
    """Read everything anew on next use."""
    _packs.cache_clear()


@cache
def _packs(folder: Path) -> Packs:
    return Packs(folder)


def _open(path: Path) -> Pack | None:
    try:
        import lzma  # noqa: F401 -- which some Pythons are built without

        return read(path)
    except FileNotFoundError:
        return None
    except (ImportError, OSError, DamagedKernelError) as error:
        warn(f"shipped kernels are not used: {error}")
        return None


def _made(folder: Path) -> dict[int, Made]:
    try:
        content = json.loads(read_regular(folder / SOURCES, _MAX_BYTES))
        return {int(arch): Made(**made) for arch, made in content.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        warn(f"shipped kernels are not used: {folder / SOURCES}: {error}")
        return {}


def read_check(path: Path) -> Check | None:
    """None where there is none, or none that can be read: then a new one is made."""
    try:
        content = json.loads(read_regular(path, _MAX_BYTES))
        return Check(str(content["device"]), frozenset(content["passed"]), dict(content["failed"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
