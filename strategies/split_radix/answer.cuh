// Sorting the list's best, and writing the answer of a row.
#pragma once
#include "selection.cuh"

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
// for: the list's own order differs from run to run. Values are read anew, so that they have the bits of the input.
__device__ __forceinline__ void write_answer(List& list, unsigned count, unsigned k, unsigned row, const Element* data,
                                             Answer answer) {
  if (count > k) tighten(list, count, k);
  sort_list(list, k);
  const unsigned long long first = (unsigned long long)row * k;
#pragma unroll 2
  for (unsigned i = threadIdx.x; i < k; i += THREADS) {
    unsigned column = list.columns[i];
    if (answer.values) {
      answer.values[first + i] = data[column];
      static_cast<long long*>(answer.indices)[first + i] = column;
    } else {
      static_cast<int*>(answer.indices)[first + i] = int(column);
    }
  }
}
