// A block's entries in order, for crowds.
#pragma once
#include "list.cuh"

// Put entries in order, the best, which are the larger, first. Begins and ends with a barrier.
template <class Entry> __device__ __forceinline__ void sort_entries(Entry* entries, unsigned count) {
  __syncthreads();
#pragma unroll 1
  for (unsigned size = 2; size < 2 * count; size *= 2) {
#pragma unroll 1
    for (unsigned step = size; step > 1; step /= 2) {
#pragma unroll 1
      for (unsigned pair = threadIdx.x; 2 * pair < count + step; pair += THREADS) {
        const unsigned half = step / 2, low = pair / half * step + pair % half;
        const unsigned high = step == size ? low ^ (step - 1) : low + half;  // the first step meets from both ends
        if (high < count && entries[low] < entries[high]) {
          const Entry other = entries[low];
          entries[low] = entries[high], entries[high] = other;
        }
      }
      __syncthreads();
    }
  }
}
