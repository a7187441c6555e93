"""TileLang kernels that do next to nothing, for the tests of the compiler alone."""
# mypy: ignore-errors

import tilelang.language as T  # noqa: N812 -- as TileLang's own documentation does

REMOTE_ADD = """
#include <cooperative_groups.h>
__device__ __forceinline__ void remote_add(int *cell, int value, int rank) {
  atomicAdd(cooperative_groups::this_cluster().map_shared_rank(cell, rank), value);
}
"""


def add(amount, threads=128, dtype="float32", early=False):
    rows, cols, row_stride = T.dynamic("rows"), T.dynamic("cols"), T.dynamic("row_stride", "int64")

    @T.prim_func
    def add_to_rows(x: T.StridedTensor((rows, cols), (row_stride, 1), dtype), values: T.Tensor((rows, cols), dtype)):
        with T.Kernel(rows, threads=threads) as row:
            if early:
                T.pdl_sync()
            for step in T.serial(T.ceildiv(cols, threads)):
                col = step * threads + T.get_thread_binding(0)
                if col < cols:
                    values[row, col] = x[row, col] + amount

    return add_to_rows


def cluster_sum(blocks, threads=128, cells=64, cuda=REMOTE_ADD):
    rows, cols, row_stride = T.dynamic("rows"), T.dynamic("cols"), T.dynamic("row_stride", "int64")

    @T.prim_func
    def sum_of_rows(
        x: T.StridedTensor((rows, cols), (row_stride, 1), "int32"), values: T.Tensor((rows,), "int32"), k: T.int32
    ):
        with T.ClusterKernel(blocks, rows, threads=threads, cluster_dims=(blocks, 1, 1)) as (block, row):
            T.import_source(cuda)
            total = T.alloc_shared((cells,), "int32")
            thread = T.get_thread_binding(0)
            if thread < cells:
                total[thread] = 0
            T.cluster_sync()
            for step in T.serial(T.ceildiv(cols, threads * blocks)):
                col = (step * blocks + block) * threads + thread
                if col < cols:
                    T.call_extern("handle", "remote_add", T.address_of(total[0]), x[row, col], 0)
            T.cluster_sync()
            if block == 0 and thread == 0:
                values[row] = total[0] + k

    return sum_of_rows


def scale():
    cols = T.dynamic("cols")

    @T.prim_func
    def scale_row(x: T.Tensor((cols,), "float32"), values: T.Tensor((cols,), "float32"), weight: T.float32):
        with T.Kernel(1, threads=32):
            for step in T.serial(T.ceildiv(cols, 32)):
                values[step * 32] = x[step * 32] * weight

    return scale_row
