// A cut that about as many elements as wanted reach: of the maxima of threads' elements one rank is taken in every warp, of
// these one rank in every block, and of those the middle.
#pragma once
#include "held.cuh"
#include "order.cuh"

// What the blocks of a cluster tell each other; rounds take turns with two of each.
struct Exchange {
  alignas(16) Key maxima[WARPS][32];
  alignas(16) Key guesses[2][32];  // of the warps
  alignas(16) Key tops[2][32];     // the largest of the warps
  Key block_guesses[2][BLOCKS];
  Key block_tops[2][BLOCKS];
  unsigned totals[2][WARPS];       // counts of the warps
  unsigned ties[WARPS * BLOCKS];   // by the order of the warps' stretches
  unsigned block_totals[2][BLOCKS];
};

// What is known of the cut: `above` elements have larger keys than `top`, fewer than wanted, and `within` more reach `bottom`,
// enough of them.
struct Range {
  Key bottom, top;
  unsigned above, within;
};

struct Guess {
  Key cut;
  Key top;  // the largest key seen
};

constexpr int log_of(int number) { return number > 1 ? 1 + log_of(number / 2) : 0; }
constexpr int of_32(int log) {  // the quantile that is three deviations of it lower than the middle, for 2^log warps
  constexpr int QUANTILES[] = {32, 32, 32, 32, 28, 24, 22, 20, 19, 18};
  return QUANTILES[log];
}
constexpr int WARPS_RANK = (WARPS * of_32(log_of(WARPS * BLOCKS)) + 31) / 32;  // from 1

__device__ __forceinline__ unsigned least_of_lanes(unsigned word) { return __reduce_min_sync(~0u, word); }
__device__ __forceinline__ unsigned long long least_of_lanes(unsigned long long word) { return ~largest_of_lanes(~word); }

// The key of a rank, from 1, among 32 of which each lane has one; they are at `keys`, too.
__device__ __forceinline__ Key ranked_of_lanes(const Key* keys, Key key, unsigned rank) {
  unsigned larger = 0;
#pragma unroll
  for (int i = 0; i < 32; i++) larger += keys[i] > key;
  return least_of_lanes(larger < rank ? key : ~Key(0));
}

struct Ranks {
  unsigned in_warp, in_block;
};

// Which ranks are reached by as many elements as wanted, on average and a few deviations more, where each thread's maximum is
// one of so many elements.
__device__ __forceinline__ Ranks ranks_of(unsigned want, unsigned among, float elements) {
  const float none = log2f(1 - fminf(__fdividef(float(want), float(among)), 0.9999f)) * elements;  // of them among the wanted
  const float lanes = 32 * (1 - exp2f(none)), warps = WARPS * (1 - exp2f(32 * none));
  if (lanes >= 1) return {min(32u, unsigned(lanes) + 1), WARPS_RANK};
  return {1, min(unsigned(WARPS_RANK), unsigned(warps + 3 * sqrtf(warps * (1 - warps / WARPS))) + 2)};
}

// The same for all threads of the cluster; has a barrier of the cluster.
__device__ __forceinline__ Guess guess_from(Exchange& exchange, Key maximum, Ranks ranks, unsigned turn) {
  // Every warp ranks maxima of all warps, so that it does not matter where in the row large ones are.
  exchange.maxima[(lane_of() * WARPS + warp_of()) / 32][(lane_of() * WARPS + warp_of()) % 32] = maximum;
  __syncthreads();
  const Key ranked = ranked_of_lanes(exchange.maxima[warp_of()], exchange.maxima[warp_of()][lane_of()], ranks.in_warp);
  const Key top = largest_of_lanes(maximum);
  if (lane_of() == 0) exchange.guesses[turn][warp_of()] = ranked, exchange.tops[turn][warp_of()] = top;
  if (threadIdx.x >= WARPS && threadIdx.x < 32) exchange.guesses[turn][threadIdx.x] = exchange.tops[turn][threadIdx.x] = 0;
  __syncthreads();
  Guess guess;
  guess.cut = ranked_of_lanes(exchange.guesses[turn], exchange.guesses[turn][lane_of()], ranks.in_block);
  guess.top = largest_of_lanes(exchange.tops[turn][lane_of()]);
#if BLOCKS > 1
  cluster_wait();
  if (threadIdx.x < BLOCKS) {
    *of_block(&exchange.block_guesses[turn][block_of()], threadIdx.x) = guess.cut;
    *of_block(&exchange.block_tops[turn][block_of()], threadIdx.x) = guess.top;
  }
  cluster_sync();
  const Key own = lane_of() < BLOCKS ? exchange.block_guesses[turn][lane_of() % BLOCKS] : Key(0);
  unsigned larger = 0;
#pragma unroll
  for (int i = 0; i < BLOCKS; i++) larger += exchange.block_guesses[turn][i] > own;
  guess.cut = least_of_lanes(lane_of() < BLOCKS && larger <= BLOCKS / 2 ? own : ~Key(0));
  guess.top = largest_of_lanes(exchange.block_tops[turn][lane_of() % BLOCKS]);
  cluster_arrive();
#endif
  return guess;
}

