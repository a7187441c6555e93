// The best k of every row, by as many blocks as there are for each; the last of them to come puts them in order.
//
// Compile-time: see keys.cuh, list.cuh, row.cuh; RESIDENT (blocks of a processor that registers must suffice for).
#include "answer.cuh"
#include "stream.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    KERNEL(const Element* __restrict__ x, Key* found_keys, unsigned* found_columns, unsigned long long* shared_state,
           Element* __restrict__ values, void* __restrict__ indices, long long row_stride, int rows, int cols, int k,
           int smallest, int is_signed, int infinity) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ __align__(16) Counters counters;
  __shared__ __align__(16) Span span;
  const unsigned parts = gridDim.x / rows, row = blockIdx.x / parts, number = blockIdx.x % parts;
  const WholeRow data = {x + row * row_stride, unsigned(cols), order_of(smallest, is_signed, infinity)};
  List list = list_of(memory, &counters);
  select_best<false>(
      list, span, data, number, row, parts, k,
      [&](unsigned row, unsigned parts) { return found_in_row(found_keys, found_columns, shared_state, row, parts, k); },
      [&](unsigned rank, Key key, unsigned column) {
        const Answer answer = {values, indices, (unsigned long long)span.row * k, span.line + span.skew, data.order};
        answer.put(rank, key, column);
      });
}
