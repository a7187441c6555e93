"""Winners and the compiled kernels that they name, in one file that travels: a bundle.

    autotopk bundle 1 SHA-256      of the next two lines
    ed25519 SIGNATURE              of the manifest; or "unsigned"
    MANIFEST                       a line of JSON: versions, and the size and digest of every member, in their order
    ...                            the members, each deflated, one after another to the end of the file

So a digest covers every bit, and all are checked before anything is used. The same content makes the same bytes.
"""

import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from autotopk import kernel_cache
from autotopk.errors import LONGEST_PATH, ArtifactError, DamagedKernelError, inert
from autotopk.files import open_regular, write_atomically
from autotopk.identity import digest
from autotopk.kernel import DEPLOYED, Kernel, KernelSource
from autotopk.key import TuningKey
from autotopk.packs.file import Stored
from autotopk.tuning_db import signature
from autotopk.tuning_db.ownership import BUNDLE

FORMAT = 1
"""Newer ones are refused."""

MAX_BYTES = 256 << 20
"""Of a bundle, which is held in memory; 500 kernels have some 10 MiB."""

MAX_MANIFEST_BYTES = 8 << 20
"""Of the line, and of a list of workloads; 20,000 members have some 3 MiB."""

MAX_MEMBERS = 20_000

WINNERS, WORKLOADS = "winners.sqlite", "workloads.json"

_NAME = re.compile(rf"{re.escape(WINNERS)}|{re.escape(WORKLOADS)}|sm_[0-9]{{2,3}}/[0-9a-f]{{32}}")
_FIRST = re.compile(re.escape(BUNDLE) + rb"([0-9]{1,9}) ([0-9a-f]{64})\n")
_SECOND = re.compile(rb"(?:unsigned|ed25519 ([0-9a-f]{128}))\n")


def kernel_name(source: KernelSource, arch: int) -> str:
    """The member that a compiled kernel is. Raises BuildError where its device files are not there."""
    return f"sm_{arch}/{digest(source.recipe())}"


def write(
    path: Path,
    winners: bytes,
    keys: Iterable[TuningKey],
    kernels: Mapping[str, Kernel],
    about: Mapping[str, object],
    key: Path | None = None,
) -> None:
    """Write a bundle, whole or not at all.

    Args:
        path: the file, which is replaced.
        winners: a winners file.
        keys: of the winners.
        kernels: by `kernel_name`.
        about: what else the manifest says.
        key: a private key to sign with, as PEM.

    Raises:
        ArtifactError: it could not be read back, the key cannot be used, or the file cannot be written.
    """
    members = {WINNERS: winners, WORKLOADS: json.dumps(sorted({astuple(one) for one in keys})).encode()}
    members |= {name: one.to_bytes(name) for name, one in kernels.items()}
    deflated = {name: zlib.compress(members[name], 9) for name in sorted(members)}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in deflated.items()}
    listed = {name: [len(data), digests[name], *_code(kernels.get(name))] for name, data in deflated.items()}
    manifest = json.dumps({**about, "members": listed}, sort_keys=True).encode() + b"\n"
    signed = "unsigned" if key is None else f"ed25519 {signature.sign(manifest, key).hex()}"
    head = signed.encode() + b"\n" + manifest
    data = b"".join([_first_line(head), head, *deflated.values()])
    try:
        _opened(data, path, ())
        write_atomically(path, data)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"no bundle can be written as {inert(path, LONGEST_PATH)}: {inert(error)}") from error


