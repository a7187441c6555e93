"""Words of one kind, wherever they are printed; imports nothing that a command line's help does without."""

LONGEST_LINE = 2000
"""Most characters of a line."""


def counted(number: int, noun: str) -> str:
    """A number of things: "1 workload", "2 workloads"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shown(text: str, longest: int = 80) -> str:
    """What somebody typed or a file holds, in quotes; the beginning of it where it is long."""
    return repr(text) if len(text) <= longest else f"{text[:longest]!r}..."
