// A cut that about as many elements as wanted reach: of the maxima of threads' lines one rank is taken in every warp, of
// these one rank in every block, and of those the middle. All elements reach a cut of 0.
#pragma once
#include "lines.cuh"

// What the warps and blocks of a cluster tell each other.
struct Exchange {
  alignas(16) Key maxima[WARPS][32];
  alignas(16) Key guesses[32];  // of the warps
  alignas(16) Key tops[32];     // the largest of the warps
  Key block_guesses[BLOCKS];
  Key block_tops[BLOCKS];
  unsigned ties[WARPS];
  unsigned lines[3];  // that reach a cut, of the block; rounds take turns
  unsigned found[3];  // elements that do, of the cluster; in the first block
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

// How many keys of the warp are larger, of which each lane has one. Numbers say how far each is below the best, since a comparison of
// integers takes three instructions of two cycles, and of floats two of one; of different keys they differ, but far below. The room
// is of the warp, and overwritten.
__device__ __forceinline__ unsigned larger_of_lanes(Key (&room)[32], Key key) {
  unsigned larger = 0;
  if constexpr (sizeof(Key) == 4) {
    const float below = __uint2float_rn(largest_of_lanes(key) - key);
    float* numbers = reinterpret_cast<float*>(room);
    numbers[lane_of()] = below;
    __syncwarp();
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < 32; i++) sums[i % 4] += __saturatef(below - numbers[i]);
    larger = unsigned((sums[0] + sums[1]) + (sums[2] + sums[3]));
  } else {
    room[lane_of()] = key;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 32; i++) larger += room[i] > key;
  }
  __syncwarp();
  return larger;
}

// The key of a rank, from 1, among those of the lanes.
__device__ __forceinline__ Key ranked_of_lanes(Key (&room)[32], Key key, unsigned rank) {
  return least_of_lanes(larger_of_lanes(room, key) < rank ? key : ~Key(0));
}

struct Ranks {
  unsigned in_warp, in_block;
};

// Which ranks are reached by as many elements as wanted, on average and a few deviations more, where the maxima of the first
// `threads` threads are of so many elements each, and the others have none.
__device__ __forceinline__ Ranks ranks_of(unsigned want, unsigned among, float elements, unsigned threads) {
  const float none = log2f(1 - fminf(__fdividef(float(want), float(among)), 0.9999f)) * elements;  // of them among the wanted
  const float some = __fdividef(float(threads), 32.f);
  const float lanes = 32 * (1 - exp2f(none)), warps = some * (1 - exp2f(32 * none));
  const unsigned most = max(1u, unsigned(some * (float(WARPS_RANK) / WARPS) + 0.5f));
  if (lanes >= 1) return {min(32u, unsigned(lanes) + 1), most};
  return {1, min(most, unsigned(warps + 3 * sqrtf(warps * (1 - __fdividef(warps, some)))) + 2)};
}

// The same for all threads of the cluster; has a barrier of the cluster.
__device__ __forceinline__ Guess guess_from(Exchange& exchange, Key maximum, Ranks ranks) {
  const Key ranked = ranked_of_lanes(exchange.maxima[warp_of()], maximum, ranks.in_warp);
  const Key top = largest_of_lanes(maximum);
  if (lane_of() == 0) exchange.guesses[warp_of()] = ranked, exchange.tops[warp_of()] = top;
  if (threadIdx.x >= WARPS && threadIdx.x < 32) exchange.guesses[threadIdx.x] = exchange.tops[threadIdx.x] = 0;
  __syncthreads();
  Guess guess;
  guess.cut = ranked_of_lanes(exchange.maxima[warp_of()], exchange.guesses[lane_of()], ranks.in_block);
  guess.top = largest_of_lanes(exchange.tops[lane_of()]);
#if BLOCKS > 1
  cluster_wait();
  if (threadIdx.x < BLOCKS) {
    *of_block(&exchange.block_guesses[block_of()], threadIdx.x) = guess.cut;
    *of_block(&exchange.block_tops[block_of()], threadIdx.x) = guess.top;
  }
  cluster_sync();
  const Key own = lane_of() < BLOCKS ? exchange.block_guesses[lane_of() % BLOCKS] : Key(0);
  unsigned larger = 0;
#pragma unroll
  for (int i = 0; i < BLOCKS; i++) larger += exchange.block_guesses[i] > own;
  guess.cut = least_of_lanes(lane_of() < BLOCKS && larger <= BLOCKS / 2 ? own : ~Key(0));
  guess.top = largest_of_lanes(exchange.block_tops[lane_of() % BLOCKS]);
#endif
  return guess;
}

// Of how many of a thread's maxima the maximum is taken, so that two of three are none of the wanted.
template <class Maxima> __device__ __forceinline__ int group_of(unsigned want, unsigned cols) {
  int group = Maxima::COUNT;
#pragma unroll
  for (int smaller = Maxima::COUNT / 2; smaller; smaller /= 2)
    if (2 * VECTOR * Maxima::EACH * smaller * (unsigned long long)want > cols) group = smaller;
  return group;
}

template <class Maxima>
__device__ __forceinline__ Guess guess_cut(const Maxima& maxima, Exchange& exchange, unsigned want, const Row& row) {
  const int group = group_of<Maxima>(want, row.cols);
  Key maximum = 0;
#pragma unroll
  for (int i = 0; i < Maxima::COUNT; i++)
    if (i < group) maximum = max(maximum, maxima.key(i));
  const unsigned own = lines_of_block(row), threads = max(min(own, unsigned(THREADS)), 1u);
  const float elements = __fdividef(float(min(own, unsigned(group) * Maxima::EACH * THREADS)), float(threads)) * VECTOR;  // of a maximum
  Guess guess = guess_from(exchange, maximum, ranks_of(want, row.cols, elements, threads));
  guess.cut = row.cols <= CAPACITY && 2 * want > row.cols ? Key(0) : max(guess.cut, Key(1));
  return guess;
}
