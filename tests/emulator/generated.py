"""Kernels in TileLang as CUDA source for the emulator, each generated once however many tests and runs ask."""

import fcntl
import hashlib
import pickle
from pathlib import Path

from autotopk import kernel
from autotopk.compilers import cuda, tilelang
from autotopk.compilers.cuda import CudaText
from autotopk.compilers.tilelang import TileLangSource
from autotopk.files import write_atomically
from tests.emulator.emulator import Emulator


def emulator(source: TileLangSource, folder: Path) -> Emulator:
    """The kernel, kept in a folder that processes may share."""
    return Emulator(generated(source, folder), folder)


def generated(source: TileLangSource, folder: Path) -> CudaText:
    """Its CUDA source, kept under a name that holds all that it is made from: that takes TileLang seconds."""
    host = [Path(str(one.__file__)).read_text() for one in (tilelang, cuda, kernel)]
    made_from = "|".join([source.cache_key(), kernel.distribution_version("tilelang"), *host])
    path = folder / f"{hashlib.sha256(made_from.encode()).hexdigest()[:24]}.text"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            write_atomically(path, pickle.dumps(source.generate(90)))
        text: CudaText = pickle.loads(path.read_bytes())
        return text
