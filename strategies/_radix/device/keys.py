"""Elements as keys: unsigned integers in torch's order, the better the smaller, NaN above everything."""

from types import SimpleNamespace

import tilelang.language as T


def key_macros(c):
    """Macros over a block's state `b`: `key_of(bits, key, b)`, and the other way `bits_of` for all but `nan(b)`.

    That is the key of NaN with a sign. Any other NaN has one of its own, next to it.
    """
    number, word = c.number, c.word
    ones, sign, sign_shift = number(c.ones), number(1 << (c.element_bits - 1)), number(c.element_bits - 1)

    def least(b):
        """Bits of minus infinity: 16 bits have two formats."""
        return T.Cast(word, b.infinity) | sign if c.element_bits == 16 else number(c.minus_infinity)

    def nan(b):
        return b.mask[0] ^ ones

    @T.macro
    def set_mask(b):
        """b.mask: what bits in ascending order, or integers as they are, become keys by."""
        b.mask[0] = T.Cast(word, b.smallest - 1) & ones
        if not c.is_float:
            b.mask[0] = b.mask[0] ^ (T.Cast(word, b.signed) << sign_shift)

    @T.macro
    def key_of(bits, key, b):
        """key[0] of an element's bits."""
        plain = T.alloc_var(word)
        plain = T.Cast(word, bits)
        if c.is_float:
            ordered = T.alloc_var(word)
            # negative: all bits turned; positive: the sign's alone
            ordered = plain ^ (((number(0) - (plain >> sign_shift)) & ones) | sign)
            if plain > least(b):
                ordered = ones
            key[0] = ordered ^ b.mask[0]
        else:
            key[0] = plain ^ b.mask[0]

    @T.macro
    def bits_of(key, bits, b):
        """bits[0] of the element that has a key."""
        ordered = T.alloc_var(word)
        ordered = key ^ b.mask[0]
        if c.is_float:
            plain = T.alloc_var(word)
            plain = ordered
            ordered = plain ^ ((((plain >> sign_shift) - number(1)) & ones) | sign)
        bits[0] = T.Cast(c.element, ordered)

    return SimpleNamespace(set_mask=set_mask, key_of=key_of, bits_of=bits_of, nan=nan)
