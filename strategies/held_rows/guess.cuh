// A cut that about as many elements as wanted reach: the maxima of threads' elements are put in order within every warp, the
// entry of one rank is taken of each, and the cut is a quantile of these.
#pragma once
#include "held.cuh"

// What the blocks of a cluster tell each other; rounds take turns with two of each.
struct Exchange {
  Key guesses[2][WARPS];          // of the warps
  Key block_guesses[2][BLOCKS];
  unsigned totals[2][WARPS];      // counts of the warps
  unsigned block_totals[2][BLOCKS];
};

// What is known of the cut: `above` elements have larger keys than `top`, fewer than wanted, and `within` more reach `bottom`,
// enough of them.
struct Range {
  Key bottom, top;
  unsigned above, within;
};

constexpr int log_of(int number) { return number > 1 ? 1 + log_of(number / 2) : 0; }
constexpr int of_32(int log) {  // the quantile that is three deviations of it lower than the middle, for 2^log warps
  constexpr int QUANTILES[] = {32, 32, 32, 32, 28, 24, 22, 20, 19, 18};
  return QUANTILES[log];
}
constexpr int WARPS_RANK = (WARPS * of_32(log_of(WARPS * BLOCKS)) + 31) / 32;  // from 1

// Lanes in order, the largest key first.
__device__ __forceinline__ Key sorted_lanes(Key key) {
#pragma unroll
  for (int size = 2; size <= 32; size *= 2) {
#pragma unroll
    for (int distance = size / 2; distance; distance /= 2) {
      const Key other = __shfl_xor_sync(~0u, key, distance);
      const bool larger = !(lane_of() & distance) == !(lane_of() & size);
      key = larger ? max(key, other) : min(key, other);
    }
  }
  return key;
}

// Of how many elements of a thread the maximum is taken, so that less than two of three threads have one of the wanted.
__device__ __forceinline__ int group_of(unsigned want, unsigned cols) {
  int group = ELEMENTS;
  while (group > 1 && (unsigned long long)group * want > cols) group /= 2;
  return group;
}

// The rank, from 1, of the maximum in a warp that as many elements reach as wanted, on average.
__device__ __forceinline__ int rank_of(unsigned want, unsigned among, float elements) {
  const float part = fminf(float(want) / float(among), 0.9999f);
  return min(32, int(32 * (1 - exp2f(elements * log2f(1 - part)))) + 1);
}

// The same for all threads of the cluster, within the range, and not its bottom. Has a barrier of the cluster.
__device__ __forceinline__ Key guess_cut(const HeldRow& row, Exchange& exchange, Range range, unsigned want, unsigned turn) {
  const int group = range.above || range.bottom ? ELEMENTS : group_of(want, row.cols);
  Key maximum = 0;
#pragma unroll
  for (int e = 0; e < VECTOR; e++) {
    if (e * LOADS >= group) break;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const Key key = row.key(i, e);
      if (i < group && key <= range.top) maximum = max(maximum, key);
    }
  }
  maximum = sorted_lanes(maximum);
  const unsigned covered = min(row.filled, unsigned(min(group, LOADS)) * THREADS);
  const float elements = range.above || range.bottom ? float(range.within) / (THREADS * BLOCKS)
                                                     : float(covered) / THREADS * max(1, group / LOADS);
  if (lane_of() == rank_of(want - range.above, range.within, elements) - 1) exchange.guesses[turn][warp_of()] = maximum;
  __syncthreads();
  Key guess = sorted_lanes(lane_of() < WARPS ? exchange.guesses[turn][lane_of() % WARPS] : Key(0));
  guess = __shfl_sync(~0u, guess, WARPS_RANK - 1);
#if BLOCKS > 1
  cluster_wait();
  if (threadIdx.x < BLOCKS) *of_block(&exchange.block_guesses[turn][block_of()], threadIdx.x) = guess;
  cluster_sync();
  guess = sorted_lanes(lane_of() < BLOCKS ? exchange.block_guesses[turn][lane_of() % BLOCKS] : Key(0));
  guess = __shfl_sync(~0u, guess, BLOCKS / 2);
  cluster_arrive();
#endif
  return min(max(guess, range.bottom + 1), range.top);
}

struct Sums {
  unsigned before;  // in blocks, warps and lanes before this one
  unsigned all;
};

// Over all threads of the cluster. Has a barrier of the cluster.
__device__ __forceinline__ Sums sum_up(Exchange& exchange, unsigned count, unsigned turn) {
  unsigned all;
  const unsigned upto = scan_lanes(count, all);
  if (lane_of() == 0) exchange.totals[turn][warp_of()] = all;
  __syncthreads();
  const unsigned total = lane_of() < WARPS ? exchange.totals[turn][lane_of() % WARPS] : 0;
  unsigned before = scan_lanes(total, all) - total;
  before = __shfl_sync(~0u, before, warp_of()) + upto - count;
#if BLOCKS > 1
  cluster_wait();
  if (threadIdx.x < BLOCKS) *of_block(&exchange.block_totals[turn][block_of()], threadIdx.x) = all;
  cluster_sync();
  const unsigned block = lane_of() < BLOCKS ? exchange.block_totals[turn][lane_of() % BLOCKS] : 0;
  const unsigned blocks = scan_lanes(block, all) - block;
  before += __shfl_sync(~0u, blocks, block_of());
  cluster_arrive();
#endif
  return {before, all};
}
