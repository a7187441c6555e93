// The best k of every row, a cluster for each.
//
// Compile-time: see keys.cuh, list.cuh, order.cuh, cluster.cuh, lines.cuh; LISTED (elements of a block that reach its cut, for which there is room);
// KEPT (lines of a block that are in shared memory, too: all or none);
// RESIDENT (blocks of a processor that registers must suffice for).
#include "owners.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    KERNEL(const Element* __restrict__ x, Element* __restrict__ values, void* __restrict__ indices, long long row_stride,
           int cols, int k, int smallest, int is_signed, int infinity) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  __shared__ __align__(16) Counters counters;
  __shared__ __align__(16) Exchange exchange;
  const unsigned number = blockIdx.x / BLOCKS;
  const Row row = row_of(x + number * row_stride, cols, order_of(smallest, is_signed, infinity));
  const Answer answer = {values, indices, (unsigned long long)number * k, row.data(), row.order};
  Holding<Together> holding;
  ask_for_lines(row, holding);
  select_together(row, holding, k, smallest, room_of(dynamic, counters, exchange), answer);
}
