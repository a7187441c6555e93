"""Blocks of a cluster: their barrier, and each other's shared memory.

A block's shared memory may be read or written by others only between two barriers of the cluster: the first tells that
the block has started, the last keeps it from ending.
"""

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
"""CUDA source that kernels with a cluster must include: `T.Kernel(..., cluster_dims=blocks, prelude=PRELUDE)`."""


def launch_options(blocks):
    """Keywords of `T.Kernel` for clusters of `blocks` along x; none for a block alone."""
    return {"cluster_dims": blocks, "prelude": PRELUDE} if blocks > 1 else {}


def cluster_macros(blocks):
    """`sync`, `load` and `store` for clusters of `blocks`; a block alone may call `sync` only."""

    @T.macro
    def sync():
        """Barrier of all threads of the cluster; of the block where it is alone."""
        if blocks > 1:
            T.cluster_sync()
        else:
            T.sync_threads()

    def load(address, block, dtype="int32"):
        """What another block holds at the address that `T.address_of` gives in this block's shared memory."""
        return T.call_extern(dtype, "cluster_load", address, block)

    def store(address, block, value):
        """A statement: puts a value where another block has what this block has at an address."""
        return T.call_extern("handle", "cluster_store", address, block, value)

    return SimpleNamespace(sync=sync, load=load, store=store)
