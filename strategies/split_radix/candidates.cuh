// What the parts of a row found, and these as a stream: tiles of LOADS entries a thread.
#pragma once
#include "best.cuh"

constexpr unsigned NOWHERE = ~0u;  // the column of a place that holds no entry

// Scratch memory: k places for every part of every row. Parts shorter than k leave losing keys in the rest.
struct Found {
  Key* keys;          // (parts, k) of a row
  unsigned* columns;  // likewise
  unsigned parts, k;
};

__device__ __forceinline__ Found found_in_row(Key* keys, unsigned* columns, unsigned row, unsigned parts, unsigned k) {
  unsigned long long place = (unsigned long long)row * parts * k;
  return {keys + place, columns + place, parts, k};
}

struct Candidates {
  Found found;
  unsigned tile;    // the next one
  unsigned asking;  // entries of the last tile that are not stored yet, a bit each

  __device__ __forceinline__ unsigned size() const { return found.parts * found.k; }
  __device__ __forceinline__ void start() { tile = 0; }
  __device__ __forceinline__ bool more() const { return tile * LOADS * THREADS < size(); }

  // Entries at even distances. From the L2 cache: other processors wrote them.
  __device__ __forceinline__ unsigned sample(List& list) const {
    unsigned count = min(size(), unsigned(CAPACITY < 8 * THREADS ? CAPACITY : 8 * THREADS));
#pragma unroll 2
    for (unsigned i = threadIdx.x; i < count; i += THREADS)
      list.keys[i] = __ldcg(found.keys + unsigned((unsigned long long)i * size() / count));
    return count;
  }

  __device__ __forceinline__ bool offer(List& list, Cut cut) {
    asking = (1u << LOADS) - 1;
    tile++;
    return offer_again(list, cut);
  }

  // Read anew: no register holds an entry while the list is made shorter.
  __device__ __forceinline__ bool offer_again(List& list, Cut cut) {
    Key keys[LOADS];
    unsigned columns[LOADS], from = (tile - 1) * LOADS * THREADS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      bool asks = from + i * THREADS < size() && asking >> i & 1;
      keys[i] = asks ? __ldcg(found.keys + from + i * THREADS) : Key(0);
      columns[i] = asks ? __ldcg(found.columns + from + i * THREADS) : NOWHERE;
    }
#pragma unroll
    for (int i = 0; i < LOADS; i++)
      if (!::offer(list, columns[i] != NOWHERE, keys[i], columns[i], cut)) asking &= ~(1u << i);
    return asking;
  }
};
