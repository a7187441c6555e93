// The best k of every row, by one block that holds the row in shared memory: what reaches a cut that k maxima of groups reach is
// listed and put in order.
//
// Compile-time: see keys.cuh, list.cuh; RESIDENT (blocks of a processor that registers must suffice for).
#include "cut.cuh"

// The smallest and the largest maximum of all groups; has a barrier.
__device__ __forceinline__ void extremes(const List& list, const HeldRow& row, unsigned group, Key& least, Key& most) {
  Counters& counters = *list.counters;
  most = 0, least = 0;  // the least as its complement, so that both are largest
  each_maximum(row, group, [&](Key maximum) { most = max(most, maximum), least = max(least, Key(~maximum)); });
  most = largest_of_lanes(most), least = largest_of_lanes(least);
  if (lane_of() == 0) counters.keys[0][warp_of()] = most, counters.keys[1][warp_of()] = least;
  __syncthreads();
  const int warp = lane_of() < WARPS ? lane_of() : 0;
  most = largest_of_lanes(counters.keys[0][warp]), least = ~largest_of_lanes(counters.keys[1][warp]);
}

// List what the cut chooses; all threads of a warp come along.
__device__ __forceinline__ void list_chosen(List& list, const HeldRow& row, Cut cut) {
#pragma unroll 2
  for (unsigned first = 0; first < row.count; first += THREADS) {
    const unsigned load = first + threadIdx.x;
    const uint4 bits = load < row.count ? row.loads[load] : make_uint4(0, 0, 0, 0);
    unsigned elements = 0;
#pragma unroll
    for (int e = 0; e < VECTOR; e++) {
      const unsigned column = row.column(load, e);
      const bool inside = load < row.count && column < row.cols;
      elements |= unsigned(inside && chosen(key_of(element(bits, e), row.order), column, cut)) << e;
    }
    if (!__any_sync(~0u, elements)) continue;
    unsigned slot = reserve(list, __popc(elements));
#pragma unroll
    for (int e = 0; e < VECTOR; e++) {
      if (!(elements >> e & 1)) continue;
      if (slot < CAPACITY) list.keys[slot] = key_of(element(bits, e), row.order), list.columns[slot] = row.column(load, e);
      slot++;
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    KERNEL(const Element* __restrict__ x, Element* __restrict__ values, void* __restrict__ indices, long long row_stride,
           int cols, int k, int smallest, int is_signed, int infinity) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ __align__(16) Counters counters;
  const Element* data = x + blockIdx.x * row_stride;
  const Order order = order_of(smallest, is_signed, infinity);
  constexpr unsigned LIST_BYTES = CAPACITY * (sizeof(Key) + 4) + INTERVALS * 4;  // a multiple of 16
  const HeldRow row = hold(reinterpret_cast<uint4*>(memory + LIST_BYTES), data, cols, order);
  List list = make_list(memory, &counters);
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < INTERVALS; i += THREADS) list.intervals[i] = 0;
  unsigned group = 1;
  while (group < MOST_GROUP && cols / (2 * group) >= GROUPS_A_K * k) group *= 2;
  Key least, most;
  extremes(list, row, group, least, most);
  Cut cut = cut_of_groups(list, row, group, least, most, k);
#pragma unroll 1
  for (;;) {
    list_chosen(list, row, cut);
    __syncthreads();
    if (counters.count <= CAPACITY) break;
    empty_list(list);
    cut = narrow_held(list, row, cut.key, most, k);
  }
  write_answer(list, counters.count, k, blockIdx.x, data, order, {values, indices});
}