@dataclass(frozen=True)
class Bundle:
    """A bundle in memory, every bit of which was checked."""

    path: Path
    manifest: Mapping[str, Any]
    signed: bool
    reasons_untrusted: tuple[str, ...]
    """Why no kernel is taken from it: who else can have written the file."""
    kernels: Mapping[str, str]
    """`Kernel.code` of the kernels by their names."""
    _data: bytes = field(repr=False)
    _places: Mapping[str, slice] = field(repr=False)
    label: str = DEPLOYED
    """As a store of kernels."""
    _found: dict[str, Stored] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, path: Path, key: Path | None = None) -> "Bundle":
        """Read a file; nothing in it is executed.

        Raises ArtifactError where it is no regular file, unreadable, no bundle, damaged, newer or too large; with a
        public key also where its signature is not of that key.
        """
        try:
            with open_regular(path, MAX_BYTES) as file:
                reasons = kernel_cache.reasons(os.fstat(file.fileno()), path)
                data = file.read(MAX_BYTES + 1)
            return _opened(data, path, tuple(reasons), key)
        except OSError as error:
            raise ArtifactError(f"{inert(path, LONGEST_PATH)}: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"{inert(path, LONGEST_PATH)}: {inert(error)}") from error

    def member(self, name: str, limit: int) -> bytes:
        """A member's content. Raises ArtifactError where there is none, or it has more bytes than the limit."""
        if name not in self._places:
            raise ArtifactError(f"{inert(self.path, LONGEST_PATH)}: holds no {inert(name)}")
        inflate = zlib.decompressobj()
        try:
            content = inflate.decompress(self._data[self._places[name]], limit + 1)
        except zlib.error as error:
            raise ArtifactError(f"{inert(self.path, LONGEST_PATH)}: {name}: {error}") from error
        if len(content) > limit or not inflate.eof or inflate.unused_data:
            raise ArtifactError(f"{inert(self.path, LONGEST_PATH)}: {name} is cut or longer than {limit:,} bytes")
        return content

    def find(self, source: KernelSource, arch: int) -> Stored | None:
        """A kernel that may be loaded, if it is there, the same object every time.

        Raises BuildError where its device files are not there.
        """
        if self.reasons_untrusted or (code := self.kernels.get(name := kernel_name(source, arch))) is None:
            return None
        return self._found.setdefault(name, Stored(name, code, partial(self._kernel, name)))

    def _kernel(self, name: str) -> bytes:
        try:
            return self.member(name, kernel_cache.MAX_BYTES)
        except ArtifactError as error:
            raise DamagedKernelError(str(error)) from error

    def workloads(self) -> list[Any]:
        """The [dtype, rows, cols, k, sorted, routing] of its winners, as anybody may have written them.

        Raises ArtifactError.
        """
        try:
            found = json.loads(self.member(WORKLOADS, MAX_MANIFEST_BYTES))
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"{inert(self.path, LONGEST_PATH)}: {WORKLOADS}: {inert(error)}") from error
        return list(found) if isinstance(found, list) else []


def _opened(data: bytes, path: Path, reasons_untrusted: tuple[str, ...], key: Path | None = None) -> Bundle:
    """Raises ValueError, RecursionError."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"too large: {len(data):,} bytes")
    first = _FIRST.match(data)
    if first is None:
        raise ValueError("not a bundle of autotopk")
    if int(first[1]) > FORMAT:
        raise ValueError(f"has format {int(first[1])}; this autotopk reads up to {FORMAT}: upgrade autotopk")
    second = _SECOND.match(data, first.end())
    begin = first.end() if second is None else second.end()
    end = data.find(b"\n", begin, begin + MAX_MANIFEST_BYTES) + 1
    if second is None or _first_line(data[first.end() : end]) != first[0]:
        raise ValueError("its manifest does not match its digest: damaged, or changed by hand")
    line = data[begin:end]
    if key is not None:
        if second[1] is None:
            raise ValueError(f"it is not signed, and {inert(key, LONGEST_PATH)} is asked for")
        signature.check(line, bytes.fromhex(second[1].decode()), key)
    manifest = json.loads(line)
    members = _members(manifest)
    places = _places(members, data, end)
    kernels = {name: entry[2] for name, entry in members.items() if len(entry) > 2}
    return Bundle(path, manifest, second[1] is not None, reasons_untrusted, kernels, data, places)


def _members(manifest: object) -> dict[str, list[Any]]:
    """Members' [size, digest], and of kernels also the code, by name. Raises ValueError on anything else."""
    members = manifest.get("members") if isinstance(manifest, dict) else None
    if not isinstance(members, dict) or len(members) > MAX_MEMBERS:
        raise ValueError("its manifest lists no members, or too many")
    for name, entry in members.items():
        types = [int, str, str] if name.startswith("sm_") else [int, str]
        if not _NAME.fullmatch(name) or type(entry) is not list or list(map(type, entry)) != types or entry[0] < 0:
            raise ValueError(f"its manifest has an odd member, {inert(repr(name))}")
    return members


def _places(members: dict[str, list[Any]], data: bytes, start: int) -> dict[str, slice]:
    """Where the members are. Raises ValueError unless they are what the manifest says, to the last byte."""
    places, view = {}, memoryview(data)
    for name, (size, expected, *_) in members.items():
        places[name] = slice(start, start + size)
        if hashlib.sha256(view[places[name]]).hexdigest() != expected:
            raise ValueError(f"its {name} does not match its digest: damaged, or changed by hand")
        start += size
    if start != len(data):
        raise ValueError(f"it ends {abs(len(data) - start):,} bytes {'late' if len(data) > start else 'early'}")
    return places


def _code(kernel: Kernel | None) -> list[str]:
    return [] if kernel is None else [kernel.code]


def _first_line(head: bytes) -> bytes:
    return BUNDLE + f"{FORMAT} {hashlib.sha256(head).hexdigest()}\n".encode()
