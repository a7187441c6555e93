"""Reading a row: into registers, whole or in part, and past them in a stream."""

from types import SimpleNamespace

import tilelang.language as T


def row_macros(c, ranks):
    """Macros that call `body(rank, column, i, b)` for elements; i numbers what a thread holds, and is constant.

    A row is read in rounds of one load by every thread of every block. Registers hold `groups` rounds: all, or the
    first, the last and those at even distances, so that a sorted row gives as good a sample as a shuffled one.
    """
    vector, groups, threads, blocks = c.vector, c.groups, c.threads, c.blocks
    round_ = blocks * threads * vector
    ahead = max(1, min(4, 32 // vector))  # loads in flight

    def column(r, b):
        """The first column of this thread's load in round r."""
        return r * round_ + (b.block * threads + b.tid) * vector

    def held_round(g, b):
        """The round that registers hold as their g-th."""
        return g * (b.rounds - 1) // max(1, groups - 1) if c.streams else g

    @T.macro
    def load(b):
        """Fill the registers."""
        for g in T.unroll(groups):
            base = column(held_round(g, b), b)
            if base < b.cols:
                for v in T.vectorized(vector):
                    b.raw[g * vector + v] = b.x[b.start + base // vector, v]

    @T.macro
    def rank_held(b):
        one = T.alloc_local((1,), c.word)
        for g in T.unroll(groups):
            for v in T.unroll(vector):
                ranks.rank_of(b.raw[g * vector + v], one)
                b.ranks[g * vector + v] = one[0]

    @T.macro
    def held(body, b):
        """Everything in registers."""
        for g in T.unroll(groups):
            base = column(held_round(g, b), b)
            if base < b.cols:
                for v in T.unroll(vector):
                    body(b.ranks[g * vector + v], base + v, g * vector + v, b)

    @T.macro
    def whole(body, b):
        """Everything, read again."""
        raw = T.alloc_local((ahead * vector,), c.element)
        one = T.alloc_local((1,), c.word)
        r = T.alloc_var("int32")
        r = 0
        while r < b.rounds:
            for u in T.unroll(ahead):
                base = T.alloc_var("int32")
                base = column(r + u, b)
                if r + u < b.rounds and base < b.cols:
                    for v in T.vectorized(vector):
                        raw[u * vector + v] = b.x[b.start + base // vector, v]
            for u in T.unroll(ahead):
                base = T.alloc_var("int32")
                base = column(r + u, b)
                if r + u < b.rounds and base < b.cols:
                    for v in T.unroll(vector):
                        ranks.rank_of(raw[u * vector + v], one)
                        body(one[0], base + v, 0, b)
            r = r + ahead

    @T.macro
    def rest(body, b):
        """Everything that is not held, until more survive than there is room for."""
        raw = T.alloc_local((ahead * vector,), c.element)
        one = T.alloc_local((1,), c.word)
        r = T.alloc_var("int32")
        g = T.alloc_var("int32")
        r = 0
        g = 0
        while r < b.rounds and T.atomic_load(b.cursor[0]) <= c.capacity:
            for u in T.unroll(ahead):
                base = T.alloc_var("int32")
                base = column(r + u, b)
                if r + u < b.rounds and base < b.cols:
                    for v in T.vectorized(vector):
                        raw[u * vector + v] = b.x[b.start + base // vector, v]
            for u in T.unroll(ahead):
                base = T.alloc_var("int32")
                base = column(r + u, b)
                if g < groups and r + u == held_round(g, b):
                    g = g + 1
                elif r + u < b.rounds and base < b.cols:
                    for v in T.unroll(vector):
                        ranks.rank_of(raw[u * vector + v], one)
                        body(one[0], base + v, 0, b)
            r = r + ahead

    return SimpleNamespace(
        column=column,
        held_round=held_round,
        load=load,
        rank_held=rank_held,
        held=held,
        whole=whole,
        rest=rest,
        round=round_,
    )
