"""What a program is made from, and what it compiles to: by these two digests measurements find their code again.

Host code (what a strategy serves, its shortlist, its heuristic) is in neither.
"""

import ast
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DIGITS = 32


@dataclass(frozen=True, slots=True)
class Identity:
    """Of a program, when it was measured."""

    source: str
    """Digest of what it is made from: device files, constants, compiler, grid. Known before anything is compiled; of
    one source there is one code."""
    code: str
    """Digest of what runs: compiled code without names and debug information, arguments, launch attributes, grid."""


NOTHING = Identity("", "")
"""Of what made no program."""


def digest(*parts: object) -> str:
    """32 hexadecimal digits over the texts of the parts."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:DIGITS]


@cache
def python_digest(file: Path) -> str:
    """Digest of a Python file as code: comments, docstrings and Python's own version make no difference."""
    return digest(_text(ast.parse(file.read_bytes())))


def _text(node: object) -> str:
    """A syntax tree as text, without docstrings, and without empty fields: later Pythons add some."""
    if isinstance(node, list):
        return f"[{','.join(map(_text, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = {name: value for name, value in ast.iter_fields(node) if value not in (None, [])}
    if isinstance(body := parts.get("body"), list) and _is_docstring(body[0]):
        parts["body"] = body[1:]
    return f"{type(node).__name__}({','.join(f'{name}={_text(value)}' for name, value in parts.items())})"


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
