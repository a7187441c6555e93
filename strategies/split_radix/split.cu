// The best k of every part of every row, in scratch memory; where LAST, also the best of the row, by whichever of its
// blocks comes last.
//
// Compile-time: see keys.cuh, list.cuh, row.cuh; LAST; RESIDENT (blocks of a processor that registers must
// suffice for).
#include "answer.cuh"
#include "candidates.cuh"
#include "row.cuh"

// Whether all other blocks of the row have written what they found, for all threads of the block alike.
__device__ __forceinline__ bool comes_last(Counters& counters, unsigned* arrived, unsigned parts) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    counters.last = atomicAdd(arrived, 1u) == parts - 1;
    if (counters.last) *arrived = 0;  // as the next launch needs it
    counters.count = 0;
  }
  __syncthreads();
  __threadfence();
  return counters.last;
}

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
  const Found found = found_in_row(found_keys, found_columns, row, parts, k);
  RowPart part = {span, data.order};
  unsigned want = min(unsigned(k), part.size()), count = best(list, part, want);
#if LAST
  if (parts > 1) {
#else
  if (blockIdx.x == 0 && threadIdx.x == 0) *shared_state = parts;
  {
#endif
    Cut cut = {0, 0};
    if (count > want) cut = cut_list(list, count, want);
    const unsigned place = number * k;
    keep(list, count, cut, [&](unsigned slot, Key key, unsigned column) {
      found.keys[place + slot] = key, found.columns[place + slot] = column;
    });
    for (unsigned i = want + threadIdx.x; i < k; i += THREADS)
      found.keys[place + i] = 0, found.columns[place + i] = NOWHERE;
#if LAST
    if (!comes_last(counters, shared_state + row, parts)) return;
    Candidates candidates = {found};
    count = best(list, candidates, unsigned(k));
#endif
  }
#if LAST
  write_answer(list, count, k, row, data.data, {values, indices});
#endif
}
