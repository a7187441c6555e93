// A floor that some more of what warps told is above than are wanted.
#pragma once
#include "listed.cuh"

constexpr unsigned RANKING = WARPS < 8 ? WARPS : 8;  // warps that rank their keys, two for each scheduler

// How to guess it: the rank of a key in each of 2^log warps, from 1.
struct Ranking {
  unsigned rank, log;
};

// A number that is worked out here, not where it is needed.
__device__ __forceinline__ unsigned kept_number(unsigned number) {
  asm volatile("" : "+r"(number));
  return number;
}

// By the number of threads that have any of the wanted, and three deviations more: of what is above the mean of so many warps' keys of rank r
// there is, on average, (r - 0.45) / 32 of all, and a part of 1 / sqrt(r - 0.5) / sqrt(warps) more or less.
__device__ __forceinline__ Ranking ranking_of(unsigned want, unsigned count) {
  const unsigned threads = min(count, unsigned(THREADS)), log = min(top_bit_of(RANKING), top_bit_of(max(threads / 32, 1u)));
  const float none = __fdividef(float(count - min(want, count)), float(count)), each = __fdividef(float(count), float(threads));
  const float lanes = 32 * (1 - exp2f(log2f(none) * each)) + 0.6f;
  return {kept_number(min(32u, unsigned(lanes + 3 * sqrtf(__fdividef(lanes, float(1u << log)))))), log};
}

// Has a barrier.
__device__ __forceinline__ unsigned guess_floor(Exchange& exchange, unsigned largest, Ranking ranking) {
  if (warp_of() < RANKING) {
    const unsigned ranked = ranked_of_lanes(exchange.maxima[warp_of()], largest, ranking.rank);
    if (lane_of() == 0) exchange.guesses[warp_of()] = warp_of() >> ranking.log ? 0 : ranked;
  }
  __syncthreads();
  unsigned long long sum = 0;
#pragma unroll
  for (unsigned i = 0; i < RANKING; i++) sum += exchange.guesses[i];
  return max(unsigned(sum >> ranking.log), 1u) - 1;
}