// Of how many of a lane's first elements the maximum is taken, so that two of three maxima are none of the wanted.
__device__ __forceinline__ int group_of(unsigned want, unsigned cols) {
  int group = VECTOR;
#pragma unroll
  for (int smaller = VECTOR / 2; smaller; smaller /= 2)
    if (2 * smaller * (unsigned long long)want > cols) group = smaller;
  return group;
}

// From the first lines, while others are on their way.
__device__ __forceinline__ Guess first_guess(const HeldRow& row, Exchange& exchange, int group, Ranks ranks) {
  Key maximum = 0;
  if (row.lines) {
    const uint4 bits = row.held[0];
#pragma unroll
    for (int e = 0; e < VECTOR; e++)
      if (e < group && row.own >> e & 1) maximum = max(maximum, key_of(element(bits, e), row.order));
  }
  Guess guess = guess_from(exchange, maximum, ranks, 0);
  guess.cut = max(guess.cut, Key(1));
  return guess;
}

// From all elements of the range; more than its bottom.
__device__ __forceinline__ Key next_guess(const HeldRow& row, Exchange& exchange, Range range, unsigned want, unsigned turn) {
  Key maximum = 0;
#pragma unroll 1
  for (unsigned line = 0; line < row.lines; line++) {
    const uint4 bits = row.held[line * 32];
#pragma unroll
    for (int e = 0; e < VECTOR; e++) {
      const Key key = key_of(element(bits, e), row.order);
      if (row.own >> (line * VECTOR + e) & 1 && key <= range.top) maximum = max(maximum, key);
    }
  }
  const Ranks ranks = ranks_of(want - range.above, range.within, float(range.within) / (THREADS * BLOCKS));
  return min(max(guess_from(exchange, maximum, ranks, turn).cut, range.bottom + 1), range.top);
}

struct Sums {
  unsigned before;  // in blocks, warps and lanes before this one
  unsigned inside;  // the same in this block
  unsigned own;     // of the block
  unsigned all;
};

// Over all threads of the cluster. Has a barrier of the cluster.
__device__ __forceinline__ Sums sum_up(Exchange& exchange, unsigned count, unsigned turn) {
  unsigned all;
  const unsigned upto = scan_lanes(count, all);
  if (lane_of() == 0) exchange.totals[turn][warp_of()] = all;
  __syncthreads();
  const unsigned total = lane_of() < WARPS ? exchange.totals[turn][lane_of() % WARPS] : 0;
  const unsigned before = scan_lanes(total, all) - total;
  const unsigned inside = __shfl_sync(~0u, before, warp_of()) + upto - count;
#if BLOCKS > 1
  cluster_wait();
  if (threadIdx.x < BLOCKS) *of_block(&exchange.block_totals[turn][block_of()], threadIdx.x) = all;
  cluster_sync();
  const unsigned own = all, block = lane_of() < BLOCKS ? exchange.block_totals[turn][lane_of() % BLOCKS] : 0;
  const unsigned blocks = scan_lanes(block, all) - block;
  cluster_arrive();
  return {__shfl_sync(~0u, blocks, block_of()) + inside, inside, own, all};
#else
  return {inside, inside, all, all};
#endif
}
