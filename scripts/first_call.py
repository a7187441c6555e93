"""What the first call of a fresh process costs: `python scripts/first_call.py [ROWS COLS K]`, on a GPU.

Kernels are in the cache from a first process; then every process makes a tensor, so that the CUDA context is there,
and times its first `autotopk.topk` and its second, until the GPU is done.
"""

import subprocess
import sys
from statistics import median

PROCESSES = 10

CALL = """
import sys, time, warnings
import torch
warnings.simplefilter("ignore")
rows, cols, k = map(int, sys.argv[1:])
torch.zeros(1, device="cuda")
begun = time.perf_counter()
from autotopk import explain, topk
imported = time.perf_counter()
x = torch.randn(rows, cols, device="cuda")
torch.cuda.synchronize()
times = [imported - begun]
for _ in range(2):
    start = time.perf_counter()
    topk(x, k)
    torch.cuda.synchronize()
    times.append(time.perf_counter() - start)
print(*(1e3 * time for time in times), explain(x, k).choice.step)
"""


def main() -> None:
    """Print the medians over processes."""
    shape = sys.argv[1:] or ["64", "32768", "1024"]
    command = [sys.executable, "-c", CALL, *shape]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(PROCESSES + 1)]
    told = [run.split() for run in runs[1:]]
    importing, first, second = (median(float(one[at]) for one in told) for at in range(3))
    slowest = max(float(one[1]) for one in told)
    print(
        f"{'x'.join(shape[:2])} k={shape[2]} ({told[0][3]}): first call {first:.1f} ms (slowest {slowest:.1f}), "
        f"second {second:.3f} ms, import autotopk {importing:.1f} ms; median of {PROCESSES} processes"
    )


if __name__ == "__main__":
    main()
