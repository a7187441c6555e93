"""Elements as keys: unsigned integers in torch's order, the better the smaller, NaN above everything."""

from types import SimpleNamespace

import tilelang.language as T


def key_macros(c):
    """Macros `key_of(bits, key)` and, for all but NaN, the other way, `bits_of(key, bits)`; `nan` is NaN's key."""
    number, word = c.number, c.word
    ones, sign = number(c.ones), number(1 << (c.element_bits - 1))
    magnitude, infinity = number((1 << (c.element_bits - 1)) - 1), number(c.float_inf)
    sign_shift = number(c.element_bits - 1)

    @T.macro
    def key_of(bits, key):
        """key[0] of an element's bits."""
        ordered = T.alloc_var(word)
        ordered = T.Cast(word, bits)
        if c.float_inf > 0:
            plain = T.alloc_var(word)
            plain = ordered
            # negative: all bits turned; positive: the sign's alone
            ordered = plain ^ (((number(0) - (plain >> sign_shift)) & ones) | sign)
            if (plain & magnitude) > infinity:
                ordered = ones
        elif c.signed:
            ordered = ordered ^ sign
        if c.largest:
            key[0] = ordered ^ ones
        else:
            key[0] = ordered

    @T.macro
    def bits_of(key, bits):
        """bits[0] of the element that has a key."""
        ordered = T.alloc_var(word)
        ordered = key
        if c.largest:
            ordered = ordered ^ ones
        if c.float_inf > 0:
            plain = T.alloc_var(word)
            plain = ordered
            ordered = plain ^ ((((plain >> sign_shift) - number(1)) & ones) | sign)
        elif c.signed:
            ordered = ordered ^ sign
        bits[0] = T.Cast(c.element, ordered)

    return SimpleNamespace(key_of=key_of, bits_of=bits_of, nan=number(0 if c.largest else c.ones))
