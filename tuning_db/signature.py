"""Ed25519 signatures through the package `cryptography`, which the extra `signing` brings."""

from pathlib import Path
from typing import Any

from autotopk.errors import LONGEST_PATH, ArtifactError, inert
from autotopk.files import read_regular

CONTEXT = b"autotopk bundle 1\n"
"""Signed before the message, so that a signature is good for nothing else."""

MAX_KEY_BYTES = 64 << 10


def sign(message: bytes, key: Path) -> bytes:
    """The signature by a private key, in PEM without a password. Raises ArtifactError."""
    try:
        return bytes(_load("load_pem_private_key", "Ed25519PrivateKey", key, None).sign(CONTEXT + message))
    except Exception as error:  # a library's, of many types
        raise _error(key, error) from error


def check(message: bytes, found: bytes, key: Path) -> None:
    """Raise ArtifactError unless it is the signature by a public key, in PEM."""
    try:
        public = _load("load_pem_public_key", "Ed25519PublicKey", key)
    except Exception as error:
        raise _error(key, error) from error
    from cryptography.exceptions import InvalidSignature

    try:
        public.verify(found, CONTEXT + message)
    except InvalidSignature as error:
        raise ArtifactError(f"its signature is not by the key {inert(key, LONGEST_PATH)}") from error


def _load(loader: str, kind: str, key: Path, *arguments: object) -> Any:
    """Raises what the file system and the library raise."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    found = getattr(serialization, loader)(read_regular(key, MAX_KEY_BYTES), *arguments)
    if not isinstance(found, getattr(ed25519, kind)):
        raise TypeError(f"a {type(found).__name__}, not an {kind}")
    return found


def _error(key: Path, error: Exception) -> ArtifactError:
    if isinstance(error, ImportError):
        return ArtifactError("signatures need the package cryptography: pip install cryptography")
    told = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return ArtifactError(f"key {inert(key, LONGEST_PATH)}: {inert(told)}")
