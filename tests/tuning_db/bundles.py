"""Bundles to test with: a strategy whose kernels compile in no time, and files that no export wrote."""

import hashlib
import json
import os
import random
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from autotopk.candidate import Candidate
from autotopk.device import H100, Device
from autotopk.errors import BuildError
from autotopk.kernel import Kernel, distribution_version
from autotopk.key import TuningKey
from autotopk.problem import Problem
from autotopk.program import Extent, KernelProgram
from autotopk.strategy import Strategy
from autotopk.tuning_db import artifact, bundle
from autotopk.tuning_db.records import Winner
from tests.compilers.small_sources import CountingSource
from tests.tuning_db.examples import winner
from tests.tuning_db.mutants import JSON, OF_WINNERS, VALUES, mutate


def cubin(arch: int, more: bytes = b"") -> bytes:
    """A file that says what it is for, and holds nothing."""
    return struct.pack("<16s2HI3QI6H", b"\x7fELF\x02\x01\x01\x41\x08", 2, 190, 1, 0, 0, 0, arch << 8, *[0] * 6) + more


@dataclass(frozen=True)
class SmallSource(CountingSource):
    """What compiles for the architecture that is asked for."""

    def compile(self, arch: int) -> Kernel:
        if self.code == "knob_9":
            raise BuildError("no compiler takes it")
        super().compile(arch)
        return self.made(arch)

    def made(self, arch: int) -> Kernel:
        """What it compiles to."""
        return replace(self.kernel, symbol=self.code, cubin=cubin(arch, self.code.encode() * 100))


@dataclass(frozen=True)
class SmallConfig:
    """One knob, so that kernels differ."""

    knob: int = 0


class Small(Strategy):
    """Runs nowhere, but names kernels; those of knob 9 do not compile."""

    name = "small"
    config_type = SmallConfig

    def __init__(self, log: Path) -> None:
        self.log = log

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        return [] if device.type == "cuda" else ["needs a GPU"]

    def shortlist(self, problem: Problem, device: Device) -> Sequence[SmallConfig]:
        return [SmallConfig(knob) for knob in range(10)]

    def heuristic(self, problem: Problem, device: Device) -> None:
        return None

    def source(self, knob: int) -> SmallSource:
        return SmallSource(self.log, f"knob_{knob}")

    def program(self, config: SmallConfig, problem: Problem, device: Device) -> KernelProgram:
        return KernelProgram.of(self.source(config.knob), Extent())

    def winner(self, knob: int, rows: int = 64, device: Device = H100, **changes: Any) -> Winner:
        """As it was measured there."""
        key = TuningKey("float32", rows, 1024, 8, sorted=True)
        problem = Problem.contiguous(key.rows, key.cols, key.k, device_type=device.type)
        program = self.program(SmallConfig(knob), problem, device)
        measured = program.identity_as([self.source(knob).made(device.arch).code], problem, device.arch)
        identity = replace(measured, source="of other compilers")
        candidate = Candidate(self.name, f'{{"knob":{knob}}}')
        return winner(device=device, key=key, candidate=candidate, identity=identity, **changes)


def plain(path: Path, winners: Sequence[Winner], kernels: int = 2, key: Path | None = None) -> Path:
    """A bundle of these winners, and of so many kernels that nobody names."""
    named = {f"sm_90/{at:032x}": small_kernel(at) for at in range(kernels)}
    bundle.write(path, artifact.to_bytes(winners), [one.key for one in winners], named, {"autotopk": "0"}, key)
    return path


def small_kernel(at: int) -> Kernel:
    return Kernel(cubin(90, random.Random(at).randbytes(300)), f"kernel_{at}", (), threads=32)


