# what is chosen unmeasured against winners, by races of one database
import sqlite3, json, sys, os

os.environ["AUTOTOPK_SHIPPED"] = "0"
os.environ["AUTOTOPK_CACHE_DIR"] = "/tmp/none"
from statistics import geometric_mean as g
from autotopk.candidate import Candidate
from autotopk.device import Device
from autotopk.problem import Problem
from autotopk.runtime import dispatch
import autotopk.routing as R
from autotopk import workloads

c = sqlite3.connect(sys.argv[1])
c.row_factory = sqlite3.Row
d = c.execute("select * from device").fetchone()
dev = Device(
    d["type"], d["name"], (d["major"], d["minor"]), d["processors"], d["l2_bytes"], d["memory_gib"], d["shared_bytes"]
)
out = []
miss = []
from autotopk.routing import Routing

for w in c.execute("select * from workload").fetchall():
    win = c.execute(
        "select m.ratio,m.candidate_id cid from winner n join measurement m on m.id=n.measurement_id where n.workload_id=?",
        (w["id"],),
    ).fetchone()
    if not win:
        continue
    routing = None
    if w["routing"]:
        routing = (
            next((x for x in {wl.routing for wl in workloads.tagged("routing")} if str(x) == w["routing"]), None)
            if hasattr(workloads, "tagged")
            else None
        )
        if routing is None:
            miss.append((w["rows"], w["cols"], w["routing"]))
            continue
    p = Problem.contiguous(w["rows"], w["cols"], w["k"], w["dtype"], sorted=bool(w["sorted"]), routing=routing)
    ch = dispatch.choose(p, dev, ready=None)
    cand = ch.candidate
    r = c.execute(
        "select m.ratio from measurement m join candidate k on k.id=m.candidate_id where m.workload_id=? and k.strategy=? and k.config=? and m.ratio is not null and m.stage='race' order by m.id desc",
        (
            w["id"],
            cand.strategy,
            cand.config
            if isinstance(cand.config, str)
            else json.dumps(cand.config, sort_keys=True, separators=(",", ":")),
        ),
    ).fetchone()
    if r is None:
        miss.append((w["rows"], w["cols"], w["k"], w["dtype"], w["sorted"], w["routing"], str(cand)))
        continue
    out.append(
        (
            max(win["ratio"] / r["ratio"], r["ratio"] / win["ratio"]),
            w["rows"],
            w["cols"],
            w["k"],
            w["dtype"],
            w["sorted"],
            w["routing"],
            str(cand),
        )
    )
out.sort(reverse=True)
print(len(out), "of", len(out) + len(miss), "geo", g([o[0] for o in out]), "worst", out[:4])
print("missing", len(miss), miss[:5])
print(c.execute("select * from candidate limit 2").fetchall()[0]["config"])
