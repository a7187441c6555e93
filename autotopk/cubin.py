"""What of a cubin decides how it runs, told apart from names and debug information."""

import hashlib
import struct
from collections.abc import Iterator

_HEADER = struct.Struct("<16s2HI3QI6H")  # Elf64_Ehdr
_SECTION = struct.Struct("<2I4Q2I2Q")  # Elf64_Shdr
_NOBITS, _ALLOCATED = 8, 2  # sh_type, sh_flags
_SIZE_AT = 32  # of sh_size in a section's header


def code_digest(cubin: bytes, symbol: str) -> str:
    """32 hexadecimal digits over what a GPU loads of a kernel: code, constants, memory, and how it may be launched.

    Left out: the kernel's own name, symbol tables, notes of the tools, and debug information such as line numbers,
    which change with the name of a function or with a docstring above it. Bytes that are no ELF file of 64 bits, as
    another kind of machine code might be, count whole.
    """
    try:
        parts = sorted(_loaded(cubin, symbol))
    except (struct.error, ValueError, IndexError):
        parts = [("", cubin)]
    digest = hashlib.sha256()
    for name, content in parts:
        digest.update(f"{name}:{len(content)}:".encode() + content)
    return digest.hexdigest()[:32]


def without_debug(cubin: bytes) -> bytes:
    """The same code with empty debug sections, everything else where it was. Raises ValueError where it is no ELF file.

    Triton puts the text of its own PTX there; `code_digest` stays.
    """
    stripped = bytearray(cubin)
    try:
        for header, name, kind, _, offset, length in _sections(cubin):
            if "debug" in name and kind != _NOBITS:
                stripped[offset : offset + length] = bytes(length)
                struct.pack_into("<Q", stripped, header + _SIZE_AT, 0)
    except (struct.error, IndexError) as error:
        raise ValueError(f"a damaged cubin: {error}") from error
    return bytes(stripped)


def architecture(cubin: bytes) -> int | None:
    """The compute capability that a cubin is for, 90 for 9.0; None where the bytes are no ELF file of 64 bits."""
    if cubin[:5] != b"\x7fELF\x02" or len(cubin) < _HEADER.size:
        return None
    flags, version = int(_HEADER.unpack_from(cubin)[7]), cubin[8]
    return flags >> 8 & 0xFF if version >= 8 else flags & 0xFF  # CUDA 13 moved it


def _loaded(cubin: bytes, symbol: str) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the sections that are loaded, and of those that describe its launch to the driver."""
    for _, name, kind, flags, offset, length in _sections(cubin):
        if flags & _ALLOCATED or name.startswith(".nv.info."):
            content = length.to_bytes(8, "little") if kind == _NOBITS else cubin[offset : offset + length]
            yield name.replace(symbol, "kernel"), content


def _sections(cubin: bytes) -> Iterator[tuple[int, str, int, int, int, int]]:
    """(where its header is, name, kind, flags, where it is, length) of every section."""
    header = _HEADER.unpack_from(cubin)
    if header[0][:5] != b"\x7fELF\x02":
        raise ValueError("no ELF file of 64 bits")
    start, size, count, names_at = header[6], *header[11:14]
    places = [start + index * size for index in range(count)]
    sections = [_SECTION.unpack_from(cubin, place) for place in places]
    names = sections[names_at][4]
    for place, (name_at, kind, flags, _, offset, length, *_) in zip(places, sections, strict=True):
        name = cubin[names + name_at : cubin.index(b"\0", names + name_at)].decode()
        yield place, name, kind, flags, offset, length
