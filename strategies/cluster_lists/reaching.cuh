// Which of the elements that a thread holds reach a cut. Floats are compared as they are: a key takes five instructions of two cycles.
#pragma once
#include "holding.cuh"

// Elements that are at most the limit do not reach the cut, or for the smallest, they alone do.
struct Limit {
  Key bits;
  bool below;  // the cut

  // All ones where those that are at most it do not reach the cut.
  __device__ __forceinline__ unsigned turned() const { return 0u - below; }

  __device__ __forceinline__ Limit(Key cut, Order order) {
#if FLOAT && ELEMENT_BYTES <= 4
    below = order.turn == 0 || cut == 0;  // 0: a NaN, which nothing is at most
    const Key finite = max(cut, Key(ONES ^ (SIGN | infinity_of(order))));
    bits = below ? bound_bits(cut, order) : element_of(finite, order);
    if (ELEMENT_BYTES == 2) bits *= 0x10001;
#else
    below = true, bits = cut;
#endif
  }
};

// Which elements of a line are at most a limit, a bit each: sums of floats, since comparisons that make numbers take fewer cycles.
template <bool HALF> __device__ __forceinline__ unsigned at_most(uint4 line, Limit limit, Order order) {
  unsigned those = 0;
#if FLOAT && ELEMENT_BYTES == 4
  float sum = 1 << 23;  // whose last bits are integers
#pragma unroll
  for (int e = 0; e < VECTOR; e++) sum = fmaf(__uint_as_float(element(line, e)) <= __uint_as_float(limit.bits) ? 1.f : 0.f, float(1 << e), sum);
  those = __float_as_uint(sum);
#elif FLOAT && ELEMENT_BYTES == 2
  const unsigned words[4] = {line.x, line.y, line.z, line.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    unsigned mask;  // all ones in the halves that are
    if (HALF) asm("set.le.u32.f16x2 %0, %1, %2;" : "=r"(mask) : "r"(words[i]), "r"(limit.bits));
    else asm("set.le.u32.bf16x2 %0, %1, %2;" : "=r"(mask) : "r"(words[i]), "r"(limit.bits));
    those |= mask & (1u << 2 * i | 0x20000u << 2 * i);
  }
  those |= those >> 16;
#else
#pragma unroll
  for (int e = 0; e < VECTOR; e++) those |= unsigned(equal_key(element(line, e), order) < limit.bits) << e;
#endif
  return those;
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

constexpr int CUTS = 3;  // that are looked at together

template <class Blocks> struct Around {
  Reaching<Blocks> of[CUTS];  // those that reach each cut
};

template <bool HALF, class Blocks>
__device__ __forceinline__ Around<Blocks> elements_around(const Row& row, const Holding<Blocks>& holding, const Key (&cuts)[CUTS]) {
  constexpr int AT_A_TIME = HELD_LINES<Blocks> ? Blocks::HOLDS : 4;  // that are asked for, where they are read again
  Around<Blocks> around = {};
  const Limit limits[CUTS] = {{cuts[0], row.order}, {cuts[1], row.order}, {cuts[2], row.order}};
  const Key least = min(min(cuts[0], cuts[1]), cuts[2]);
#pragma unroll
  for (int first = 0; first < Blocks::HOLDS; first += AT_A_TIME) {
    uint4 lines[AT_A_TIME];
#pragma unroll
    for (int i = 0; i < AT_A_TIME; i++) lines[i] = holding.again(row, first + i, least);
#pragma unroll
    for (int i = 0; i < AT_A_TIME; i++) {
      const int number = first + i, bit = number * VECTOR;
      if (!holding.reaches(number, least)) continue;
#pragma unroll
      for (int c = 0; c < CUTS; c++)
        around.of[c].words[bit / 32] |= ((at_most<HALF>(lines[i], limits[c], row.order) ^ limits[c].turned()) & EVERY) << bit % 32;
    }
  }
  if (holding.part_line != ~0u && holding.part >= least) {
    unsigned inside;
    const uint4 bits = row.part(holding.part_line, inside);
#pragma unroll
    for (int c = 0; c < CUTS; c++) around.of[c].part = elements_reaching(bits, inside, cuts[c], row.order);
  }
  return around;
}

template <class Blocks>
__device__ __forceinline__ Around<Blocks> elements_around(const Row& row, const Holding<Blocks>& holding, const Key (&cuts)[CUTS]) {
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
