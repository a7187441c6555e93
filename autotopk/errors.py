"""Every error and warning that autotopk raises itself, and how they quote what somebody else wrote."""

import logging
import os
import sys
import warnings
from types import FrameType

logging.getLogger("autotopk").addHandler(logging.NullHandler())  # else logs without a handler go to standard error

PACKAGE = os.path.dirname(__file__) + os.sep


class AutotopkWarning(UserWarning):
    """Something went wrong that costs speed, never a result."""


def warn(message: str) -> None:
    """Warn at the line outside this package that led here."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    logging.getLogger("autotopk.warnings").warning(message)
    warnings.warn(message, AutotopkWarning, stacklevel=level)


class AutotopkError(Exception):
    """Base of the errors below; `topk` lets none of them out."""


class UnknownStrategyError(AutotopkError, LookupError):
    """No strategy of that name is installed."""


class UnsupportedProblemError(AutotopkError, ValueError):
    """A strategy was asked for a problem or a configuration that it does not serve."""


class BuildError(AutotopkError, RuntimeError):
    """A kernel could not be compiled, read from the cache or loaded."""


class NotCompiledError(BuildError):
    """A kernel is not compiled yet, and is not to be compiled now."""


class DamagedKernelError(BuildError):
    """A file of the kernel cache is not what was written."""


class LaunchError(AutotopkError, RuntimeError):
    """The driver refused to launch a kernel."""


class ArtifactError(AutotopkError, ValueError):
    """A winners file is missing, damaged, foreign or newer than this version reads."""


class DatabaseError(AutotopkError, RuntimeError):
    """A tuning database is missing, damaged, foreign or newer than this version reads."""


class SelectionError(AutotopkError, ValueError):
    """A device, a workload or a file was asked for that is not here, or makes no sense."""


class MeasurementError(AutotopkError, RuntimeError):
    """A candidate returned a wrong result, crashed, timed out or could not be timed."""


class WrongAnswerError(AutotopkError, ValueError):
    """A candidate returned what is no top-k."""


LONGEST = 300
"""Most characters that a message quotes of a text from elsewhere."""

LONGEST_PATH = 500
"""And of the name of a file."""


def inert(value: object, longest: int = LONGEST) -> str:
    """A value from elsewhere as messages and tables show it: on one line, cut, unprintable characters escaped.

    Terminal escapes and marks that reverse the direction of text are among the unprintable.
    """
    text = str(value)
    if len(text) > longest:
        text = f"{text[: longest // 2]}... ({len(text):,} characters) ...{text[-longest // 4 :]}"
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
