// A part of a row as a thread reads it: the best of all of its lines, which are side by side with those of its block, and as far
// from each other as a row's blocks are wide together.
//
// Compile-time: LOADS (lines of a thread on their way at once).
#pragma once
#include "lines.cuh"

// Of the elements that a thread has read: the best, the best other one of the same line, and what all others are no better than. A place
// is (round, element).
struct BestOfThread {
  unsigned key, place, second_key, second_place, bound;
};

constexpr int ELEMENT_BITS = VECTOR == 4 ? 2 : 3, ROUND_BITS = 9;  // of a place

// The first line of a block; that of each of its threads is next to it, and the next ones are so many further as the row has threads.
__device__ __forceinline__ unsigned first_line(const Row& row, unsigned part) { return row.begin + part * THREADS; }

// What no element is better than, or only NaN where that is the worst.
template <bool SMALLEST> __device__ __forceinline__ unsigned worst_bits(Order order) {
  return SMALLEST ? unsigned(SIGN - 1) : unsigned(SIGN) | unsigned(infinity_of(order));
}

template <bool SMALLEST, bool HALF>
__device__ __forceinline__ BestOfThread best_in_stream(const Row& row, unsigned parts, unsigned first) {
  const auto better = better_bits<SMALLEST, HALF>;
  const unsigned stride = parts * THREADS;
  unsigned best = worst_bits<SMALLEST>(row.order), others = best, line = first, which = 0;
  uint4 kept = make_uint4(0, 0, 0, 0);
  const auto look = [&](uint4 bits, unsigned round) {
    unsigned its = better(better(bits.x, bits.y), better(bits.z, bits.w));
    if (ELEMENT_BYTES == 2) its = better(its, its >> 16) & 0xFFFF;
    const unsigned before = best;
    others = better(others, better_bits<!SMALLEST, HALF>(before, its)), best = better(before, its);
    if (ELEMENT_BYTES == 2) others &= 0xFFFF, best &= 0xFFFF;
    if (best != before || round == 0) kept = bits, which = round;
  };
  uint4 bits[LOADS];
  const unsigned rounds = first < row.end ? (row.end - first + stride - 1) / stride : 0, whole = __reduce_min_sync(~0u, rounds);
  unsigned round = 0;
#pragma unroll 1
  for (; round + LOADS <= whole; round += LOADS) {
#pragma unroll
    for (int i = 0; i < LOADS; i++) bits[i] = line_past(row.lines + line, true), line += stride;
#pragma unroll
    for (int i = 0; i < LOADS; i++) look(bits[i], round + i);
  }
  if (__any_sync(~0u, line < row.end)) {
#pragma unroll
    for (int i = 0; i < LOADS; i++) bits[i] = row.line_or_last(line + i * stride);
#pragma unroll
    for (int i = 0; i < LOADS; i++)
      if (line + i * stride < row.end) look(bits[i], round + i);
  }
  if (!rounds) return {};
  const unsigned place = which << ELEMENT_BITS;
  BestOfThread found = {equal_key(Element(best), row.order), place, 0, place, equal_key(Element(others), row.order)};
  unsigned its = VECTOR, second = 0;
#pragma unroll
  for (int e = VECTOR - 1; e >= 0; e--)
    if (equal_key(element(kept, e), row.order) == found.key) its = e;
#pragma unroll
  for (int e = 0; e < VECTOR; e++) {
    const unsigned key = e == its ? 0 : equal_key(element(kept, e), row.order);
    const bool better = key >= found.second_key && e != its;
    found.bound = max(found.bound, better ? found.second_key : key);
    if (better) found.second_key = key, second = e;
  }
  found.place += its, found.second_place += second;
  return found;
}

// Ask the L2 cache for a thread's first lines.
__device__ __forceinline__ void ask_for_first(const Row& row, unsigned parts, unsigned first) {
#pragma unroll
  for (unsigned i = 0; i < LOADS; i++)
    if (first + i * parts * THREADS < row.end) asm volatile("prefetch.global.L2 [%0];" ::"l"(row.lines + first + i * parts * THREADS));
}

// The same for lines that are the row's in part.
__device__ __forceinline__ void ask_for_edges(const Row& row) {
  if (threadIdx.x == 0 && row.skew) asm volatile("prefetch.global.L2 [%0];" ::"l"(row.data()));
  if (threadIdx.x == 1) asm volatile("prefetch.global.L2 [%0];" ::"l"(row.data() + row.cols - 1));
}

__device__ __forceinline__ BestOfThread best_of_thread(const Row& row, unsigned parts, unsigned first, bool smallest) {
  if (ELEMENT_BYTES == 2 && row.order.half())
    return smallest ? best_in_stream<true, true>(row, parts, first) : best_in_stream<false, true>(row, parts, first);
  return smallest ? best_in_stream<true, false>(row, parts, first) : best_in_stream<false, false>(row, parts, first);
}
