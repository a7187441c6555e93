// The best k of every row of lists that are in order: the rank of an entry is its own place and, of every other list, how
// many entries come before it. A thread ranks one entry; of equal ones those of earlier lists come first.
//
// Compile-time: THREADS; see keys.cuh.
#include "keys.cuh"

constexpr int GIVEN = 16;  // sizes that are given; lists behind the last of them are of as large shards

// A part of every shard: places (rows, count), and values (rows, count) behind them. Parts are of `part_bytes` each, in one
// memory; or where that is 0, each behind an address of its own, as in memory of several GPUs.
struct Lists {
  const char* memory;  // of parts, or of their addresses
  long long part_bytes, part_at, values_at;
  const long long* sizes;  // of shards
  int number;
  unsigned k;

  __device__ __forceinline__ long long size(int list) const { return sizes[min(list, GIVEN - 1)]; }
  __device__ __forceinline__ unsigned count(int list) const { return unsigned(min(size(list), (long long)k)); }

  __device__ __forceinline__ const char* part(int list) const {
    return part_bytes ? memory + list * part_bytes : reinterpret_cast<const char* const*>(memory)[list] + part_at;
  }
  __device__ __forceinline__ const long long* places(int list, long long row) const {
    return reinterpret_cast<const long long*>(part(list)) + row * count(list);
  }
  __device__ __forceinline__ const Element* values(int list, long long row) const {
    return reinterpret_cast<const Element*>(part(list) + values_at) + row * count(list);
  }
};

// How many of the first `end` entries of a list come before a key, or are equal to it where `equals` come before as well.
__device__ __forceinline__ unsigned entries_before(const Element* values, unsigned end, Key key, bool equals, Order order) {
  unsigned first = 0;
  while (first < end) {
    const unsigned middle = (first + end) / 2;
    const Key its = equal_key(values[middle], order);
    if (its > key || (its == key && equals)) first = middle + 1;
    else end = middle;
  }
  return first;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(const char* __restrict__ x, Element* __restrict__ values, long long* __restrict__ indices, int number,
           long long part_bytes, long long part_at, long long values_at, long long size_0, long long size_1, long long size_2, long long size_3,
           long long size_4, long long size_5, long long size_6, long long size_7, long long size_8, long long size_9,
           long long size_10, long long size_11, long long size_12, long long size_13, long long size_14, long long size_15,
           int cols, int k, int smallest, int is_signed, int infinity) {
  __shared__ long long sizes[GIVEN];
  const long long given[GIVEN] = {size_0, size_1, size_2,  size_3,  size_4,  size_5,  size_6,  size_7,
                                  size_8, size_9, size_10, size_11, size_12, size_13, size_14, size_15};
#pragma unroll
  for (int i = 0; i < GIVEN; i++)
    if (threadIdx.x == i) sizes[i] = given[i];
  __syncthreads();

  const Lists lists = {x, part_bytes, part_at, values_at, sizes, number, unsigned(k)};
  const Order order = order_of(smallest, is_signed, infinity);
  const unsigned blocks = (unsigned(cols) + THREADS - 1) / THREADS;  // of a row
  const long long row = blockIdx.x / blocks;
  unsigned place = blockIdx.x % blocks * THREADS + threadIdx.x;
  long long offset = 0;
  int own = 0;
  for (; own < number && place >= lists.count(own); own++) place -= lists.count(own), offset += lists.size(own);
  if (own == number) return;

  const Element bits = lists.values(own, row)[place];
  const Key key = equal_key(bits, order);
  unsigned rank = place;
  for (int other = 0; other < number && rank < lists.k; other++)
    if (other != own)
      rank += entries_before(lists.values(other, row), min(lists.count(other), lists.k - rank), key, other < own, order);
  if (rank >= lists.k) return;
  values[row * k + rank] = bits;
  indices[row * k + rank] = lists.places(own, row)[place] + offset;
}
