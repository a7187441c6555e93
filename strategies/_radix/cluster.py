"""Blocks that share a row: barriers, and each other's shared memory."""

from types import SimpleNamespace

import tilelang.language as T

PRELUDE = """
#include <cooperative_groups.h>
template <typename V> __device__ __forceinline__ V cluster_load(V* address, int block) {
  return *cooperative_groups::this_cluster().map_shared_rank(address, block);
}
template <typename V, typename U> __device__ __forceinline__ void cluster_store(V* address, int block, U value) {
  *cooperative_groups::this_cluster().map_shared_rank(address, block) = (V)value;
}
"""


def cluster_macros(c):
    """Macros that fall back to the block itself where it is alone."""

    @T.macro
    def sync_row():
        """Barrier of all threads that read the row."""
        if c.blocks > 1:
            T.cluster_sync()
        else:
            T.sync_threads()

    @T.macro
    def store(buffer, at, block, value):
        """buffer[at] = value in another block's shared memory."""
        if c.blocks > 1:
            T.evaluate(T.call_extern("handle", "cluster_store", T.address_of(buffer[at]), block, value))
        else:
            buffer[at] = value

    def load(address, block):
        """The word at an address of this block's shared memory, in another block's."""
        return T.call_extern("int32", "cluster_load", address, block)

    return SimpleNamespace(sync_row=sync_row, store=store, load=load)
