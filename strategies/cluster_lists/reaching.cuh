// Which of the elements that a thread holds reach a cut. Floats are compared as they are: a key takes five instructions of two cycles.
#pragma once
#include "holding.cuh"

// Elements that are at most the limit do not reach the cut, or for the smallest, they alone do.
struct Limit {
  unsigned bits;    // of an element, or of two halves
  unsigned turned;  // all ones where those that are at most it do not reach the cut

  __device__ __forceinline__ Limit(Key cut, Order order) {
    const bool below = order.turn == 0 || cut == 0;  // 0: a NaN, which nothing is at most
    const Key finite = max(cut, Key(ONES ^ (SIGN | infinity_of(order))));
    turned = 0u - below;
    asm("" : "+r"(turned));  // else all that follows is compiled for both
    bits = (bound_bits(cut, order) & turned) | (element_of(finite, order) & ~turned);
    if (ELEMENT_BYTES == 2) bits *= 0x10001;
  }
};

// All ones where a word is at most a limit, of two halves each.
template <bool HALF> __device__ __forceinline__ unsigned mask_at_most(unsigned word, Limit limit) {
  unsigned mask;
  if (ELEMENT_BYTES == 4) mask = 0u - (__uint_as_float(word) <= __uint_as_float(limit.bits));
  else if (HALF) asm("set.le.u32.f16x2 %0, %1, %2;" : "=r"(mask) : "r"(word), "r"(limit.bits));
  else asm("set.le.u32.bf16x2 %0, %1, %2;" : "=r"(mask) : "r"(word), "r"(limit.bits));
  return mask;
}

constexpr int SIDE_BY_SIDE = 16 / VECTOR;  // lines of 16 elements, at most

// Which elements of COUNT lines reach the cut, a bit each. Those of 4 bytes are added up as floats, since comparisons that make numbers take
// fewer cycles.
template <bool HALF, int COUNT> __device__ __forceinline__ unsigned reaching_limit(const uint4* lines, Limit limit) {
  static_assert(COUNT <= SIDE_BY_SIDE);
  unsigned those = 0;
  if (ELEMENT_BYTES == 4) {
    float sum = 1 << 23;  // whose last bits are integers
#pragma unroll
    for (int i = 0; i < COUNT * VECTOR; i++) {
      const float number = __uint_as_float(element(lines[i / VECTOR], i % VECTOR));
      sum = fmaf(number <= __uint_as_float(limit.bits) ? 1.f : 0.f, float(1 << i), sum);
    }
    those = __float_as_uint(sum);
  } else {
#pragma unroll
    for (int i = 0; i < COUNT * 4; i++) {
      const uint4 line = lines[i / 4];
      const unsigned words[4] = {line.x, line.y, line.z, line.w};
      those |= mask_at_most<HALF>(words[i % 4], limit) & (1u << 2 * i | 0x20000u << 2 * i);
    }
    those |= those >> 16;
  }
  return (those ^ limit.turned) & lowest_bits(COUNT * VECTOR);
}

// Which lines of a thread have an element that reaches the cut, a bit each.
template <bool HALF, class Blocks> __device__ __forceinline__ unsigned lines_reaching(const Holding<Blocks>& holding, Limit limit) {
  unsigned those = 0;
#pragma unroll
  for (int i = 0; i < Blocks::HOLDS; i++) those |= unsigned(mask_at_most<HALF>(holding.best[i], limit) != limit.turned) << i;
  return those & lowest_bits(holding.count());
}

// Elements of a thread, a bit each.
template <class Blocks> struct Reaching {
  static constexpr int WORDS = (Blocks::HOLDS * VECTOR + 31) / 32;
  unsigned words[WORDS];
  unsigned part;

  __device__ __forceinline__ unsigned of_line(int number) const {
    unsigned word = words[0];
#pragma unroll
    for (int i = 1; i < WORDS; i++)
      if (number * VECTOR / 32 == i) word = words[i];
    return word >> (number * VECTOR % 32) & EVERY;
  }
  __device__ __forceinline__ void leave_out(const Reaching& others) {
    part &= ~others.part;
#pragma unroll
    for (int i = 0; i < WORDS; i++) words[i] &= ~others.words[i];
  }
  __device__ __forceinline__ unsigned count() const {
    unsigned sum = __popc(part);
#pragma unroll
    for (int i = 0; i < WORDS; i++) sum += __popc(words[i]);
    return sum;
  }
};

