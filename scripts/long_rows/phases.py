# cumulative time of phases: kernels that return after phase n
import sys, os, subprocess, json, shutil, time

sys.path.insert(0, ".gpu")
from shapes import *
from pathlib import Path


def main():
    import torch
    from dataclasses import replace
    from autotopk import registry
    from autotopk.device import device_of
    from autotopk.problem import Problem
    from autotopk.runtime import launch
    from autotopk.tuning import timing

    dev = torch.device("cuda")
    place = device_of(dev)
    st = registry.get("split_radix")
    best = {tuple(o["shape"]): o["found"][0][2] for o in json.load(open(os.environ["OUT"] + "/shapes.json"))}
    from autotopk.strategies.split_radix import SplitRadixConfig as C

    progs = []
    for s, f in best.items():
        r, c, k, d = s
        p = Problem.contiguous(r, c, k, NAMES[d])
        cfg = C(**f)
        pr = st.program(cfg, p, place)
        for stop in range(1, 8):
            la = pr.launches[0]
            src = replace(
                la.source, constants=(*la.source.constants, ("STOP", stop)), symbol=la.source.symbol + f"_s{stop}"
            )
            progs.append((s, stop, p, replace(pr, launches=(replace(la, source=src),))))
    srcs = list({x.launches[0].source: 0 for *_, x in progs})
    say(len(srcs), "kernels")
    with ProcessPoolExecutor(16, mp_context=multiprocessing.get_context("spawn")) as pool:
        for e in pool.map(build, [(s, place.arch) for s in srcs]):
            if e:
                say("BUILD", e)
    say("built")
    for s in best:
        r, c, k, d = s
        p = Problem.contiguous(r, c, k, NAMES[d])
        ins = timing.random_inputs(p, dev)
        timer = timing.timer_for(ins)
        row = []
        for s2, stop, p2, pr in progs:
            if s2 == s:
                row.append(timer.median_us(launch.bind(pr, p, place, build=False), 3))
        print(
            s,
            best[s]["blocks"],
            best[s]["threads"],
            "start %.1f sample %.1f cut %.1f filter %.1f hand %.1f come %.1f load %.1f" % tuple(row),
            flush=True,
        )
        del ins, timer


if __name__ == "__main__":
    main()
