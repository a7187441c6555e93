// The best k of every row, by a block that reads it once.
//
// Compile-time: see keys.cuh, list.cuh, order.cuh, sharing.cuh; RESIDENT (blocks of a processor that registers must suffice for).
#include "ordered.cuh"
#include "rest.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    KERNEL(const Element* __restrict__ x, Element* __restrict__ values, void* __restrict__ indices, long long row_stride, int cols, int k,
           int smallest, int is_signed, int infinity) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  __shared__ Shared shared;
  Filled& filled = shared.filled;
  const Row row = row_of(x + blockIdx.x * row_stride, cols, order_of(smallest, is_signed, infinity));
  uint4 one[LOADS], other[LOADS];  // batches: one is on its way while the other is looked at
#if SPREAD
  Sharing sharing = sharing_of(row);
  fetch(row, sharing.batch(0), one);
#else
  Sharing& sharing = shared.sharing;
  const Chunks chunks = chunks_of(row);
  Left left = {chunks.sample(), chunks.other(warp_of()), 0};
  fetch(row, sample_of(row, chunks), one);
  if (threadIdx.x == 0) sharing = {chunks, WARPS};
#endif
  List list = list_of(dynamic, &shared.counters);
  if (threadIdx.x == 0) shared.counters.count = 0, filled.listed = ~0u;
  clear_counters(list);
  clear_intervals(list);
  const Ranked ranked = ranked_of(maxima_of(k, cols), true);
  const Key maximum = best_of_lines(one, row.order, smallest);
#if SPREAD
  fetch(row, sharing.batch(1), other);
#else
  fetch(row, batch_of(row, left.next), other);
#endif
  const Key cut = cut_of_sample(shared.exchange, shared.counts, maximum, ranked);
  if (threadIdx.x == 0) filled.cut = {cut, 0};
  const Limit limit(cut, row.order);
#if SPREAD
  bool full = !take(row, list, filled, limit, sharing.batch(0), one);
  Left left = {full ? 0 : sharing.batches()};
#pragma unroll 1
  for (unsigned number = 1; !full && number < sharing.batches(); number++) {
#pragma unroll
    for (int i = 0; i < LOADS; i++) one[i] = other[i];
    fetch(row, sharing.batch(number + 1), other);
    full = !take(row, list, filled, limit, sharing.batch(number), one);
    if (full) left.number = number;
  }
#else
  unsigned after = 0;  // of the first lane
  if (lane_of() == 0) after = sharing.next();
  bool full = !take(row, list, filled, limit, sample_of(row, chunks), one);
#pragma unroll 1
  while (!full) {
    left.chunk = __shfl_sync(~0u, after, 0);
    fetch(row, batch_of(row, left.chunk), one);
    if (left.next == chunks.none()) break;
    if (lane_of() == 0) after = sharing.next();
    full = !take(row, list, filled, limit, batch_of(row, left.next), other);
    if (full) {
      const unsigned chunk = left.chunk;
      left.chunk = left.next, left.next = chunk;
      break;
    }
    left.next = __shfl_sync(~0u, after, 0);
    fetch(row, batch_of(row, left.next), other);
    if (left.chunk == chunks.none()) break;
    if (lane_of() == 0) after = sharing.next();
    full = !take(row, list, filled, limit, batch_of(row, left.chunk), one);
  }
  left.after = __shfl_sync(~0u, after, 0);
#endif
  Progress at = {left, 0, threadIdx.x < 32};
  __syncwarp();  // the cut is there
  if (!full && at.edges) full = at.edges = !take_edges(row, list, filled, filled.cut, false);
  if (lane_of() == 0) shared.stopped[warp_of()] = at;
  const bool any = __syncthreads_or(full);
  const unsigned count = shared.counters.count;
  const Answer answer = {values, indices, (unsigned long long)blockIdx.x * k, row.data(), row.order};
  const auto put = [&](unsigned rank, Key key, unsigned column) { answer.put(rank, key, column); };
  if (!any && count >= k && count <= ITEMS * THREADS) {
    if constexpr (ITEMS <= FEW_ITEMS) {
      if (put_few_in_order(row, list, shared.exchange, count, filled.cut.key, k, put)) return;
    } else {
      if (put_in_order(row, list, count, k, put)) return;
    }
  }
  const bool by_another = cut_anew(x + blockIdx.x * row_stride, cols, k, smallest, is_signed, infinity, dynamic, &shared);
  if (by_another) stream_on(x + blockIdx.x * row_stride, cols, smallest, is_signed, infinity, dynamic, &shared);
  select_again(x + blockIdx.x * row_stride, cols, k, smallest, is_signed, infinity, values, indices, dynamic, &shared, by_another);
}
