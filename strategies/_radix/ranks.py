"""Elements as ranks: unsigned integers in torch's order, the better the smaller, NaN above everything."""

from types import SimpleNamespace

import tilelang.language as T


def rank_macros(c):
    """Macros `rank_of(bits, rank)` and, for all but NaN, the other way, `bits_of(rank, bits)`."""
    number, word = c.number, c.word
    ones, sign = number(c.ones), number(1 << (c.element_bits - 1))
    magnitude, infinity = number((1 << (c.element_bits - 1)) - 1), number(c.float_inf)
    sign_shift = number(c.element_bits - 1)

    @T.macro
    def rank_of(bits, rank):
        """rank[0] of an element's bits."""
        key = T.alloc_var(word)
        key = T.Cast(word, bits)
        if c.float_inf > 0:
            plain = T.alloc_var(word)
            plain = key
            # negative: all bits turned; positive: the sign's alone
            key = plain ^ (((number(0) - (plain >> sign_shift)) & ones) | sign)
            if (plain & magnitude) > infinity:
                key = ones
        elif c.signed:
            key = key ^ sign
        if c.largest:
            rank[0] = key ^ ones
        else:
            rank[0] = key

    @T.macro
    def bits_of(rank, bits):
        """bits[0] of the element that has a rank."""
        key = T.alloc_var(word)
        key = rank
        if c.largest:
            key = key ^ ones
        if c.float_inf > 0:
            plain = T.alloc_var(word)
            plain = key
            key = plain ^ ((((plain >> sign_shift) - number(1)) & ones) | sign)
        elif c.signed:
            key = key ^ sign
        bits[0] = T.Cast(c.element, key)

    return SimpleNamespace(rank_of=rank_of, bits_of=bits_of, nan=number(0 if c.largest else c.ones))
