// The best k of every row: each of its blocks reads a part, once, and keeps what passes a cut that a sample of the row
// tells, the same for all parts; the last of them to come orders what all kept.
//
// Compile-time: see keys.cuh, list.cuh, row.cuh; RESIDENT (blocks of a processor that registers must suffice for).
#include "answer.cuh"
#include "filter.cuh"
#include "found.cuh"
#include "sample.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    KERNEL(const Element* __restrict__ x, Key* found_keys, unsigned* found_columns, unsigned* shared_state,
           Element* __restrict__ values, void* __restrict__ indices, long long row_stride, int rows, int cols, int k,
           int smallest, int is_signed, int infinity) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ __align__(16) Counters counters;
  __shared__ __align__(16) Span span;
  const unsigned parts = gridDim.x / rows, row = blockIdx.x / parts, number = blockIdx.x % parts;
  const Row data = {x + row * row_stride, unsigned(cols), order_of(smallest, is_signed, infinity)};
  if (threadIdx.x == 0) data.find_part(span, number, parts);
  List list = make_list(memory, &counters);  // with a barrier
  RowPart part = {span, data.order};
  part.start();
  const Cut cut = sampled_cut(list, span, data.order, k, cols, parts);
  filter(list, part, cut);
  __syncthreads();
  unsigned count = counters.count;
#pragma unroll 1
  for (bool whole = false;; whole = true) {
    if (whole || count > CAPACITY) {  // the sample misled, or most of what it lets pass is in this part: read once more
      empty_list(list);
      if (whole && threadIdx.x == 0) data.find_part(span, 0, 1);
      __syncthreads();
      count = best(list, part, k, whole ? Cut{0, 0} : cut);
    }
    if (!whole && parts > 1) {
      if (count > share_of(k)) {  // for which there is no room in scratch memory, were all parts like this one
        tighten(list, count, k);
        count = k;
      }
      const Found found = found_in_row(found_keys, found_columns, shared_state, row, parts, k);
      hand_on(list, found);
      if (!comes_last(list, found)) return;
      count = gather(list, found, k, cut);
    }
    if (count >= k) break;
  }
  if (CAPACITY > ITEMS * THREADS && count > ITEMS * THREADS) tighten(list, count, k), count = k;
  write_answer(list, count, k, cols, {values, indices, (unsigned long long)row * k, data.data, data.order});
}
