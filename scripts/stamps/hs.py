SHAPES = [
    (64, 4096, 128, "f"),
    (64, 8192, 128, "f"),
    (64, 8192, 256, "f"),
    (64, 32768, 1024, "f"),
    (64, 32768, 2048, "f"),
    (64, 32768, 2048, "h"),
    (128, 32768, 256, "f"),
    (1, 131072, 2048, "f"),
    (1, 262144, 2048, "f"),
    (1, 524288, 2048, "f"),
    (8, 131072, 2048, "f"),
    (16, 1048576, 2048, "f"),
    (256, 131072, 2048, "f"),
    (4096, 8192, 2048, "f"),
    (4096, 4096, 1024, "f"),
    (1, 128256, 50, "f"),
    (32, 128256, 50, "f"),
    (32, 128256, 50, "h"),
    (256, 151936, 64, "f"),
    (256, 151936, 64, "h"),
    (512, 32000, 256, "f"),
    (1000, 100000, 10, "f"),
    (100, 1000000, 64, "f"),
    (1, 1048576, 100, "f"),
    (1, 10000000, 100, "f"),
    (1, 100000000, 32, "f"),
]
MUST = [
    3.2,
    4.2,
    4.4,
    8.8,
    9.8,
    9.8,
    9.5,
    7.6,
    9,
    11,
    9.8,
    38,
    55,
    82,
    56,
    5.3,
    14,
    11,
    47,
    26,
    28,
    115,
    105,
    11,
    30,
    160,
]
SORTED = [
    3.7,
    4.7,
    4.9,
    9.2,
    10.5,
    10.5,
    10,
    9.5,
    11,
    13,
    12,
    41,
    65,
    135,
    85,
    5.5,
    14,
    11,
    49,
    27,
    30,
    115,
    105,
    11.5,
    31,
    160,
]
NAMES = {"f": "float32", "h": "bfloat16"}

import sys, json, time, os, multiprocessing
from concurrent.futures import ProcessPoolExecutor
T0=time.time()
def say(*a): print(f"[{time.time()-T0:.0f}]",*a,flush=True)
def build(args):
    src,arch=args
    try: src.load(arch)
    except Exception as e: return f"{src.constants} {str(e)[:300]}"
def told(cf): return "x".join(str(v) for v in vars(cf).values())
def main():
    import torch
    from autotopk import registry
    from autotopk.device import device_of
    from autotopk.problem import Problem
    from autotopk.runtime import launch
    from autotopk.tuning import timing
    from autotopk.oracle import inputs
    from autotopk.oracle.reference import problems_with
    dev=torch.device("cuda"); place=device_of(dev)
    fams=sys.argv[1].split(","); only=[int(i) for i in sys.argv[2].split(",")] if len(sys.argv)>2 and sys.argv[2] else range(26)
    adv="adv" in sys.argv
    todo=[]
    for n in only:
        r,c,k,d=SHAPES[n]
        p=Problem.contiguous(r,c,k,NAMES[d])
        for f in fams:
            st=registry.get(f)
            if st.reasons_unable(p,place): continue
            cfgs=list(st.shortlist(p,place))
            for cfg in cfgs:
                if st.valid(cfg,p,place): todo.append((n,st,cfg,p,st.program(cfg,p,place)))
    srcs=list({s:0 for t in todo for s in t[4].sources})
    say(len(todo),"configs",len(srcs),"kernels")
    with ProcessPoolExecutor(16,mp_context=multiprocessing.get_context("spawn")) as pool:
        for e in pool.map(build,[(s,place.arch) for s in srcs]):
            if e: say("BUILD",e)
    say("built")
    out=[]
    for n in only:
        mine=[t for t in todo if t[0]==n]
        if not mine: continue
        r,c,k,d=SHAPES[n]; p=mine[0][3]
        ins=timing.random_inputs(p,dev); timer=timing.timer_for(ins)
        want=torch.topk(ins[0],k).values; found=[]
        for _,st,cfg,_,prog in mine:
            try:
                run=launch.bind(prog,p,place,build=False)
                v,ix=run(ins[0]); torch.cuda.synchronize()
                bad=not(torch.equal(v,want) and torch.equal(ins[0].gather(1,ix),v))
                us=timer.median_us(run,3)
            except Exception as e:
                say("ERR",st.name,cfg,str(e)[:150]); continue
            found.append((us,bad,st.name,cfg,prog))
        found.sort(key=lambda f:f[0])
        print(f"{r}x{c} k{k} {d} must {MUST[n]}/{SORTED[n]}:","; ".join(f"{us:.1f}{'BAD' if b else ''} {nm[0]}{told(cf)}" for us,b,nm,cf,_ in found[:4]),flush=True)
        if any(f[1] for f in found): say("BADS",[(f[2],told(f[3])) for f in found if f[1]][:5])
        worst={}
        if adv and r*c<=40_000_000:
            run=launch.bind(found[0][4],p,place,build=False)
            for name in inputs.names_for(getattr(torch,NAMES[d])):
                x=inputs.make(name,r,c,k,getattr(torch,NAMES[d]),"cuda")
                v,ix=run(x); wrong=problems_with(x,v,ix,k)
                if wrong: say("WRONG",name,wrong[:1])
                timer.fill(x); worst[name]=timer.median_us(run,2)/found[0][0]
            print("    worst:",", ".join(f"{a} {w:.2f}" for a,w in sorted(worst.items(),key=lambda w:-w[1])[:4]),flush=True)
        out.append(dict(shape=(r,c,k,d),found=[(us,b,nm,vars(cf)) for us,b,nm,cf,_ in found],worst=worst))
        del ins,timer
        json.dump(out,open(os.environ["OUT"]+"/hs.json","w"))
if __name__=="__main__": main()
