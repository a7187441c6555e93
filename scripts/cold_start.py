"""Many processes that start at once from a bundle on a bare machine: `python scripts/cold_start.py BUNDLE [PROCESSES]`.

On a GPU. In every process compilers are hidden and the kernel cache is empty, as in `without_compilers`; all make their
first call of `autotopk.topk` in the same moment, each on a workload that the bundle has a winner for.
"""

import os
import subprocess
import sys
from pathlib import Path

PROCESSES = 64

CALL = """
import os, sys, time, warnings
sys.path.insert(0, sys.argv[1])
from without_compilers import COMPILED, hide
hide()
os.environ["AUTOTOPK_DB"] = sys.argv[2]
import torch
rows, cols, k, dtype, order = sys.argv[3:]
order = order == "True"
x = torch.randn(int(rows), int(cols), device="cuda").to(getattr(torch, dtype))
expected = torch.topk(x, int(k), sorted=order).values.sort(descending=True).values
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.readline()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    begun = time.perf_counter()
    import autotopk
    answer = autotopk.topk(x, int(k), sorted=order)
    torch.cuda.synchronize()
    first = time.perf_counter() - begun
right = torch.equal(answer.values.sort(descending=True).values, expected)
right = right and torch.equal(x.gather(1, answer.indices), answer.values) and not COMPILED
step = autotopk.explain(x, int(k), sorted=order).choice.step
print(1e3 * first, right, step, len(caught), *[warning.message for warning in caught])
"""


def main() -> None:
    """Start them, let them go, and tell."""
    from autotopk.runtime.state import Runtime

    bundle = Path(sys.argv[1]).absolute()
    count = int(sys.argv[2]) if len(sys.argv) > 2 else PROCESSES
    os.environ["AUTOTOPK_DB"], os.environ["AUTOTOPK_SHIPPED"] = str(bundle), "0"
    keys = [winner.key for winners in Runtime().known().values() for winner in winners]
    keys = [key for key in keys if not key.routing and key.rows * key.cols <= 1 << 25]  # 64 inputs at a time
    command = [sys.executable, "-c", CALL, str(Path(__file__).parent), str(bundle)]
    running = []
    for at in range(count):
        key = keys[at % len(keys)]
        shape = [str(one) for one in (key.rows, key.cols, key.k, key.dtype, key.sorted)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        running.append(subprocess.Popen([*command, *shape], text=True, **pipes))  # type: ignore[call-overload]
    for process in running:
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [process.communicate() for process in running]
    failed = [error for process, (_, error) in zip(running, told, strict=True) if process.returncode]
    lines = [said.split(maxsplit=4) for said, _ in told if said]
    times = sorted(float(line[0]) for line in lines)
    right = sum(line[1] == "True" for line in lines)
    exact = sum(line[2] == "exact" for line in lines)
    print(f"{count} processes: {len(failed)} failed, {right} right, {exact} by their winner, ", end="")
    print(
        f"{sum(line[3] != '0' for line in lines)} warned; first call median {times[len(times) // 2]:.0f} ms, ", end=""
    )
    print(f"slowest {times[-1]:.0f}")
    print(*failed[:1], *[line[4] for line in lines if len(line) > 4][:2], sep="\n")


if __name__ == "__main__":
    main()
