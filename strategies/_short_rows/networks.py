"""Sorting networks over tuples of tensors: fixed comparisons without branches, largest first.

Entries of a tuple are tensors of one shape, elementwise independent; in kernels each is one register of a thread. A
network is a tuple of comparisons (i, j), i < j: the larger of entries i and j becomes entry i, the smaller entry j.
"""

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))
"""In Triton's interpreter NaN keeps its bits and comes out of a minimum, in neither of which it is like the GPU."""


@triton.constexpr_function
def sorting(n):
    """The network that sorts n entries: Batcher's odd-even merge sort (Knuth 5.2.2, algorithm M)."""
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
    """The network that sorts a bitonic sequence of n = 2^m entries: half-cleaners of n, n/2, ..., 2."""
    pairs = []
    step = n // 2
    while step:
        pairs += [(i, i + step) for i in range(n) if i // step % 2 == 0]
        step //= 2
    return tuple(pairs)


@triton.constexpr_function
def size(pairs):
    """How many comparisons a network has."""
    return len(pairs)


@triton.constexpr_function
def end(pairs, c, side):
    """Which entry comparison c has on a side, 0 or 1."""
    return pairs[c][side]


@triton.jit
def larger(a, b):
    """Elementwise maximum of float32 or integers; where either is NaN, the NaN of bits 0x7fffffff."""
    if a.dtype == tl.float32:
        c = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
        if INTERPRETED:
            c = tl.where(c == c, c, tl.full(c.shape, 0x7FFFFFFF, tl.int32).to(tl.float32, bitcast=True))
        return c
    else:
        return tl.maximum(a, b)


@triton.jit
def smaller(a, b):
    """Elementwise minimum of float32 or integers; the other where one is NaN."""
    c = tl.minimum(a, b)
    if INTERPRETED:
        c = tl.where(a == a, tl.where(b == b, c, a), b)
    return c


@triton.jit
def exchanged(xs, i: tl.constexpr, j: tl.constexpr):
    """The tuple after comparison (i, j). NaN counts as the larger."""
    return xs[:i] + (larger(xs[i], xs[j]),) + xs[i + 1 : j] + (smaller(xs[i], xs[j]),) + xs[j + 1 :]


@triton.jit
def arranged(xs, NETWORK: tl.constexpr):
    """The tuple after all comparisons of a network."""
    for c in tl.static_range(0, size(NETWORK)):
        xs = exchanged(xs, end(NETWORK, c, 0), end(NETWORK, c, 1))
    return xs


@triton.jit
def merged(a, b, N: tl.constexpr, M: tl.constexpr):
    """The N = 2^m best entries of two tuples, of N and of M <= N entries, all three in order."""
    best = ()
    for i in tl.static_range(0, N):
        if N - 1 - i < M:
            best = best + (larger(a[i], b[N - 1 - i]),)
        else:
            best = best + (a[i],)
    return arranged(best, cleaning(N))


@triton.constexpr_function
def group(g, depth, count):
    """How many entries the g-th group has, where `count` are divided into groups of `depth`."""
    return min(depth, count - g * depth)


@triton.jit
def best_in_order(xs, COUNT: tl.constexpr, DEPTH: tl.constexpr):
    """The DEPTH best of a tuple's COUNT entries, in order; DEPTH is COUNT or a power of two below it."""
    best = arranged(xs[:DEPTH], sorting(DEPTH))
    for g in tl.static_range(1, (COUNT + DEPTH - 1) // DEPTH):
        more = arranged(xs[g * DEPTH : g * DEPTH + group(g, DEPTH, COUNT)], sorting(group(g, DEPTH, COUNT)))
        best = merged(best, more, DEPTH, group(g, DEPTH, COUNT))
    return best


@triton.jit
def merged_2(a0, a1, b0, b1):
    """`merged` of two tuples of 2, as `tl.reduce` wants it: entry by entry."""
    return merged((a0, a1), (b0, b1), 2, 2)


@triton.jit
def merged_4(a0, a1, a2, a3, b0, b1, b2, b3):
    """`merged` of two tuples of 4, as `tl.reduce` wants it: entry by entry."""
    return merged((a0, a1, a2, a3), (b0, b1, b2, b3), 4, 4)
