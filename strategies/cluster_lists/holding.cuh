// A row in the registers of a cluster, and a cut for each block that about as many of its elements as are among the wanted
// reach, and some more.
//
// Lines are dealt out to the blocks by turns, 128 bytes each, so that what is concentrated somewhere in a row, as the
// best of one in order are, is all blocks' alike.
#pragma once
#include "fitting.cuh"

// The blocks of a cluster that share a row.
struct Together {
  static constexpr int HOLDS = LINES;  // lines of a thread
  static constexpr unsigned COUNT = BLOCKS;
  static __device__ __forceinline__ unsigned own() { return block_of(); }
  static __device__ __forceinline__ void arrive() { cluster_arrive(); }
  static __device__ __forceinline__ void wait() { cluster_wait(); }
  static __device__ __forceinline__ void sync() { cluster_sync(); }
  template <class T> static __device__ __forceinline__ T* of(T* address, unsigned block) { return of_block(address, block); }
};

constexpr unsigned TURN = 8;  // lines that a block is dealt at once
template <class Blocks> constexpr unsigned STRIDE = Blocks::COUNT * THREADS;

// Where in a round of turns a block's is: another each time, so that no stride is one block's.
template <class Blocks> __device__ __forceinline__ unsigned turn_of(unsigned own, unsigned round) {
  return (own + (round * 0x9E3779B1u >> 28)) % Blocks::COUNT;
}

// The first line of a thread.
template <class Blocks> __device__ __forceinline__ unsigned first_line(const Row& row, unsigned own) {
  const unsigned round = threadIdx.x / TURN;
  return row.begin + (round * Blocks::COUNT + turn_of<Blocks>(own, round)) * TURN + threadIdx.x % TURN;
}

// The line that is the row's in part, of two threads of the first block; ~0 of the others.
template <class Blocks> __device__ __forceinline__ unsigned line_in_part(const Row& row) {
  const bool has = threadIdx.x == 0 ? !row.whole(0) : threadIdx.x == 1 && row.end > 0 && row.end < row.all_lines();
  return has && Blocks::own() == 0 ? threadIdx.x * row.end : ~0u;
}

// What a thread holds: lines `first`, `first + STRIDE`, ...
template <class Blocks> struct Holding {

  uint4 bits[Blocks::HOLDS];
  Key best[Blocks::HOLDS];  // 0 where there is no line
  unsigned first, end;
  Key part;            // of a line that is the row's in part, of two threads
  unsigned part_line;  // ~0 where there is none

  __device__ __forceinline__ unsigned line(int number) const { return first + number * STRIDE<Blocks>; }
  __device__ __forceinline__ bool has(int number) const { return line(number) < end; }
};

template <bool SMALLEST, bool HALF, class Blocks> __device__ __forceinline__ void find_best(Holding<Blocks>& holding, Order order) {
#pragma unroll
  for (int i = 0; i < Blocks::HOLDS; i++) {
    const Key best = best_of<SMALLEST, HALF>(holding.bits[i], order);
    holding.best[i] = holding.has(i) ? best : Key(0);
  }
}

template <class Blocks> __device__ __forceinline__ void ask_for_lines(const Row& row, Holding<Blocks>& holding, unsigned own = Blocks::own()) {
  holding.first = first_line<Blocks>(row, own), holding.end = row.end;
#pragma unroll
  for (int i = 0; i < Blocks::HOLDS; i++)
    holding.bits[i] = holding.has(i) ? __ldg(row.lines + holding.line(i)) : make_uint4(0, 0, 0, 0);
}

template <class Blocks> __device__ __forceinline__ void find_best(const Row& row, Holding<Blocks>& holding, bool smallest) {
  if (!FLOAT || ELEMENT_BYTES == 8) find_best<false, false>(holding, row.order);
  else if (ELEMENT_BYTES == 2 && row.order.half())
    smallest ? find_best<true, true>(holding, row.order) : find_best<false, true>(holding, row.order);
  else smallest ? find_best<true, false>(holding, row.order) : find_best<false, false>(holding, row.order);
  holding.part = 0, holding.part_line = line_in_part<Blocks>(row);
  if (holding.part_line != ~0u) {
    unsigned inside;
    const uint4 bits = row.part(holding.part_line, inside);
#pragma unroll
    for (int e = 0; e < VECTOR; e++)
      if (inside >> e & 1) holding.part = max(holding.part, equal_key(element(bits, e), row.order));
  }
}

