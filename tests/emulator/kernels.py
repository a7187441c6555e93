# mypy: ignore-errors
"""Kernels in TileLang: enough to see that the text it generates runs, with and without a cluster."""

import tilelang.language as T  # noqa: N812

REMOTE = """
template <typename V> __device__ __forceinline__ V cluster_load(V* address, int rank) {
  return *cooperative_groups::this_cluster().map_shared_rank(address, rank);
}
template <typename V> __device__ __forceinline__ void cluster_add(V* address, int rank, V value) {
  atomicAdd(cooperative_groups::this_cluster().map_shared_rank(address, rank), value);
}
"""


def histogram(*, threads: int):
    """Of every row, how many of its values have each upper byte, summed up: values[row, b] counts bytes up to b."""
    rows, cols, row_stride = T.dynamic("rows, cols, row_stride")

    @T.prim_func
    def cumulative_histogram(
        x: T.StridedTensor((rows, cols), (row_stride, 1), "float32"), values: T.Tensor((rows, 256), "int32")
    ):
        with T.Kernel(rows, threads=threads) as row:
            bins = T.alloc_shared((256,), "int32")
            sums = T.alloc_shared((threads // 32,), "int32")
            tid = T.get_thread_binding()
            for i in T.serial(256 // threads):
                bins[i * threads + tid] = 0
            T.sync_threads()
            for i in T.serial(T.ceildiv(cols, threads)):
                if i * threads + tid < cols:
                    T.atomic_add(bins[T.cast(T.reinterpret(x[row, i * threads + tid], "uint32") >> 24, "int32")], 1)
            T.sync_threads()
            carry = T.alloc_var("int32")
            total = T.alloc_var("int32")
            carry = 0
            for part in T.serial(256 // threads):
                total = bins[part * threads + tid]
                for step in T.serial(5):
                    other = T.shfl_up(total, 1 << step)
                    if tid % 32 >= (1 << step):
                        total = total + other
                if tid % 32 == 31:
                    sums[tid // 32] = total
                T.sync_threads()
                total = total + carry
                for warp in T.serial(threads // 32):
                    if warp < tid // 32:
                        total = total + sums[warp]
                    carry = carry + sums[warp]
                values[row, part * threads + tid] = total
                T.sync_threads()

    return cumulative_histogram


def cluster_sums(*, threads: int, cluster: int):
    """values[row, b] is how many values of a row fall into bin b; blocks count parts and add them up in block 0."""
    rows, cols, row_stride = T.dynamic("rows, cols, row_stride")

    @T.prim_func
    def cluster_histogram(
        x: T.StridedTensor((rows, cols), (row_stride, 1), "int32"), values: T.Tensor((rows, threads), "int32")
    ):
        with T.ClusterKernel(rows * cluster, threads=threads, cluster_dims=(cluster, 1, 1)) as block:
            T.import_source(REMOTE)
            bins = T.alloc_shared((threads,), "int32")
            totals = T.alloc_shared((threads,), "int32")
            tid = T.get_thread_binding()
            rank = T.block_rank_in_cluster()
            row = block // cluster
            bins[tid] = 0
            totals[tid] = 0
            T.cluster_sync()
            for i in T.serial(T.ceildiv(cols, threads * cluster)):
                at = (i * cluster + rank) * threads + tid
                if at < cols:
                    T.atomic_add(bins[x[row, at] % threads], 1)
            T.sync_threads()
            T.call_extern("handle", "cluster_add", T.address_of(totals[tid]), 0, bins[tid])
            T.cluster_sync()
            if rank == cluster - 1:
                values[row, tid] = T.call_extern("int32", "cluster_load", T.address_of(totals[tid]), 0)
            T.cluster_sync()

    return cluster_histogram
