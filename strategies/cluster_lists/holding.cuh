// A row in the registers of a cluster, and a cut for each block that about as many of its elements as are among the wanted
// reach, and some more.
//
// Lines are dealt out to the blocks by turns, 32 at a time, so that what is concentrated somewhere in a row is all blocks' alike.
#pragma once
#include "signals.cuh"

// The blocks of a cluster that share a row.
struct Together {
  static constexpr int HOLDS = LINES;  // lines of a thread
  static constexpr unsigned COUNT = BLOCKS;
  static __device__ __forceinline__ unsigned own() { return block_of(); }
  static __device__ __forceinline__ void arrive() { cluster_arrive(); }
  static __device__ __forceinline__ void wait() { cluster_wait(); }
  static __device__ __forceinline__ void leave() { cluster_leave(); }
  static __device__ __forceinline__ void sync() { cluster_sync(); }
  template <class T> static __device__ __forceinline__ T* of(T* address, unsigned block) { return of_block(address, block); }
};

// Whether a thread keeps its lines to the end: of more, registers would be spilled for that, and they are read again.
template <class Blocks> constexpr bool HELD_LINES = Blocks::HOLDS <= 8;

// What a thread holds: lines `first`, `first + STRIDE`, ...
template <class Blocks> struct Holding {
  static constexpr unsigned STRIDE = Blocks::COUNT * THREADS;

  uint4 bits[Blocks::HOLDS];
  Key best[Blocks::HOLDS];  // 0 where there is no line
  unsigned first, end;
  Key part;            // of a line that is the row's in part, of two threads
  unsigned part_line;  // ~0 where there is none

  __device__ __forceinline__ unsigned line(int number) const { return first + number * STRIDE; }
  __device__ __forceinline__ bool has(int number) const { return line(number) < end; }

  // Whether any element of a line reaches a cut; the best of what is no line is 0.
  __device__ __forceinline__ bool reaches(int number, Key cut) const { return best[number] >= cut && (cut || has(number)); }

  // A line that reaches a cut.
  __device__ __forceinline__ uint4 again(const Row& row, int number, Key cut) const {
    return HELD_LINES<Blocks> ? bits[number] : line_past(row.lines + line(number), reaches(number, cut));
  }
};

template <bool SMALLEST, bool HALF, class Blocks> __device__ __forceinline__ void find_best(Holding<Blocks>& holding, Order order) {
#pragma unroll
  for (int i = 0; i < Blocks::HOLDS; i++) {
    const Key best = best_of<SMALLEST, HALF>(holding.bits[i], order);
    holding.best[i] = holding.has(i) ? best : Key(0);
  }
}

template <class Blocks> __device__ __forceinline__ void ask_for_lines(const Row& row, Holding<Blocks>& holding, unsigned own = Blocks::own()) {
  holding.first = row.begin + (warp_of() * Blocks::COUNT + own) * 32 + lane_of(), holding.end = row.end;
#pragma unroll
  for (int i = 0; i < Blocks::HOLDS; i++) holding.bits[i] = row.line_or_last(holding.line(i));
}

template <class Blocks> __device__ __forceinline__ void find_best(const Row& row, Holding<Blocks>& holding, bool smallest) {
  if (!FLOAT || ELEMENT_BYTES == 8) find_best<false, false>(holding, row.order);
  else if (ELEMENT_BYTES == 2 && row.order.half())
    smallest ? find_best<true, true>(holding, row.order) : find_best<false, true>(holding, row.order);
  else smallest ? find_best<true, false>(holding, row.order) : find_best<false, false>(holding, row.order);
  holding.part = 0, holding.part_line = ~0u;
  const bool has = threadIdx.x == 0 ? !row.whole(0) : threadIdx.x == 1 && row.end > 0 && row.end < row.all_lines();
  if (has && Blocks::own() == 0) {
    holding.part_line = threadIdx.x ? row.end : 0;
    unsigned inside;
    const uint4 bits = row.part(holding.part_line, inside);
#pragma unroll
    for (int e = 0; e < VECTOR; e++)
      if (inside >> e & 1) holding.part = max(holding.part, equal_key(element(bits, e), row.order));
  }
}

// Every how many lines of a thread one is looked at for its maximum, so that half of the maxima are none of the wanted.
template <class Blocks> __device__ __forceinline__ int spread_of(unsigned want, unsigned cols) {
  int spread = 1;
#pragma unroll
  for (int group = Blocks::HOLDS / 2; group; group /= 2)
    if (3 * VECTOR * group * (unsigned long long)want > cols) spread = Blocks::HOLDS / group;
  return spread;
}

