"""Words of one kind, wherever they are printed; imports nothing that a command line's help does without."""


def counted(number: int, noun: str) -> str:
    """A number of things: "1 workload", "2 workloads"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def printable(text: str) -> str:
    """The text on one line, with whatever a terminal would obey spelled out as in a string of Python."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def shown(text: str, longest: int = 80) -> str:
    """What somebody typed or a file holds, in quotes; the beginning of it where it is long."""
    return repr(text) if len(text) <= longest else f"{text[:longest]!r}..."
