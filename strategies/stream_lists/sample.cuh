// The cut that the sample tells: the maxima of threads are ranked in every warp, and the cut is the mean of what the warps have at a rank;
// where that may mislead, or the rank is too small, the highest of these that enough maxima of the block reach.
#pragma once
#include "sharing.cuh"

template <bool SMALLEST, bool HALF> __device__ __forceinline__ Key best_of_lines(const uint4 (&bits)[LOADS], Order order) {
  const auto better = better_bits<SMALLEST, HALF>;
  unsigned best = 0;
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    const unsigned its = better(better(bits[i].x, bits[i].y), better(bits[i].z, bits[i].w));
    best = i ? better(best, its) : its;
  }
  if (ELEMENT_BYTES == 2) best = better(best, best >> 16) & 0xFFFF;
  return equal_key(Element(best), order);
}

__device__ __forceinline__ Key best_of_lines(const uint4 (&bits)[LOADS], Order order, bool smallest) {
  if (ELEMENT_BYTES == 2 && order.half()) return smallest ? best_of_lines<true, true>(bits, order) : best_of_lines<false, true>(bits, order);
  return smallest ? best_of_lines<true, false>(bits, order) : best_of_lines<false, false>(bits, order);
}

// Which of the threads' maxima is the cut: so many elements of the sample reach it as are of the wanted, on average, and some deviations
// more, so that one row in many has too few.
struct Ranked {
  unsigned in_block, in_warp;  // ranks, from 1; of warps some round up, or where they are small, all differ
  bool mean;                   // whether ranks are so large that means tell
};

// That so many maxima reach; by a mean, or by counts alone, which tell what means over two crowds do not.
__device__ __forceinline__ Ranked ranked_of(float maxima, bool means) {
  const float lanes = maxima * (33.f / THREADS), part = (float(warp_of()) + 0.5f) / WARPS;  // the best of 32 is one of 33, on average
  const bool mean = means && lanes >= 2;
  const unsigned in_warp = unsigned(mean ? lanes + part : lanes * (0.5f + part) + 0.5f);
  return {min(unsigned(maxima) + 1, unsigned(THREADS)), min(max(in_warp, 1u), 32u), mean};
}

// How many maxima that is, on average.
__device__ __forceinline__ float maxima_of(unsigned want, unsigned cols) {
  constexpr float EACH = LOADS * VECTOR, ELEMENTS = EACH * THREADS;
  const float wanted = __fdividef(float(want), float(cols)) * ELEMENTS;
  const float reached = fminf((wanted + 5.5f * wanted * rsqrtf(wanted) + 4) / ELEMENTS, 0.9999f);
  return THREADS * (1 - exp2f(log2f(1 - reached) * EACH));
}

// The key of a rank, from 1, among those of the lanes. The first are found one after the other.
__device__ __forceinline__ Key key_of_rank(Key (&room)[32], Key key, unsigned rank) {
  if (rank > 4) return ranked_of_lanes(room, key, rank);
  Key best = largest_of_lanes(key);
#pragma unroll 1
  for (unsigned found = __popc(__ballot_sync(~0u, key == best)); found < rank; found += __popc(__ballot_sync(~0u, key == best)))
    best = largest_of_lanes(key < best ? key : Key(0));
  return best;
}

// The cut, the same for all threads. Has a barrier, or two.
__device__ __forceinline__ Key cut_of_sample(Exchange& exchange, unsigned* reaching, Key maximum, Ranked ranked) {
  const Key candidate = key_of_rank(exchange.maxima[warp_of()], maximum, ranked.in_warp);
  float(&rounded)[WARPS][32] = reinterpret_cast<float(&)[WARPS][32]>(exchange.maxima);
  rounded[warp_of()][lane_of()] = __uint2float_rn(maximum);
  if (lane_of() == 0) exchange.guesses[warp_of()] = candidate;
  __syncthreads();
  if (ranked.mean)
    if (const Key mean = mean_of_candidates<false>(exchange)) return mean;
  const float limit = __uint2float_rn(candidate);
  float below[4] = {};  // how many maxima, rounded, which are integers: see `larger_of_lanes`
#pragma unroll
  for (int i = 0; i < WARPS; i++) below[i % 4] += __saturatef(limit - rounded[i][lane_of()]);
  const unsigned its = THREADS - __reduce_add_sync(~0u, unsigned((below[0] + below[1]) + (below[2] + below[3])));
  if (lane_of() == 0) reaching[warp_of()] = its;
  __syncthreads();
  const int warp = lane_of() % WARPS;
  return max(largest_of_lanes(reaching[warp] >= ranked.in_block ? exchange.guesses[warp] : Key(0)), Key(1));
}
