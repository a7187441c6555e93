import numpy as np, math

rng = np.random.default_rng(0)


def go(N, k, V, parts=1, P=128, PIECE=8):
    loads = PIECE
    while loads > 1 and loads * V * k > N:
        loads //= 2
    el = 1 if V * k > N else V
    t = min(N // (16384 * parts), N // (4 * PIECE * V * k), 8)
    t = 1 << (t.bit_length() - 1) if t > 1 else 1
    n = loads * el * t
    p = k / N
    x = n * p * (1 + p * (0.5 + p / 3))
    q = 1 - math.exp(-x)
    m = P * q
    r = int(m + 5 * math.sqrt(m * (1 - q))) + 3
    if r >= P:
        return "none", n, r
    u = rng.random((20000, P)) ** (1 / n)  # maxima as quantiles
    u.sort(axis=1)
    t = u[:, P - r]  # r-th largest
    surv = N * (1 - t)
    # fail if fewer than k: count of elements above t ~ Binomial(N,1-t)
    cnt = rng.binomial(N, np.clip(1 - t, 0, 1))
    return n, r, round(float(np.mean(cnt))), round(float(np.percentile(cnt, 99.9))), float((cnt < k).mean())


for N, k, V, *pp in [
    (32768, 1024, 4),
    (32768, 2048, 4),
    (32768, 2048, 8),
    (32768, 256, 4),
    (131072, 2048, 4),
    (262144, 2048, 4),
    (524288, 2048, 4),
    (1 << 20, 2048, 4, 8),
    (8192, 2048, 4),
    (4096, 1024, 4),
    (128256, 50, 4, 4),
    (128256, 50, 8),
    (151936, 64, 4),
    (151936, 64, 8),
    (32000, 256, 4),
    (100000, 10, 4),
    (1000000, 64, 4),
    (1 << 20, 100, 4, 132),
    (10**7, 100, 4, 132),
    (10**8, 32, 4, 264),
    (65536, 8192, 4),
    (65536, 8192, 2),
]:
    print(N, k, V, go(N, k, V, *pp))
