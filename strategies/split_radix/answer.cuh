// The answer of a row, in order, from a list that holds its best.
#pragma once
#include "order.cuh"

// Where answers go: values and 64-bit indices; where there are no values, 32-bit indices alone.
struct Answer {
  Element* values;
  void* indices;
};

// Sort the first `count` entries with a bitonic network; ends with a barrier. Equal keys are in the order of columns.
// Steps of up to 32 entries stay within what a warp handles, so that warps need not wait for each other.
__device__ __forceinline__ void sort_list(List& list, unsigned count) {
  unsigned size = 1;
  while (size < count) size *= 2;
  for (unsigned i = count + threadIdx.x; i < size; i += THREADS) list.keys[i] = 0, list.columns[i] = ~0u;
  __syncthreads();
  for (unsigned width = 2; width <= size; width *= 2) {
    for (unsigned stride = width / 2; stride; stride /= 2) {
#pragma unroll 1
      for (unsigned pair = threadIdx.x; pair < size / 2; pair += THREADS) {
        unsigned i = 2 * pair - (pair & (stride - 1)), j = i + stride;
        Key a = list.keys[i], b = list.keys[j];
        unsigned m = list.columns[i], n = list.columns[j];
        bool better = b > a || (b == a && n < m);
        if (better != ((i & width) == 0)) continue;
        list.keys[i] = b, list.keys[j] = a;
        list.columns[i] = n, list.columns[j] = m;
      }
      unsigned following = stride > 1 ? stride / 2 : width;
      if (stride > 32 || following > 32) __syncthreads();
      else __syncwarp();
    }
  }
  __syncthreads();
}

// Write the best k of the list's `count` entries as the answer of row number `row`, in order whether or not that is asked
// for: the list's own order differs from run to run.
__device__ __forceinline__ void write_answer(List& list, unsigned count, unsigned k, unsigned row, const Element* data,
                                             Order order, Answer answer) {
  const unsigned long long first = (unsigned long long)row * k;
  const auto put = [&](unsigned rank, Key key, unsigned column) {
    if (answer.values) {  // of NaN with the bits of the input
      answer.values[first + rank] = is_nan(key, order) ? data[column] : element_of(key, order);
      static_cast<long long*>(answer.indices)[first + rank] = column;
    } else {
      static_cast<int*>(answer.indices)[first + rank] = int(column);
    }
  };
  if (count > ITEMS * THREADS) tighten(list, count, k), count = k;
  if (rank_list(list, count, k, put)) return;
  if (count > k) tighten(list, count, k);
  sort_list(list, k);
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < k; i += THREADS) put(i, list.keys[i], list.columns[i]);
}