// Every how many lines of a thread one is looked at for its maximum, so that half of the maxima are none of the wanted.
template <class Blocks> __device__ __forceinline__ unsigned spread_of(unsigned want, unsigned cols) {
  unsigned spread = 1;
#pragma unroll
  for (int group = Blocks::HOLDS / 2; group; group /= 2)
    if (3 * VECTOR * group * (unsigned long long)want > cols) spread = Blocks::HOLDS / group;
  return spread;
}

// What the cut of a block is to be: of the threads' maxima one that as many reach as if the block had its part of the wanted and
// four deviations more.
struct Aim {
  unsigned spread;  // a power of two
  unsigned in_block, in_warp;  // ranks of maxima, from 1
};

template <class Blocks> __device__ __forceinline__ Aim aim_of(unsigned want, const Row& row) {
  const unsigned spread = spread_of<Blocks>(want, row.cols), total = row.end - row.begin;
  constexpr unsigned ROUND = TURN * Blocks::COUNT;  // lines
  const unsigned full = total / STRIDE<Blocks>, rest = total % STRIDE<Blocks>;
  const unsigned last = rest / ROUND * TURN +  // of the block
                        min(max(int(rest % ROUND - turn_of<Blocks>(Blocks::own(), rest / ROUND) * TURN), 0), TURN);
  const unsigned looked_at = ((full + spread - 1) >> (31 - __clz(spread))) * THREADS + (full & (spread - 1) ? 0 : last);
  const unsigned threads = full ? THREADS : last;  // that have lines
  const float elements = float(looked_at * VECTOR), wanted = __fdividef(float(want), float(row.cols)) * elements;
  const float target = wanted + 4 * sqrtf(wanted) + 4, reached = fminf(__fdividef(target, fmaxf(elements, 1)), 0.9999f);
  const float each = __fdividef(elements, float(max(threads, 1u)));
  const float hits = float(threads) * (1 - exp2f(log2f(1 - reached) * each));
  return {spread, min(unsigned(hits) + 1, max(threads, 1u)),
          min(unsigned(__fdividef(hits * 32, float(max(threads, 32u)))) + 1, 32u)};
}

// The cut of this block. The maxima of every warp's threads tell one candidate, and all of the block's how many reach it. Has two
// barriers.
template <class Blocks>
__device__ __forceinline__ Guess own_cut(const Holding<Blocks>& holding, Exchange& exchange, unsigned* ranks, Aim aim) {
  Key maximum = 0;
#pragma unroll
  for (int i = 0; i < Blocks::HOLDS; i++)
    if ((i & (aim.spread - 1)) == 0) maximum = max(maximum, holding.best[i]);
  exchange.maxima[warp_of()][lane_of()] = maximum;
  __syncwarp();
  const Key candidate = ranked_of_lanes(exchange.maxima[warp_of()], maximum, aim.in_warp);
  const Key top = largest_of_lanes(maximum);
  if (lane_of() == 0) exchange.guesses[warp_of()] = candidate, exchange.tops[warp_of()] = top;
  __syncthreads();
  unsigned reaching = 0;
#pragma unroll
  for (int i = 0; i < WARPS; i++) reaching += exchange.maxima[i][lane_of()] >= candidate;
  reaching = __reduce_add_sync(~0u, reaching);
  if (lane_of() == 0) ranks[warp_of()] = reaching;
  __syncthreads();
  const int warp = lane_of() % WARPS;
  Guess guess;
  guess.cut = largest_of_lanes(ranks[warp] >= aim.in_block ? exchange.guesses[warp] : Key(0));
  guess.top = largest_of_lanes(exchange.tops[warp]);
  return guess;
}

// The lines of a thread, to be read again: to hold them any longer would cost registers where nobody does.
template <class Blocks> __device__ __forceinline__ Again lines_again(const Row& row) {
  return {first_line<Blocks>(row, Blocks::own()), STRIDE<Blocks>, row.end, line_in_part<Blocks>(row)};
}
