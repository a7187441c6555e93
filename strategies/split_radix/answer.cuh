// The answer of a row, in order, from a list that holds its best.
#pragma once
#include "order.cuh"

// Where the answer of a row goes: values and 64-bit indices; where there are no values, 32-bit indices alone.
struct Answer {
  Element* values;
  void* indices;
  unsigned long long first;  // place of the row's best
  const Element* data;       // the row
  Order order;

  __device__ __forceinline__ void put(unsigned rank, Key key, unsigned column) const {
    if (values) {
      values[first + rank] = tells_bits(key, order) ? element_of(key, order) : data[column];
      static_cast<long long*>(indices)[first + rank] = column;
    } else {
      static_cast<int*>(indices)[first + rank] = int(column);
    }
  }
};

// Write the best `want` of the list's `count` entries, at most ITEMS * THREADS, in order whether or not that is asked for:
// the list's own order differs from run to run.
__device__ __forceinline__ void write_answer(List& list, unsigned count, unsigned want, unsigned cols,
                                             const Answer& answer) {
  rank_list(list, count, want, cols, answer.order, [&](unsigned rank, Key key, unsigned column) { answer.put(rank, key, column); });
}
