"""Models with top-k that AOTInductor compiles and C++ runs, with our kernels and without Python: docs/aot.md.

`replace_topk` prepares an exported program; `library` and `runner` are what is compiled from C++ for it.
"""

from autotopk.export.native import library, load, runner
from autotopk.export.replacing import Replaced, Site, Way, replace_topk

__all__ = ["Replaced", "Site", "Way", "library", "load", "replace_topk", "runner"]