constexpr int CUTS = 3;  // that are looked at together, at most

template <class Blocks, int COUNT> struct Around {
  Reaching<Blocks> of[COUNT];  // those that reach each cut
};

template <bool HALF, class Blocks, int COUNT>
__device__ __forceinline__ Around<Blocks, COUNT> elements_around(const Row& row, const Holding<Blocks>& holding, const Key (&cuts)[COUNT]) {
  constexpr int SIDE = Blocks::HOLDS < SIDE_BY_SIDE ? Blocks::HOLDS : SIDE_BY_SIDE;
  constexpr int AT_A_TIME = HELD_LINES<Blocks> ? Blocks::HOLDS : 4;  // that are asked for, where they are read again
  Around<Blocks, COUNT> around = {};
  Key least = cuts[0];
#pragma unroll
  for (int c = 1; c < COUNT; c++) least = min(least, cuts[c]);
  const unsigned reads = HELD_LINES<Blocks> ? 0 : lines_reaching<HALF>(holding, Limit(least, row.order));
  const int count = holding.count();
  const bool any = holding.largest >= least;  // of rows that are concentrated somewhere most warps have none
#pragma unroll
  for (int first = 0; any && first < Blocks::HOLDS; first += AT_A_TIME) {
    uint4 lines[AT_A_TIME];
#pragma unroll
    for (int i = 0; i < AT_A_TIME; i++)
      lines[i] = HELD_LINES<Blocks> ? holding.bits[first + i] : line_past(row.lines + holding.line(first + i), reads >> (first + i) & 1);
#pragma unroll
    for (int i = 0; i < AT_A_TIME; i += SIDE) {
      unsigned inside = 0;
      if (HELD_LINES<Blocks>) inside = lowest_bits((count - (first + i)) * VECTOR);
#pragma unroll
      for (int j = i; !HELD_LINES<Blocks> && j < i + SIDE; j++) inside |= (reads >> (first + j) & 1 ? EVERY : 0) << (j - i) * VECTOR;
      const int bit = (first + i) * VECTOR;
#pragma unroll
      for (int c = 0; c < COUNT; c++)
        around.of[c].words[bit / 32] |= (reaching_limit<HALF, SIDE>(lines + i, Limit(cuts[c], row.order)) & inside) << bit % 32;
    }
  }
  if (holding.part_line != ~0u && holding.part >= least) {
    unsigned inside;
    const uint4 bits = row.part(holding.part_line, inside);
#pragma unroll
    for (int c = 0; c < COUNT; c++) around.of[c].part = reaching_limit<HALF, 1>(&bits, Limit(cuts[c], row.order)) & inside;
  }
  return around;
}

template <class Blocks, int COUNT>
__device__ __forceinline__ Around<Blocks, COUNT> elements_around(const Row& row, const Holding<Blocks>& holding, const Key (&cuts)[COUNT]) {
  if (ELEMENT_BYTES == 2 && row.order.half()) return elements_around<true>(row, holding, cuts);
  return elements_around<false>(row, holding, cuts);
}

// Call `store(slot, column)` for the elements, slots from `slot` on.
template <class Blocks, class Store>
__device__ __forceinline__ void store_columns(const Row& row, const Holding<Blocks>& holding, const Reaching<Blocks>& reaching, unsigned slot, Store store) {
#pragma unroll
  for (int i = 0; i < Reaching<Blocks>::WORDS; i++) {
#pragma unroll 1
    for (unsigned left = reaching.words[i]; left; left &= left - 1) {
      const unsigned at = i * 32 + __ffs(left) - 1;
      store(slot++, row.column(holding.line(at / VECTOR), at % VECTOR));
    }
  }
#pragma unroll 1
  for (unsigned left = reaching.part; left; left &= left - 1) store(slot++, row.column(holding.part_line, __ffs(left) - 1));
}
