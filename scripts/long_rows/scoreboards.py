import re, sys, subprocess

CO = ".venv/lib/python3.11/site-packages/triton/backends/nvidia/bin/cuobjdump"
t = subprocess.run([CO, "-sass", sys.argv[1]], capture_output=True, text=True).stdout.splitlines()
ins = []
i = 0
for a, b in zip(t, t[1:]):
    m = re.match(r"\s+/\*([0-9a-f]{4,5})\*/\s+(.*?);\s+/\* 0x([0-9a-f]{16}) \*/", a)
    n = re.match(r"\s+/\* 0x([0-9a-f]{16}) \*/", b)
    if m and n:
        hi = int(n.group(1), 16)
        ins.append((m.group(1), m.group(2), (hi >> 41) & 15, (hi >> 46) & 7, (hi >> 49) & 7, (hi >> 52) & 63))
lo, hi_ = int(sys.argv[2]), int(sys.argv[3])
for k in range(lo, min(hi_, len(ins))):
    a, s, st, w, r, wm = ins[k]
    print(
        k,
        a,
        f"st{st} wr{w if w != 7 else '-'} rd{r if r != 7 else '-'} wait{''.join(str(j) for j in range(6) if wm >> j & 1) or '-'}",
        s,
    )
