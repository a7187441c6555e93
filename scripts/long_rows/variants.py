import sys

sys.path.insert(0, ".gpu")
from shapes import *

PICK = {
    (256, 131072, 2048, "f"): [(1, 512, 8192), (1, 1024, 8192)],
    (256, 151936, 64, "f"): [(1, 512, 4096), (1, 256, 4096)],
    (256, 151936, 64, "h"): [(1, 512, 4096)],
    (16, 1048576, 2048, "f"): [(8, 1024, 8192), (16, 512, 8192)],
    (1000, 100000, 10, "f"): [(1, 256, 2048), (1, 512, 4096)],
    (100, 1000000, 64, "f"): [(1, 1024, 4096)],
    (1, 10000000, 100, "f"): [(132, 1024, 8192), (264, 512, 4096)],
    (1, 1048576, 100, "f"): [(132, 512, 4096)],
    (32, 128256, 50, "f"): [(4, 512, 4096), (8, 512, 2048)],
    (8, 131072, 2048, "f"): [(16, 1024, 8192)],
    (1, 100000000, 32, "f"): [(264, 1024, 8192)],
}


def main():
    import torch, math
    from autotopk import registry
    from autotopk.device import device_of
    from autotopk.problem import Problem
    from autotopk.runtime import launch
    from autotopk.tuning import timing
    from autotopk.strategies.split_radix import SplitRadixConfig as C

    dev = torch.device("cuda")
    place = device_of(dev)
    st = registry.get("split_radix")
    progs = {
        (s, c): st.program(C(c[0], c[1], 4, c[2]), Problem.contiguous(*s[:3], NAMES[s[3]]), place)
        for s, cs in PICK.items()
        for c in cs
    }
    srcs = list({p.launches[0].source: 0 for p in progs.values()})
    with ProcessPoolExecutor(12, mp_context=multiprocessing.get_context("spawn")) as pool:
        for e in pool.map(build, [(s, place.arch) for s in srcs]):
            if e:
                say("BUILD", e)
    total = 0
    line = []
    for s, cs in PICK.items():
        p = Problem.contiguous(*s[:3], NAMES[s[3]])
        ins = timing.random_inputs(p, dev)
        timer = timing.timer_for(ins)
        want = torch.topk(ins[0], s[2]).values
        best = 1e9
        for c in cs:
            run = launch.bind(progs[s, c], p, place, build=False)
            v, i = run(ins[0])
            bad = not torch.equal(v, want)
            us = timer.median_us(run, 3)
            best = min(best, us)
            line.append(f"{s[0]}x{s[1]}{s[3]} {c} {us:.1f}{'BAD' if bad else ''}")
        total += math.log(best)
        del ins, timer
    print("; ".join(line))
    print("SCORE %.4f" % (math.exp(total / len(PICK))), flush=True)


if __name__ == "__main__":
    main()
