"""From what is typed on a command line to devices and workloads."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from autotopk.cli.wording import shown
from autotopk.device import Device, cpu_device, cuda_device, device_of
from autotopk.errors import SelectionError as SelectionError
from autotopk.problem import DTYPE_BYTES, OPERATIONS
from autotopk.routing import Routing
from autotopk.workloads import MOST
from autotopk.workloads import check_size as check_size

if TYPE_CHECKING:
    import torch

    from autotopk.workloads import Workload


MOST_SECONDS = 366 * 86400

HERE = ("cpu", "cuda")
"""Kinds of devices that this machine may have."""


def torch_device(text: str | None) -> "torch.device":
    """A device to run on; by default the first GPU, else the CPU. Raises SelectionError."""
    if text is not None and not re.fullmatch(r"cpu|cuda(:[0-9]{1,2})?", text):
        raise SelectionError(f"device {shown(text)} is not cpu, cuda or cuda:INDEX")
    import torch

    device = torch.device(text or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise SelectionError(f"device {text!r} is not here: {torch.cuda.device_count()} CUDA devices found")
    return device


def devices_here() -> list[Device]:
    """Of this machine: its CPU, then its GPUs."""
    import torch

    return [cpu_device(), *map(cuda_device, range(torch.cuda.device_count()))]


def device_named(text: str | None, known: Iterable[Device]) -> Device:
    """A device that is here (by default the first GPU, else the CPU), or a known one of another machine.

    Known ones are named by their fingerprint or a part of it: "H100". Raises SelectionError.
    """
    if text is None or re.fullmatch(r"cpu|cuda(:[0-9]*)?", text):
        return device_of(torch_device(text))
    by_fingerprint = {device.fingerprint: device for device in known}
    if text in by_fingerprint:
        return by_fingerprint[text]
    matches = sorted(one for one in by_fingerprint if text.lower() in one.lower())
    if len(matches) != 1:
        found = "fits more than one device" if matches else "is not cpu, cuda, cuda:INDEX or a part of a known device"
        told = "; ".join(matches or sorted(by_fingerprint)) or "none"
        raise SelectionError(f"device {shown(text)} {found}; known: {told}")
    return by_fingerprint[matches[0]]


def workloads(
    tags: Sequence[str],
    rows: Sequence[str],
    cols: Sequence[str],
    ks: Sequence[str],
    dtypes: Sequence[str],
    rule: str | None = None,
) -> "list[Workload]":
    """The workloads of the tags, in the dtypes if any are named, then the grid of the lists, each workload once.

    With the rule of a router the grid is of that. Raises SelectionError.
    """
    from autotopk.workloads import TAGS, grid, operations, routers, tagged

    of_tags, names = words("--tag", tags, TAGS), words("--dtype", dtypes, DTYPE_BYTES)
    lists = {"--rows": numbers("--rows", rows), "--cols": numbers("--cols", cols), "-k": numbers("-k", ks)}
    chosen = [workload for tag in of_tags for workload in tagged(tag)]
    if names:
        chosen = [replace(workload, dtype=dtype) for workload in chosen for dtype in names]
    if any(lists.values()):
        if missing := [option for option, values in lists.items() if not values]:
            raise SelectionError(f"--rows, --cols and -k go together; {missing[0]} is missing")
        sizes = lists["--rows"], lists["--cols"], lists["-k"], names or ["float32"]
        try:
            if rule in OPERATIONS:
                of_grid = operations(*sizes, OPERATIONS[rule])
            else:
                of_grid = grid(*sizes) if rule is None else routers(*sizes, routing=Routing.parse(rule))
        except ValueError as error:
            raise SelectionError(f"--routing {shown(rule or '')}: {error}") from error
        if not of_grid:
            raise SelectionError(f"k={min(lists['-k'])} exceeds every one of --cols {max(lists['--cols'])}")
        chosen += of_grid
    elif rule is not None:
        raise SelectionError("--routing needs --rows, --cols and -k")
    elif names and not of_tags:
        raise SelectionError("--dtype needs --tag, or --rows, --cols and -k")
    for workload in chosen:
        check_size(workload.rows, workload.cols, workload.dtype)
    return list(dict.fromkeys(chosen))


def strategies(texts: Sequence[str]) -> list[str] | None:
    """Names of strategies; None for all. Raises SelectionError."""
    from autotopk import registry

    return words("--strategy", texts, registry.names()) or None


def usual(device: "torch.device") -> "list[Workload]":
    """What is tuned and timed where nothing else is asked for."""
    from autotopk.workloads import tagged

    return tagged("seeds" if device.type == "cuda" else "ci")


def shape_or_file(text: str) -> tuple[int, int, int, str] | Path:
    """Rows, cols, k and dtype of ROWSxCOLSxK[:DTYPE], or a file that is there. Raises SelectionError."""
    found = re.fullmatch(r"([0-9]{1,19})x([0-9]{1,19})x([0-9]{1,19})(?::(\w+))?", text)
    if found is None and os.path.isfile(text):
        return Path(text)
    if found is None:
        raise SelectionError(f"{shown(text)} is no file and not ROWSxCOLSxK[:DTYPE], as in 64x8192x256:bfloat16")
    rows, cols, k = map(int, found.groups()[:3])
    return rows, cols, k, found[4] or "float32"


def words(option: str, texts: Sequence[str], known: Collection[str]) -> list[str]:
    """The words of comma-separated lists. Raises SelectionError where a list is empty or a word is not known."""
    found = _split(option, texts)
    if unknown := [word for word in found if word not in known]:
        raise SelectionError(f"{option} {shown(unknown[0])} is not one of {', '.join(known)}")
    return found


def numbers(option: str, texts: Sequence[str]) -> list[int]:
    """Positive integers from comma-separated lists. Raises SelectionError."""
    found = _split(option, texts)
    for word in found:
        if not re.fullmatch("[0-9]{1,19}", word) or not 1 <= int(word) <= MOST:
            raise SelectionError(f"{option} {shown(word)} is not a whole number from 1 to {MOST}")
    return [int(word) for word in found]


def architectures(option: str, texts: Sequence[str]) -> list[int]:
    """Compute capabilities, 90 for 9.0, from comma-separated lists, in order. Raises SelectionError."""
    found = sorted(set(numbers(option, texts)))
    if odd := [arch for arch in found if not 50 <= arch < 1000]:
        raise SelectionError(f"{option} {odd[0]} is no compute capability: 90 stands for 9.0")
    return found


def seconds(option: str, value: float | None) -> float | None:
    """A budget; None where there is none. Raises SelectionError."""
    if value is not None and not 0 <= value <= MOST_SECONDS:
        raise SelectionError(f"{option} {value:g} is not a number of seconds from 0 to {MOST_SECONDS}, a year")
    return value


def writable(option: str, path: Path | None) -> Path | None:
    """A file to be written when the work is done. Raises SelectionError where it cannot be."""
    if path is None:
        return None
    if path.is_dir():
        raise SelectionError(f"{option} {path} is a folder, not a file")
    if not path.parent.is_dir():
        raise SelectionError(f"{option} {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise SelectionError(f"{option} {path} cannot be written")
    return path


def completes(words: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What a shell offers for the last word of a comma-separated list."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{word}" for word in words() if word.startswith(last)]

    return complete


def known_tags() -> Iterable[str]:
    """For a shell to complete."""
    from autotopk.workloads import TAGS

    return TAGS


def known_strategies() -> Iterable[str]:
    """For a shell to complete."""
    from autotopk import registry

    return registry.names()


def known_devices() -> list[str]:
    """For a shell to complete: those of this machine, and words that name one of the stored devices alone."""
    from autotopk.cli.transfer import known_devices

    names = [device.fingerprint for device in known_devices() if device.type != "cpu"]
    parts = dict.fromkeys(part for name in names for part in name.split("|")[1].split())
    return [*HERE, *(part for part in parts if sum(part.lower() in name.lower() for name in names) == 1)]


def _split(option: str, texts: Sequence[str]) -> list[str]:
    """The words of comma-separated lists. Raises SelectionError where a list has none."""
    found = []
    for text in texts:
        words = [word.strip() for word in text.split(",") if word.strip()]
        if not words:
            raise SelectionError(f"{option} {shown(text)} names nothing")
        found += words
    return found
