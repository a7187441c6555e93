// The answer of a row, in order, from a list that holds its best.
#pragma once
#include "order.cuh"

// Where answers go: values and 64-bit indices; where there are no values, 32-bit indices alone.
struct Answer {
  Element* values;
  void* indices;
};

// Write the best k of the list's `count` entries as the answer of row number `row`, in order whether or not that is asked
// for: the list's own order differs from run to run.
__device__ __forceinline__ void write_answer(List& list, unsigned count, unsigned k, unsigned row, const Element* data,
                                             Order order, Answer answer, Even even = {0, -1}) {
  const unsigned long long first = (unsigned long long)row * k;
  const auto put = [&](unsigned rank, Key key, unsigned column) {
    if (answer.values) {  // of NaN with the bits of the input
      answer.values[first + rank] = is_nan(key, order) ? data[column] : element_of(key, order);
      static_cast<long long*>(answer.indices)[first + rank] = column;
    } else {
      static_cast<int*>(answer.indices)[first + rank] = int(column);
    }
  };
  if (CAPACITY > ITEMS * THREADS && count > ITEMS * THREADS) tighten(list, count, k), count = k;
  rank_list(list, count, k, even, put);
}
