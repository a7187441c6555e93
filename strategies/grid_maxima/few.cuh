// Few entries in order: each is compared with all others, as numbers.
#pragma once
#include "listed.cuh"

// Call `put(rank, key, told)` for the best `want` of the list's `count` entries, at most RANKED, whose keys are less than 2^24 above
// the floor. All intervals must be 0. Behind a barrier, and has one.
template <class Put>
__device__ __forceinline__ void rank_few(const List& list, const Numbers& numbers, unsigned count, unsigned want, Put put) {
  constexpr unsigned SHARE = THREADS / RANKED;  // threads of an entry
  constexpr unsigned AT_ONCE = RANKED / 4 / SHARE < 4 ? RANKED / 4 / SHARE : 4;
  const unsigned at = threadIdx.x / SHARE, lane = threadIdx.x % SHARE;
  const bool warp_has = threadIdx.x / 32 * 32 / SHARE < count, has = at < count;
  const float above = numbers.above[at];
  const float4* fours = reinterpret_cast<const float4*>(numbers.above);
  const uint4* their_told = reinterpret_cast<const uint4*>(list.columns);
  const auto sum_of_lanes = [](auto sum) {
#pragma unroll
    for (unsigned distance = SHARE / 2; distance; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
  };
  unsigned rank = 0;
  if (warp_has) {
    float sums[4] = {};
#pragma unroll 1
    for (unsigned first = lane; 4 * first < count; first += AT_ONCE * SHARE) {
      float4 its[AT_ONCE];
#pragma unroll
      for (unsigned i = 0; i < AT_ONCE; i++) its[i] = fours[first + i * SHARE];
#pragma unroll
      for (unsigned i = 0; i < AT_ONCE; i++) {
        sums[0] += __saturatef(its[i].x - above), sums[1] += __saturatef(its[i].y - above);
        sums[2] += __saturatef(its[i].z - above), sums[3] += __saturatef(its[i].w - above);
      }
    }
    rank = unsigned(sum_of_lanes((sums[0] + sums[1]) + (sums[2] + sums[3])));
    if (has && lane == 0) atomicAdd(&list.intervals[rank], 1u);
  }
  __syncthreads();
  if (!warp_has) return;
  const unsigned key = list.keys[min(at, count - 1)], told = list.columns[min(at, count - 1)];
  if (__any_sync(~0u, has && list.intervals[rank] > 1)) {  // equal keys
    unsigned before = 0;
#pragma unroll 2
    for (unsigned four = lane; 4 * four < count; four += SHARE) {
      const float4 its = fours[four];
      const uint4 places = their_told[four];
      before += (its.x == above && places.x < told) + (its.y == above && places.y < told);
      before += (its.z == above && places.z < told) + (its.w == above && places.w < told);
    }
    rank += sum_of_lanes(before);
  }
  if (has && lane == 0 && rank < want) put(rank, key, told);
}