// What the cut of a block is to be: of the threads' maxima one that as many reach as if the block had its part of the wanted and
// four deviations more.
struct Aim {
  int spread;
  unsigned in_block, in_warp;  // ranks of maxima, from 1
  float elements, wanted;      // of the lines that are looked at; the wanted among them, on average
  float each, threads;         // elements of a maximum; maxima

  // How many maxima so many of the elements reach, on average.
  __device__ __forceinline__ float maxima_of(float target) const {
    const float reached = fminf(__fdividef(target, fmaxf(elements, 1)), 0.9999f);
    return threads * (1 - exp2f(log2f(1 - reached) * each));
  }
};

template <class Blocks> __device__ __forceinline__ Aim aim_of(unsigned want, const Row& row) {
  const int spread = spread_of<Blocks>(want, row.cols), total = row.end - row.begin;
  unsigned looked_at = 0, threads = 0;  // lines of the block, and threads that have any
#pragma unroll
  for (int i = 0; i < Blocks::HOLDS; i++) {
    const unsigned left = max(total - int(Blocks::own() * 32 + i * Holding<Blocks>::STRIDE), 0), turns = left / (32 * Blocks::COUNT);
    const unsigned lines = min(32 * turns + min(left % (32 * Blocks::COUNT), 32u), unsigned(THREADS));
    if ((i & (spread - 1)) == 0) looked_at += lines;
    if (i == 0) threads = lines;
  }
  const float elements = float(looked_at * VECTOR), wanted = __fdividef(float(want), float(row.cols)) * elements;
  Aim aim = {spread, 0, 0, elements, wanted, __fdividef(elements, float(max(threads, 1u))), float(threads)};
  const float hits = aim.maxima_of(wanted + 4 * sqrtf(wanted) + 4);
  aim.in_block = min(unsigned(hits) + 1, max(threads, 1u));
  aim.in_warp = min(unsigned(__fdividef(hits * 32, float(max(threads, 32u)))) + 1, 32u);
  return aim;
}

// Keys of 16 bits with a number of the thread below them, so that no two maxima are equal.
constexpr int BELOW_KEY = ELEMENT_BYTES < 4 ? 16 : 0;

// The cut of this block. The maxima of every warp's threads tell one candidate, and all of the block's how many reach it. Where they
// are to be ordered, the maxima of every warp are put in order, with what is below keys. Has two barriers.
template <bool ORDERED, class Blocks>
__device__ __forceinline__ Guess own_cut(const Holding<Blocks>& holding, Exchange& exchange, unsigned* ranks, Aim aim, Order order,
                                         Key (*ordered)[32]) {
  constexpr int BELOW = ORDERED ? BELOW_KEY : 0;
  Key maximum = 0, largest = 0;
#pragma unroll
  for (int i = 0; i < Blocks::HOLDS; i++) {
    if ((i & (aim.spread - 1)) == 0) maximum = max(maximum, holding.best[i]);
    largest = max(largest, holding.best[i]);
  }
  const bool finite = !FLOAT || largest < (SIGN | infinity_of(order));  // keys beyond are far from all others
  const Key top = largest_of_lanes(finite ? largest : Key(0));
  if (BELOW) maximum = maximum << BELOW | (threadIdx.x * 40503 & 0xFFFF);
  if (ORDERED) ordered[warp_of()][lane_of()] = maximum;  // of equal ones, places but the first keep what they have
  const unsigned larger = larger_of_lanes(exchange.maxima[warp_of()], maximum);
  exchange.maxima[warp_of()][lane_of()] = maximum;
  if (ORDERED) atomicExch(&ordered[warp_of()][larger], maximum);
  const Key candidate = least_of_lanes(larger < aim.in_warp ? maximum : ~Key(0));
  if (lane_of() == 0) exchange.guesses[warp_of()] = candidate, exchange.tops[warp_of()] = top;
  __syncthreads();
  unsigned reaching = 0;
#pragma unroll
  for (int i = 0; i < WARPS; i++) reaching += exchange.maxima[i][lane_of()] >= candidate;
  reaching = __reduce_add_sync(~0u, reaching);
  if (lane_of() == 0) ranks[warp_of()] = reaching;
  __syncthreads();
  const int warp = lane_of() % WARPS;
  const Key cut = largest_of_lanes(ranks[warp] >= aim.in_block ? exchange.guesses[warp] : Key(0));
  return {max(Key(cut >> BELOW), Key(1)), largest_of_lanes(exchange.tops[warp])};
}
