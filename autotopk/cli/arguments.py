"""From what is typed on a command line to devices and workloads."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotopk.device import Device, device_of
from autotopk.errors import AutotopkError, inert

if TYPE_CHECKING:
    import torch

    from autotopk.workloads import Workload


class SelectionError(AutotopkError, ValueError):
    """A device or workload was asked for that is not here."""


def torch_device(text: str | None) -> "torch.device":
    """A device to run on; by default the first GPU, else the CPU. Raises SelectionError."""
    import torch

    if text is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(text)
    except RuntimeError:
        raise SelectionError(f"device {text!r} is not cpu, cuda or cuda:INDEX") from None
    if device.type not in ("cpu", "cuda"):
        raise SelectionError(f"device {text!r} is not cpu, cuda or cuda:INDEX")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise SelectionError(f"device {text!r} is not here: {torch.cuda.device_count()} CUDA devices found")
    return device


def device_named(text: str | None, known: Iterable[Device]) -> Device:
    """A device that is here (by default the first GPU, else the CPU), or a known one of another machine.

    Known ones are named by their fingerprint or a part of it: "H100". Raises SelectionError.
    """
    if text is None or re.fullmatch(r"cpu|cuda(:\d+)?", text):
        return device_of(torch_device(text))
    by_fingerprint = {device.fingerprint: device for device in known}
    if text in by_fingerprint:
        return by_fingerprint[text]
    matches = sorted(one for one in by_fingerprint if text.lower() in one.lower())
    if len(matches) != 1:
        found = "fits more than one device" if matches else "is not cpu, cuda, cuda:INDEX or a part of a known device"
        told = "; ".join(matches or sorted(by_fingerprint)) or "none"
        raise SelectionError(f"device {text!r} {found}; known: {told}")
    return by_fingerprint[matches[0]]


def workloads(
    tags: Sequence[str], rows: Sequence[str], cols: Sequence[str], ks: Sequence[str], dtypes: Sequence[str]
) -> "list[Workload]":
    """The workloads of the tags, then those of the grid of the lists, each once. Raises SelectionError."""
    from autotopk.problem import DTYPE_BYTES
    from autotopk.workloads import TAGS, grid, tagged

    if unknown := sorted({*_split(tags)} - {*TAGS}):
        raise SelectionError(f"tag {unknown[0]!r} is not one of {', '.join(TAGS)}")
    if unknown := sorted({*_split(dtypes)} - {*DTYPE_BYTES}):
        raise SelectionError(f"dtype {unknown[0]!r} is not one of {', '.join(DTYPE_BYTES)}")
    lists = {"--rows": numbers("--rows", rows), "--cols": numbers("--cols", cols), "-k": numbers("-k", ks)}
    chosen = [workload for tag in _split(tags) for workload in tagged(tag)]
    if any(lists.values()):
        if missing := [option for option, values in lists.items() if not values]:
            raise SelectionError(f"--rows, --cols and -k go together; {missing[0]} is missing")
        chosen += grid(lists["--rows"], lists["--cols"], lists["-k"], _split(dtypes) or ["float32"])
        if not chosen:
            raise SelectionError(f"k={min(lists['-k'])} exceeds every one of --cols {lists['--cols']}")
    elif dtypes:
        raise SelectionError("--dtype needs --rows, --cols and -k")
    return list(dict.fromkeys(chosen))


def strategies(texts: Sequence[str]) -> list[str] | None:
    """Names of strategies; None for all. Raises SelectionError."""
    from autotopk import registry

    words = _split(texts)
    if unknown := sorted({*words} - {*registry.names()}):
        raise SelectionError(f"strategy {unknown[0]!r} is not one of {', '.join(registry.names())}")
    return words or None


def usual(device: "torch.device") -> "list[Workload]":
    """What is tuned and timed where nothing else is asked for."""
    from autotopk.workloads import tagged

    return tagged("seeds" if device.type == "cuda" else "ci")


def missed(path: Path, device: Device) -> "list[Workload]":
    """The problems of a device in a file that AUTOTOPK_MISSES named: what most processes met first.

    Raises SelectionError.
    """
    from autotopk.files import read_regular
    from autotopk.runtime.misses import MAX_BYTES
    from autotopk.tuning_db.columns import BOOL, SHAPE, TEXT, why_not
    from autotopk.workloads import Workload

    columns = {"device": TEXT, **SHAPE, "sorted": BOOL}
    counts: Counter[Workload] = Counter()
    others: set[str] = set()
    try:
        lines = read_regular(path, 2 * MAX_BYTES).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SelectionError(f"misses {path}: {inert(error)}") from error
    for number, line in enumerate(lines, 1):
        try:
            miss = json.loads(line)
            place = miss.pop("device")
            miss.pop("count", None)  # of plans, in files of earlier versions
            for name, value in {"device": place, **miss}.items():
                if reason := why_not(name, columns[name], value):
                    raise ValueError(reason)
            workload = Workload(**miss)
            if place == device.fingerprint:
                counts[workload] += 1
            else:
                others.add(place)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            told = f"{inert(repr(line))} is no miss ({inert(error)})"
            raise SelectionError(f"misses {path}, line {number}: {told}") from error
    if not counts:
        told = inert("; ".join(sorted(others)) or "none")
        raise SelectionError(f"{path} holds no miss of {device.fingerprint}, only of: {told}")
    return [workload for workload, _ in counts.most_common()]


def numbers(option: str, texts: Sequence[str]) -> list[int]:
    """Positive integers from comma-separated lists. Raises SelectionError."""
    words = _split(texts)
    if bad := [word for word in words if not word.isdecimal() or int(word) < 1]:
        raise SelectionError(f"{option} {bad[0]!r} is not a positive integer")
    return [int(word) for word in words]


def _split(texts: Sequence[str]) -> list[str]:
    """The words of comma-separated lists."""
    return [word.strip() for text in texts for word in text.split(",") if word.strip()]