def parts(content: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the members, still deflated."""
    *_, line, rest = content.split(b"\n", 3)
    manifest = json.loads(line)
    members, at = {}, 0
    for name, (size, *_) in manifest["members"].items():
        members[name], at = rest[at : at + size], at + size
    return manifest, members


def sealed(
    manifest: object, members: dict[str, bytes], first: bytes = b"autotopk bundle 1 ", *, sizes: bool = True
) -> bytes:
    """A file whose digests hold, as who can write it could make it."""
    if sizes and isinstance(manifest, dict) and isinstance(listed := manifest.get("members"), dict):
        for name, data in members.items():
            entry = listed.get(name)
            rest = entry[2:] if isinstance(entry, list) else []
            listed[name] = [len(data), hashlib.sha256(data).hexdigest(), *rest]
    head = b"unsigned\n" + json.dumps(manifest).encode() + b"\n"
    return b"".join([first, hashlib.sha256(head).hexdigest().encode(), b"\n", head, *members.values()])


def keys(folder: Path) -> tuple[Path, Path]:
    """A new private key and its public one."""
    if distribution_version("cryptography") == "absent":
        refuse = pytest.fail if os.environ.get("AUTOTOPK_REQUIRE_TOOLS") == "1" else pytest.skip
        refuse("needs cryptography")
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem, no_password = form.Encoding.PEM, form.NoEncryption()
    folder.mkdir(exist_ok=True)
    (folder / "key.pem").write_bytes(key.private_bytes(pem, form.PrivateFormat.PKCS8, no_password))
    public = key.public_key().public_bytes(pem, form.PublicFormat.SubjectPublicKeyInfo)
    (folder / "pub.pem").write_bytes(public)
    return folder / "key.pem", folder / "pub.pem"


# Mutations: each takes a good file and gives another -----------------------------------------------------------------


def flip_bit(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def append(content: bytes, draw: random.Random) -> bytes:
    return content + draw.choice([b"\0", b"\n", content, draw.randbytes(100)])


def odd_manifest(content: bytes, draw: random.Random) -> bytes:
    manifest, members = parts(content)
    values = [*[one for one in VALUES if type(one) is not bytes], *[parsed(text) for text in JSON], [], {}, [0, ""], -5]
    value = draw.choice(values)
    how = draw.randrange(5)
    name = draw.choice([*members])
    if how == 0:
        manifest["members"][name] = value
    elif how == 1:
        manifest["members"][name][draw.randrange(len(manifest["members"][name]))] = value
    elif how == 2:
        manifest["members"][draw.choice(["../../etc/passwd", "sm_90/x", "sm_90/" + "0" * 32, "/", ""])] = [0, ""]
    elif how == 3:
        manifest["members"] = value
    else:
        return sealed(value, members)
    return sealed(manifest, members, sizes=False)


def odd_member(content: bytes, draw: random.Random) -> bytes:
    """What a member inflates to is another's, nothing, too long, or garbage."""
    manifest, members = parts(content)
    name = draw.choice([*members])
    garbage = [b"", b"x", zlib.compress(b""), bomb(), members[draw.choice([*members])]]
    members[name] = draw.choice([*garbage, members[name][:-3], members[name] + b"x", zlib.compress(b"[" * 99_999)])
    return sealed(manifest, members)


@cache
def bomb() -> bytes:
    """80 KiB that are 80 MiB."""
    return zlib.compress(bytes(80 << 20))


def odd_winners(content: bytes, draw: random.Random, folder: Path) -> bytes:
    manifest, members = parts(content)
    mutate(zlib.decompress(members[bundle.WINNERS]), folder / "winners", draw.randrange(1 << 30), OF_WINNERS)
    members[bundle.WINNERS] = zlib.compress((folder / "winners").read_bytes())
    return sealed(manifest, members)


def odd_first_line(content: bytes, draw: random.Random) -> bytes:
    lines = [
        b"autotopk bundle 2 ",
        b"autotopk bundle 0 ",
        b"autotopk bundle 01 ",
        b"autotopk bundle ",
        b"autotopk bundle 1\n",
    ]
    return sealed(*parts(content), first=draw.choice(lines))


def parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def mutated(content: bytes, seed: int, folder: Path) -> tuple[str, bytes]:
    """What was done, and what came out."""
    draw = random.Random(seed)
    mutations: list[Callable[..., bytes]] = [
        flip_bit,
        cut,
        append,
        odd_manifest,
        odd_manifest,
        odd_member,
        odd_winners,
        odd_first_line,
    ]
    mutation = draw.choice(mutations)
    arguments = (folder,) if mutation is odd_winners else ()
    return f"{mutation.__name__} by seed {seed}", mutation(content, draw, *arguments)
