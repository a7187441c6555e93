"""The software around a measurement, as it is recorded beside it."""

import platform
import re
import socket
import sys
from pathlib import Path

import torch

from autotopk.device import Device
from autotopk.kernel import distribution_version
from autotopk.tuning_db.records import Environment

NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


def environment_of(device: Device) -> Environment:
    """The versions in this process, and which torch.topk runs on the device."""
    on_gpu = device.type == "cuda"
    return Environment(
        driver=_driver() if on_gpu else "none",
        cuda=(torch.version.cuda or "none") if on_gpu else "none",
        torch=str(torch.__version__),
        triton=distribution_version("triton"),
        tilelang=distribution_version("tilelang"),
        python=platform.python_version(),
        autotopk=distribution_version("autotopk"),
        baseline="native" if on_gpu and _native_topk() else "aten",
    )


def specimen_of(place: torch.device) -> str:
    """Which processor of its model this is: a GPU's UUID, a CPU's host; empty where torch does not say."""
    if place.type != "cuda":
        return socket.gethostname()
    return str(getattr(torch.cuda.get_device_properties(place), "uuid", ""))


def _driver() -> str:
    """The NVIDIA driver's version; where the operating system does not have it, the CUDA version that it supports."""
    try:
        if found := re.search(r"\b\d+\.\d+(\.\d+)?\b", NVIDIA_DRIVER.read_text()):
            return found[0]
    except OSError:
        pass
    supported = getattr(torch._C, "_cuda_getDriverVersion", None)
    return f"CUDA {supported() // 1000}.{supported() % 1000 // 10}" if supported else "unknown"


def _native_topk() -> bool:
    """Whether torch overrides aten::topk on CUDA by a kernel of its own (from 2.13, where its compiler is there)."""
    native = sys.modules.get("torch._native.registry")
    graphs = getattr(native, "_graphs", {})
    return any(getattr(node, "active", True) for node in graphs.get(("topk", "CUDA"), ()))
