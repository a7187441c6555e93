"""Cached kernel files that nobody wrote: damaged ones, and ones with a right digest, which only an attacker makes."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, get_args

from autotopk.kernel import MAX_PARAMETERS, Kernel
from tests.compilers.small_sources import header, sealed

Kind = Literal["flips", "cut", "spliced", "random", "swapped", "edited", "sealed code", "sealed edits", "sealed JSON"]

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 31, 1024, 1025, 232_448, 232_449, 2**31, 2**63, 10**400, 0.5, 1e308, float("nan")),
    *("", "x", "64", "x" * 300, "a\x00b", "[/red]\x1b[31m", "\ud800", "ä"),
    *([], {}, [[]], [64], ["x"], {"name": "x"}, [{"name": "x", "kind": "pointer"}] * (MAX_PARAMETERS + 1)),
    [{"name": "nobody", "kind": "pointer"}],
    [{"name": "x", "kind": "float"}],
)


@dataclass(frozen=True)
class Mutant:
    """A file in the place of a kernel's."""

    kind: Kind
    data: bytes

    @property
    def is_forged(self) -> bool:
        """Whether the digest is right, so that another kernel than the compiled one may be loaded."""
        return self.kind.startswith("sealed")


def mutants(kernel: Kernel, file: str, other: Kernel, count: int, seed: int) -> Iterator[Mutant]:
    """Files in the place of a kernel's, all kinds in turn.

    Args:
        kernel: whose file it was.
        file: the name of the file.
        other: another one, to take parts from.
        count: how many.
        seed: the same seed gives the same files.
    """
    random, kinds = Random(seed), get_args(Kind)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        while (data := _mutated(kind, kernel, file, other, random)) == kernel.to_bytes(file):
            pass
        yield Mutant(kind, data)


def _mutated(kind: Kind, kernel: Kernel, file: str, other: Kernel, random: Random) -> bytes:
    good, theirs = kernel.to_bytes(file), other.to_bytes(f"other.{file}")
    if kind == "flips":
        flipped = bytearray(good)
        for _ in range(random.choice((1, 1, 1, 2, 8))):
            flipped[random.randrange(len(good))] ^= 1 << random.randrange(8)
        return bytes(flipped)
    if kind == "cut":
        start, end = sorted(random.choices(range(len(good) + 1), k=2))
        return random.choice((good[:end], good[start:], good[:start] + good[end:], good + good[start:end]))
    if kind == "spliced":
        at = random.randrange(len(good))
        return random.choice((good[:at] + theirs[at:], theirs[:at] + good[at:], theirs + good))
    if kind == "random":
        return random.randbytes(random.choice((0, 1, 80, 1000))) + random.choice((b"", b"\n", good))
    first = good[: good.index(b"\n") + 1]
    if kind == "swapped":
        code = len(good) - len(kernel.cubin)
        return random.choice((theirs, good[:code] + other.cubin, first + theirs[theirs.index(b"\n") + 1 :]))
    if kind == "sealed code":
        return sealed(json.dumps(header(kernel)).encode() + b"\n" + other.cubin, file)
    if kind == "sealed JSON":
        opened = random.choice(("[", '{"threads":', "[[1,"))
        text = random.choice(("5", "null", '"x"', "[]", "{}", "NaN", "9" * 9000, opened * random.randrange(12_000)))
        return sealed(text.encode() + random.choice((b"", b"\n", b"\n" + kernel.cubin)), file)
    fields = header(kernel)
    for name in random.sample([*fields, "unknown", "cubin"], random.choice((1, 1, 2, 5))):
        if name in fields and random.random() < 0.1:
            del fields[name]
        else:
            fields[name] = random.choice(VALUES)
    content = json.dumps(fields).encode() + b"\n" + kernel.cubin
    return sealed(content, file) if kind == "sealed edits" else first + content


def is_launchable(kernel: Kernel) -> bool:
    """Whether every number of a launch is one that a GPU may be given, as the driver's documentation has them."""
    return (
        type(kernel.threads) is type(kernel.shared_bytes) is type(kernel.cluster) is int
        and 1 <= kernel.threads <= 1024
        and 0 <= kernel.shared_bytes <= 227 * 1024
        and 1 <= kernel.cluster <= 16
        and type(kernel.cooperative) is type(kernel.programmatic_launch) is bool
        and kernel.symbol.isascii()
        and 0 < len(kernel.symbol) <= 256
        and len(kernel.parameters) <= MAX_PARAMETERS
        and all(one.name.isascii() and one.kind in ("pointer", "int32", "int64") for one in kernel.parameters)
    )
