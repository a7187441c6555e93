"""Writing elements of the answer."""

from types import SimpleNamespace

import tilelang.language as T


def answer_macros(c, convert):
    """Macros that write the element of a column to a slot of the row's answer."""

    @T.macro
    def write(column, slot, b):
        """Its bits are read again."""
        b.indices[b.answer_start + slot] = T.Cast(c.index, column)
        if not c.indices_only:
            b.values[b.answer_start + slot] = b.x[b.row_start + column // c.vector, column % c.vector]

    @T.macro
    def write_key(key, column, slot, b):
        """Its bits follow from its key, but for NaN, of which there are many."""
        b.indices[b.answer_start + slot] = T.Cast(c.index, column)
        if not c.indices_only:
            bits = T.alloc_local((1,), c.element)
            lost = T.alloc_var("int32")
            convert.bits_of(key, bits)
            lost = 0
            if c.float_inf > 0:
                if key == convert.nan:
                    lost = 1
            if lost != 0:
                bits[0] = b.x[b.row_start + column // c.vector, column % c.vector]
            b.values[b.answer_start + slot] = bits[0]

    return SimpleNamespace(write=write, write_key=write_key)
