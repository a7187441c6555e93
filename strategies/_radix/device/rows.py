"""Reading a row: into registers, whole or in part, and past them in a stream."""

from types import SimpleNamespace

import tilelang.language as T

FEW_GROUPS = 4
"""Rounds held in registers whose keys are made whether they were loaded or not."""


def row_positions(c):
    """Where a thread's loads lie: functions of constants and positions, called while the kernel is traced, and a macro.

    A row is read in rounds of one load by every thread of every block. Registers hold `groups` rounds: all, or the
    first, the last and those at even distances, so that a sorted row gives as good a sample as a shuffled one.
    Distances are b.gap rounds, of which the first b.wider are one more.
    """
    per_round = c.blocks * c.threads * c.vector

    def column(r, b):
        """The first column of this thread's load in round r."""
        return r * per_round + (b.block * c.threads + b.tid) * c.vector

    def held_round(g, b):
        """The round that registers hold as their g-th."""
        return g * b.gap[0] + T.min(g, b.wider[0]) if c.samples else g

    def longer(b):
        """Whether the row is longer than what registers hold."""
        return b.rounds > c.groups if c.streams else False

    @T.macro
    def set_distances(b):
        """b.gap and b.wider: 1 and 0 where all of the row is held."""
        if c.samples:
            last = T.alloc_var("int32")
            last = T.max(b.rounds, c.groups) - 1
            b.gap[0] = last // max(1, c.groups - 1)
            b.wider[0] = last - b.gap[0] * max(1, c.groups - 1)

    return SimpleNamespace(
        column=column, held_round=held_round, longer=longer, set_distances=set_distances, per_round=per_round
    )


def load_macro(c, at):
    """A macro `load(b)` that fills the registers."""
    vector = c.vector

    def load_of(round_of):
        @T.macro
        def load_rounds(b):
            b.loaded[0] = T.uint32(0)
            for g in T.unroll(c.groups):
                base = at.column(round_of(g, b), b)
                if base < b.cols:
                    b.loaded[0] = b.loaded[0] | T.uint32(1 << g)
                    for v in T.vectorized(vector):
                        b.elements[g * vector + v] = b.x[b.row_start + base // vector, v]

        return load_rounds

    load_sample, load_row = load_of(at.held_round), load_of(lambda g, b: g)

    @T.macro
    def load(b):
        if c.samples and at.longer(b):
            load_sample(b)
        else:
            load_row(b)

    return load


def row_macros(c, convert, at):
    """Macros that call `visit(key, column, i, b)` for elements; i, a constant, stands for the column of a held one."""
    vector, groups = c.vector, c.groups
    ahead = max(1, min(4, 32 // vector))  # loads in flight

    @T.macro
    def make_keys_of(g, b):
        key = T.alloc_local((1,), c.word)
        for v in T.unroll(vector):
            convert.key_of(b.elements[g * vector + v], key, b)
            b.keys[g * vector + v] = key[0]

    @T.macro
    def make_keys(b):
        """The keys of what registers hold; of few groups without branches, into which the compiler would sink loads."""
        for g in T.unroll(groups):
            if groups <= FEW_GROUPS:
                make_keys_of(g, b)
            elif g < b.rounds:
                make_keys_of(g, b)

    @T.macro
    def held(visit, b):
        """Everything in registers."""
        for g in T.unroll(groups):
            if (b.loaded[0] & T.uint32(1 << g)) != T.uint32(0):
                for v in T.unroll(vector):
                    visit(b.keys[g * vector + v], 0, g * vector + v, b)

    @T.macro
    def visit_load(visit, elements, u, base, key, b):
        for v in T.unroll(vector):
            convert.key_of(elements[u * vector + v], key, b)
            visit(key[0], base + v, 0, b)

    def stream(skips_held):
        """A macro that reads the row from memory: all of it, or what is not held, until more survive than fit."""

        def goes_on(r, b):
            more = r < b.rounds
            return T.And(more, T.atomic_load(b.appended[0]) <= c.capacity) if skips_held else more

        @T.macro
        def read(visit, b):
            elements = T.alloc_local((ahead * vector,), c.element)
            key = T.alloc_local((1,), c.word)
            r = T.alloc_var("int32")
            r = 0
            if skips_held:
                g = T.alloc_var("int32")
                g = 0  # held rounds that were passed
            while goes_on(r, b):
                for u in T.unroll(ahead):
                    base = T.alloc_var("int32")
                    base = at.column(r + u, b)
                    if r + u < b.rounds and base < b.cols:
                        for v in T.vectorized(vector):
                            elements[u * vector + v] = b.x[b.row_start + base // vector, v]
                for u in T.unroll(ahead):
                    base = T.alloc_var("int32")
                    base = at.column(r + u, b)
                    if skips_held:
                        if g < groups and r + u == at.held_round(g, b):
                            g = g + 1
                        elif r + u < b.rounds and base < b.cols:
                            visit_load(visit, elements, u, base, key, b)
                    else:
                        if r + u < b.rounds and base < b.cols:
                            visit_load(visit, elements, u, base, key, b)
                r = r + ahead

        return read

    return SimpleNamespace(
        load=load_macro(c, at),
        make_keys=make_keys,
        held=held,
        whole=stream(skips_held=False),
        rest=stream(skips_held=True),
    )
