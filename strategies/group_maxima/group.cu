// The best k of every row, by one block that holds the row in registers: what reaches a cut that k maxima of groups reach is
// listed and put in order.
//
// Compile-time: see keys.cuh, list.cuh, held.cuh; RESIDENT (blocks of a processor that registers must suffice for).
#include "cut.cuh"

// The smallest and the largest maximum of all groups; has a barrier.
__device__ __forceinline__ void extremes(const List& list, const Held_row& row, unsigned group, Key& least, Key& most) {
  Counters& counters = *list.counters;
  most = 0, least = 0;  // the least as its complement, so that both are largest
  each_maximum(row, group, [&](Key maximum) { most = max(most, maximum), least = max(least, Key(~maximum)); });
  most = largest_of_lanes(most), least = largest_of_lanes(least);
  if (lane_of() == 0) counters.keys[0][warp_of()] = most, counters.keys[1][warp_of()] = least;
  __syncthreads();
  const int warp = lane_of() < WARPS ? lane_of() : 0;
  most = largest_of_lanes(counters.keys[0][warp]), least = ~largest_of_lanes(counters.keys[1][warp]);
}

// Elements that the cut chooses, a bit each.
__device__ __forceinline__ unsigned choose(const Held_row& row, Cut cut) {
  unsigned elements = 0;
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
#pragma unroll
    for (int e = 0; e < VECTOR; e++) {
      const unsigned column = row.column(i, e);
      elements |= unsigned(column < row.cols && chosen(row.key(i, e), column, cut)) << (i * VECTOR + e);
    }
  }
  return elements;
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    KERNEL(const Element* __restrict__ x, Element* __restrict__ values, void* __restrict__ indices, long long row_stride,
           int cols, int k, int smallest, int is_signed, int infinity) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ __align__(16) Counters counters;
  const Element* data = x + blockIdx.x * row_stride;
  const Order order = order_of(smallest, is_signed, infinity);
  Held_row row;
  hold(row, data, cols, order);
  List list = make_list(memory, &counters);
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < INTERVALS; i += THREADS) list.intervals[i] = 0;
  unsigned group = 1;
  while (group < HELD && cols / (2 * group) >= GROUPS_A_K * k) group *= 2;
  Key least, most;
  extremes(list, row, group, least, most);
  Cut cut = cut_of_groups(list, row, group, least, most, k);
#pragma unroll 1
  for (;;) {
    const unsigned elements = choose(row, cut);
    unsigned slot = reserve(list, __popc(elements));
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
#pragma unroll
      for (int e = 0; e < VECTOR; e++) {
        if (!(elements >> (i * VECTOR + e) & 1)) continue;
        if (slot < CAPACITY) list.keys[slot] = row.key(i, e), list.columns[slot] = row.column(i, e);
        slot++;
      }
    }
    __syncthreads();
    if (counters.count <= CAPACITY) break;
    empty_list(list);
    cut = narrow_held(list, row, cut.key, most, k);
  }
  write_answer(list, counters.count, k, blockIdx.x, data, order, {values, indices});
}
