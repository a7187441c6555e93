"""Random problems where nothing can be compiled: `python scripts/without_compilers.py [COUNT [SEED]] [--json FILE]`.

On a GPU. nvcc, g++, TileLang and Triton are hidden, and the kernel cache is an empty folder. Every answer is compared
with torch.topk's. Printed are what answered, and by how much first calls outlast torch.topk on the same input.
"""

import importlib.abc
import importlib.util
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from importlib.machinery import ModuleSpec
from pathlib import Path
from statistics import median
from typing import Any

HIDDEN = ("triton", "tilelang", "tvm")
DTYPES = ("float32", "bfloat16", "float16", "float64", "int32")
MAX_BYTES = 2 << 30
MAX_ROWS, MAX_COLS = 1 << 16, 8_000_000


class _Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"{name} is hidden", name=name)


def hide() -> None:
    """Make this process as bare as a machine where nothing but the package and torch is installed."""
    sys.meta_path.insert(0, _Hidden())
    find_spec = importlib.util.find_spec

    def hidden_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name.partition(".")[0] in HIDDEN else find_spec(name, package)

    importlib.util.find_spec = hidden_spec
    os.environ["PATH"] = ""
    for name in ("CUDA_HOME", "CUDA_PATH", "AUTOTOPK_DB", "AUTOTOPK_BUILD"):
        os.environ.pop(name, None)
    os.environ["AUTOTOPK_CACHE_DIR"] = tempfile.mkdtemp(prefix="autotopk-bare-")
    from importlib import metadata

    version = metadata.version

    def hidden(name: str) -> str:
        if name in HIDDEN:
            raise metadata.PackageNotFoundError(name)
        return version(name)

    metadata.version = hidden  # type: ignore[assignment]
    from autotopk.compilers import nvcc
    from autotopk.compilers.cuda import CudaSource
    from autotopk.compilers.tilelang import TileLangSource
    from autotopk.compilers.triton import TritonSource

    nvcc.find = lambda: None

    def refuse(self: object, arch: int) -> Any:
        COMPILED.append(str(self))
        raise AssertionError(f"{self} would have been compiled")

    for source in (CudaSource, TileLangSource, TritonSource):
        source.compile = refuse  # type: ignore[method-assign]


COMPILED: list[str] = []


def drawn(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Problems by their fields; rows, cols and k alike in every order of magnitude."""
    draw = random.Random(seed)
    while count:
        rows, cols = (int(2 ** draw.uniform(low, high)) for low, high in ((0, 16), (1, 22.93)))
        dtype, k = draw.choice(DTYPES), int(2 ** draw.uniform(0, 22.93))
        largest, order = draw.random() < 0.5, draw.random() < 0.5
        itemsize = {"bfloat16": 2, "float16": 2, "float64": 8}.get(dtype, 4)
        if rows * cols * itemsize > MAX_BYTES or k > cols or cols > MAX_COLS or rows > MAX_ROWS:
            continue
        count -= 1
        yield {"rows": rows, "cols": cols, "k": k, "dtype": dtype, "largest": largest, "sorted": order}


def main() -> None:
    """Ask, compare, and tell."""
    arguments = [one for one in sys.argv[1:] if one != "--json"]
    file = Path(arguments.pop()) if "--json" in sys.argv else None
    count, seed = (*map(int, arguments), *(300, 0)[len(arguments) :])
    hide()
    import torch

    import autotopk
    from autotopk.device import cuda_device
    from autotopk.oracle.reference import problems_with
    from autotopk.torch_topk import torch_topk

    assert shutil.which("nvcc") is None
    torch.manual_seed(seed)
    autotopk.topk(torch.randn(64, 4096, device="cuda"), 9)  # the first of the process
    rows = []
    for asked in drawn(count, seed):
        shape, k, dtype = (asked["rows"], asked["cols"]), asked["k"], getattr(torch, asked["dtype"])
        if dtype.is_floating_point:
            x = torch.randn(shape, device="cuda", dtype=dtype if dtype != torch.float64 else torch.float64)
        else:
            x = torch.randint(-(1 << 31), (1 << 31) - 1, shape, device="cuda", dtype=dtype)
        order = {"largest": asked["largest"], "sorted": asked["sorted"]}

        def timed(topk: Any, x: Any = x, k: int = k, order: Any = order) -> tuple[float, Any]:
            torch.cuda.synchronize()
            begun = time.perf_counter()
            answer = topk(x, k, **order)
            torch.cuda.synchronize()
            return 1e3 * (time.perf_counter() - begun), answer

        timed(torch_topk)
        torchs = min(timed(torch_topk)[0] for _ in range(2))
        first, answer = timed(autotopk.topk)
        again, _ = timed(autotopk.topk)
        wrong = problems_with(x, answer.values, answer.indices, k, **order)
        choice = autotopk.explain(x, k, **order).choice
        rows.append(
            {**asked, "strategy": choice.strategy.name, "step": choice.step, "wrong": wrong}
            | {"torch_ms": torchs, "first_ms": first, "again_ms": again, "beyond_ms": first - torchs}
        )
        del x, answer
    if file is not None:
        device = {**asdict(cuda_device(0)), "fingerprint": cuda_device(0).fingerprint}
        file.write_text(
            json.dumps({"seed": seed, "device": device, "compiled": COMPILED, "rows": rows}, indent=1) + "\n"
        )
    beyond = sorted(row["beyond_ms"] for row in rows)
    print(f"{len(rows)} problems, {sum(bool(row['wrong']) for row in rows)} wrong, {len(COMPILED)} compiled")
    print("answered by", dict(Counter(row["strategy"] for row in rows)), dict(Counter(row["step"] for row in rows)))
    most = beyond[int(0.95 * len(beyond))]
    print(f"first call beyond torch.topk's: median {median(beyond):.1f} ms, 95 % {most:.1f}, worst {beyond[-1]:.1f}")
    print("imported:", [name for name in HIDDEN if name in sys.modules] or "no compiler")
    for row in [row for row in rows if row["wrong"]][:5]:
        print(row)
    for row in sorted(rows, key=lambda row: -row["beyond_ms"])[:5]:
        print(
            "slowest:", {name: row[name] for name in ("rows", "cols", "k", "dtype", "sorted", "strategy", "beyond_ms")}
        )


if __name__ == "__main__":
    main()
