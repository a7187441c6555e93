"""Sorting networks over tuples of registers: fixed comparisons, largest first, no branches."""

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))
"""In Triton's interpreter NaN keeps its sign and comes out of a minimum, in neither of which it is like the GPU."""


@triton.constexpr_function
def sorting(n):
    """Batcher's odd-even merge sort of n (Knuth 5.2.2, algorithm M) as ((i, j), ...), i < j."""
    pairs = []
    p = 1
    while p < n:
        q = p
        while q >= 1:
            lower = (i + j for j in range(q % p, n - q, 2 * q) for i in range(min(q, n - j - q)))
            pairs += [(low, low + q) for low in lower if low // (2 * p) == (low + q) // (2 * p)]
            q //= 2
        p *= 2
    return tuple(pairs)


@triton.constexpr_function
def cleaning(n):
    """What sorts a bitonic sequence of n = 2^m: half-cleaners of n, n/2, ..., 2."""
    pairs = []
    step = n // 2
    while step:
        pairs += [(i, i + step) for i in range(n) if i // step % 2 == 0]
        step //= 2
    return tuple(pairs)


@triton.constexpr_function
def size(pairs):
    """How many comparisons."""
    return len(pairs)


@triton.constexpr_function
def end(pairs, c, side):
    """Which register comparison c has on a side, 0 or 1."""
    return pairs[c][side]


@triton.jit
def larger(a, b):
    """Elementwise; NaN where either is NaN, and of positive sign then."""
    if a.dtype == tl.float32:
        c = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
        if INTERPRETED:
            c = tl.where(c == c, c, float("nan"))
        return c
    else:
        return tl.maximum(a, b)


@triton.jit
def smaller(a, b):
    """Elementwise; the other where one is NaN."""
    c = tl.minimum(a, b)
    if INTERPRETED:
        c = tl.where(a == a, tl.where(b == b, c, a), b)
    return c


@triton.jit
def exchanged(xs, i: tl.constexpr, j: tl.constexpr):
    """A tuple with the larger of two entries at i, the smaller at j > i. NaN counts as the larger."""
    return xs[:i] + (larger(xs[i], xs[j]),) + xs[i + 1 : j] + (smaller(xs[i], xs[j]),) + xs[j + 1 :]


@triton.jit
def arranged(xs, NETWORK: tl.constexpr):
    """A tuple after all comparisons of a network."""
    for c in tl.static_range(0, size(NETWORK)):
        xs = exchanged(xs, end(NETWORK, c, 0), end(NETWORK, c, 1))
    return xs


@triton.jit
def merged(a, b, N: tl.constexpr, M: tl.constexpr):
    """The N = 2^m best of two tuples of N and M <= N, all in order, largest first."""
    best = ()
    for i in tl.static_range(0, N):
        if N - 1 - i < M:
            best = best + (larger(a[i], b[N - 1 - i]),)
        else:
            best = best + (a[i],)
    return arranged(best, cleaning(N))


@triton.constexpr_function
def group(g, depth, count):
    """Entries of the g-th group of `depth` out of `count`."""
    return min(depth, count - g * depth)


@triton.jit
def best_in_order(xs, COUNT: tl.constexpr, DEPTH: tl.constexpr):
    """The DEPTH best of COUNT entries in order; DEPTH is COUNT or a power of two below it."""
    best = arranged(xs[:DEPTH], sorting(DEPTH))
    for g in tl.static_range(1, (COUNT + DEPTH - 1) // DEPTH):
        more = arranged(xs[g * DEPTH : g * DEPTH + group(g, DEPTH, COUNT)], sorting(group(g, DEPTH, COUNT)))
        best = merged(best, more, DEPTH, group(g, DEPTH, COUNT))
    return best


# Reductions over lanes want a function of flat arguments for every length.


@triton.jit
def merged_2(a0, a1, b0, b1):
    """`merged` of two pairs."""
    return merged((a0, a1), (b0, b1), 2, 2)


@triton.jit
def merged_4(a0, a1, a2, a3, b0, b1, b2, b3):
    """`merged` of two lists of four."""
    return merged((a0, a1, a2, a3), (b0, b1, b2, b3), 4, 4)
