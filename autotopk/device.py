"""Where it runs: the properties of a GPU or CPU that tuning depends on."""

import os
import platform
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Device:
    """A model of processor, not one specimen: two equal machines give equal `Device`s.

    The driver is left out on purpose: it changes under a deployment without changing the best kernel much, and is
    recorded beside each measurement instead. Memory distinguishes boards that share a name.
    """

    type: str
    name: str
    capability: tuple[int, int] = (0, 0)
    processors: int = 1
    """Multiprocessors of a GPU; of a CPU the cores that torch's operators use, one thread each."""
    l2_bytes: int = 0
    memory_gib: int = 0
    shared_bytes: int = 0
    """Largest shared memory of one block."""

    def __hash__(self) -> int:
        return hash(self.name)  # every cache of a prediction asks, and no other field tells more

    @property
    def arch(self) -> int:
        """Compute capability as compilers spell it: 90 for (9, 0)."""
        return self.capability[0] * 10 + self.capability[1]

    @property
    def model(self) -> str:
        """What all fingerprints begin with that differ in nothing but sizes."""
        return f"{self.type}|{self.name}|"

    @property
    def fingerprint(self) -> str:
        """The identity under which winners are stored; a name, from which nothing is read back."""
        return _fingerprint(self)


@cache  # a first call asks for it time and again
def _fingerprint(device: Device) -> str:
    if device.type == "cpu":
        return f"{device.model}{device.processors} cores"
    return f"{device.model}sm_{device.arch}|{device.processors} SMs|{device.memory_gib} GiB"


H100 = Device("cuda", "NVIDIA H100 80GB HBM3", (9, 0), 132, 50 << 20, 79, 227 << 10)
"""The GPU that the published figures were measured on; also what tests compile for where there is no GPU."""


@cache
def cuda_device(index: int) -> Device:
    """The CUDA device of that index."""
    import torch

    properties = torch.cuda.get_device_properties(index)
    return Device(
        type="cuda",
        name=properties.name,
        capability=(properties.major, properties.minor),
        processors=properties.multi_processor_count,
        l2_bytes=getattr(properties, "L2_cache_size", 0),
        memory_gib=round(properties.total_memory / 2**30),
        shared_bytes=getattr(properties, "shared_memory_per_block_optin", 48 << 10),
    )


def shared_bytes_of(arch: int) -> int:
    """Shared memory of a block that kernels compiled ahead for a compute capability (90 for 9.0) may ask for."""
    return (163 if arch < 90 else 227 if arch < 120 else 99) << 10


def device_of_arch(arch: int) -> Device:
    """Any GPU of a compute capability that kernels are compiled ahead for, as far as that says what fits."""
    return Device("cuda", f"sm_{arch}", divmod(arch, 10), shared_bytes=shared_bytes_of(arch))


def cpu_device() -> Device:
    """This machine's CPU, as far as torch's operators use it now, see `torch.set_num_threads`."""
    import torch

    return _cpu(torch.get_num_threads())


@cache
def _cpu(threads: int) -> Device:
    return Device(type="cpu", name=_cpu_model(), processors=threads)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def device_of(device: "torch.device") -> Device:
    """The `Device` of a torch device."""
    if device.type == "cuda":
        import torch

        return cuda_device(torch.cuda.current_device() if device.index is None else device.index)
    return cpu_device()


@cache
def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()
