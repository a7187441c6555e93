// The best k of every row: each of its blocks reads a part, once, and keeps what passes a cut that a sample of the row
// tells, the same for all parts; the last of them to come orders what all kept.
//
// Compile-time: see keys.cuh, list.cuh, row.cuh; RESIDENT (blocks of a processor that registers must suffice for).
#include "answer.cuh"
#include "found.cuh"
#include "sample.cuh"

// What a block reads: its part of the row, what all parts found, or the row.
enum Source { PART, OTHERS, ROW };

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
  Cut cut = sampled_cut(list, span, data.order, k, cols, parts);
  Candidates others = {};
  unsigned count;
#pragma unroll 1
  for (Source source = PART;;) {
    const bool full = __syncthreads_or(source == OTHERS ? filter(list, others, cut) : filter(list, part, cut));
    const unsigned most = source == PART && parts > 1 ? most_handed_on(k) : ITEMS * THREADS;
    count = full ? CAPACITY : counters.count;
    if (full || count > most) {
      cut = tighten(list, count, k);  // which k entries reach, so that all others can do with it
      count = k;
      if (full && source != OTHERS) part.fetch();
    }
    if (full) continue;
    if (source == PART && parts > 1) {
      const Found found = found_in_row(found_keys, found_columns, shared_state, row, parts, k);
      hand_on(list, found);
      if (!comes_last(list, found)) return;
      others = {found, counters.found, threadIdx.x, 0};
      source = OTHERS;
      continue;
    }
    if (count >= k) break;
    __syncthreads();  // the sample misled: fewer reach the cut than are asked for
    if (threadIdx.x == 0) data.find_part(span, 0, 1), counters.count = 0;
    __syncthreads();
    part.start();
    cut = {0, 0};
    source = ROW;
  }
  write_answer(list, count, k, {values, indices, (unsigned long long)row * k, data.data, data.order});
}
