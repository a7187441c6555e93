// What of a batch reaches the cut is listed as it comes: the elements' bits in place of keys.
#pragma once
#include "entries.cuh"
#include "sample.cuh"

// What a list holds, where it found no room.
struct Filled {
  Cut cut;          // that all that is listed reaches
  unsigned listed;  // entries of a list that is full; of one that is not ~0
};

// The first of so many slots for a warp, of which each lane has `own`. Returns whether there is room; if not, there is none for anyone any
// more, and what is listed ends where the first of those would have begun that found none.
__device__ __forceinline__ bool claim(const List& list, Filled& filled, unsigned own, unsigned& slot) {
  unsigned all, start = 0;
  const unsigned upto = scan_lanes(own, all);
  if (lane_of() == 0) {
    start = atomicAdd(&list.counters->count, all);
    if (start + all > CAPACITY) atomicMin(&filled.listed, start);
  }
  start = __shfl_sync(~0u, start, 0);
  slot = start + upto - own;
  return start + all <= CAPACITY;
}

// Which elements of COUNT lines reach the limit, a bit each.
template <int COUNT> __device__ __forceinline__ unsigned elements_at(Limit limit, const uint4* lines, Order order) {
  const bool half = ELEMENT_BYTES == 2 && order.half();
  return half ? reaching_limit<true, COUNT>(lines, limit) : reaching_limit<false, COUNT>(lines, limit);
}

// All elements of a batch that reach the limit, or none. Returns whether there was room; the same of all lanes.
template <class Batch>
__device__ __forceinline__ bool take(const Row& row, const List& list, Filled& filled, Limit limit, Batch batch, const uint4 (&bits)[LOADS]) {
  constexpr int SIDE = LOADS < SIDE_BY_SIDE ? LOADS : SIDE_BY_SIDE, WORDS = (LOADS * VECTOR + 31) / 32;
  unsigned reaching[WORDS] = {}, own = 0;  // a bit for every element
#pragma unroll
  for (int i = 0; i < LOADS; i += SIDE) reaching[i * VECTOR / 32] |= elements_at<SIDE>(limit, bits + i, row.order) << i * VECTOR % 32;
  if (batch.line(LOADS - 1) >= row.end) {
#pragma unroll
    for (int i = 0; i < LOADS; i++)
      if (batch.line(i) >= row.end) reaching[i * VECTOR / 32] &= ~(EVERY << i * VECTOR % 32);
  }
#pragma unroll
  for (int i = 0; i < WORDS; i++) own += __popc(reaching[i]);
  if (!__any_sync(~0u, own)) return true;
  unsigned slot;
  if (!claim(list, filled, own, slot)) return false;
  unsigned* words = reinterpret_cast<unsigned*>(list.keys);
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    const unsigned its = reaching[i * VECTOR / 32] >> i * VECTOR % 32;
    if (!__any_sync(~0u, its & EVERY)) continue;
#pragma unroll
    for (int e = 0; e < VECTOR; e++) {
      if (!(its >> e & 1)) continue;
      words[slot] = element(bits[i], e), list.columns[slot] = batch.column(row, i) + e;
      slot++;
    }
  }
  return true;
}

// Elements of lines that are the row's in part, by the first warp.
__device__ __forceinline__ bool take_edges(const Row& row, const List& list, Filled& filled, Cut cut, bool as_keys) {
  if (row.begin == 0 && row.end == row.all_lines()) return true;
  const unsigned head = row.begin * VECTOR - row.begin * row.skew, tail = row.end * VECTOR - row.skew;
  const unsigned from = lane_of() < 16 ? lane_of() : tail + lane_of() - 16;
  const bool asks = from < (lane_of() < 16 ? head : row.cols);
  const Element its = asks ? row.data()[from] : Element(0);
  const Key key = equal_key(its, row.order);
  const bool passes = asks && chosen(key, from, cut);
  unsigned slot;
  if (!claim(list, filled, passes, slot)) return false;
  if (passes) list.keys[slot] = as_keys ? key : Key(its), list.columns[slot] = from;
  return true;
}
