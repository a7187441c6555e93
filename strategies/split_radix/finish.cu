// The best k of a row, of those that split.cu found in its parts: one block a row.
//
// Compile-time: see keys.cuh, list.cuh, candidates.cuh.
#include "answer.cuh"
#include "candidates.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(const Element* __restrict__ x, Key* found_keys, unsigned* found_columns, const unsigned* shared_state,
           Element* __restrict__ values, void* __restrict__ indices, long long row_stride, int k) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ __align__(16) Counters counters;
  const unsigned row = blockIdx.x, parts = *shared_state;
  List list = make_list(memory, &counters);
  const Found found = found_in_row(found_keys, found_columns, row, parts, k);
  Candidates candidates = {found};
  unsigned count = best(list, candidates, unsigned(k));
  write_answer(list, count, k, row, x + row * row_stride, {values, indices});
}
