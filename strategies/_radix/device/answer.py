"""Writing elements of the answer."""

from types import SimpleNamespace

import tilelang.language as T


def answer_macros(c, convert):
    """Macros that write the element of a column to a slot of the row's answer."""

    @T.macro
    def write(column, slot, b):
        """Its bits are read again."""
        if b.indices_only != 0:
            b.indices_32[b.answer_start + slot] = column
        else:
            b.indices[b.answer_start + slot] = T.Cast("int64", column)
            b.values[b.answer_start + slot] = b.x[b.row_start + column // c.vector, column % c.vector]

    @T.macro
    def write_key(key, column, slot, b):
        """Its bits follow from its key, but for NaN with a sign, of which there are many."""
        if b.indices_only != 0:
            b.indices_32[b.answer_start + slot] = column
        else:
            bits = T.alloc_local((1,), c.element)
            lost = T.alloc_var("int32")
            b.indices[b.answer_start + slot] = T.Cast("int64", column)
            convert.bits_of(key, bits, b)
            lost = 0
            if c.is_float:
                if key == convert.nan(b):
                    lost = 1
            if lost != 0:
                bits[0] = b.x[b.row_start + column // c.vector, column % c.vector]
            b.values[b.answer_start + slot] = bits[0]

    return SimpleNamespace(write=write, write_key=write_key)
