// Few entries in order: each is compared with all others, as numbers.
#pragma once
#include "listed.cuh"

constexpr unsigned OWNED = 2;                        // entries that a thread has, since shared memory delivers no more than 32 numbers a cycle
constexpr unsigned SHARE = OWNED * THREADS / RANKED;  // threads that have the same ones, and compare them with a part of all

template <class Number> __device__ __forceinline__ Number sum_of_share(Number sum) {
#pragma unroll
  for (unsigned distance = SHARE / 2; distance; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
  return sum;
}

// Call `put(rank, key, column)` for the best `want` of the list's `count` entries, at most RANKED, of which none is far above the floor; for
// some of equal numbers more than once. All intervals must be 0. Behind a barrier, and has one.
template <class Put>
__device__ __forceinline__ void rank_few(const List& list, const Numbers& numbers, unsigned count, unsigned want, Put put) {
  constexpr unsigned AT_ONCE = 2;
  const unsigned lane = threadIdx.x % SHARE, first = threadIdx.x / SHARE * OWNED, at = first + lane % OWNED;
  const bool warp_has = threadIdx.x / 32 * 32 / SHARE * OWNED < count, has = lane < OWNED && at < count;
  const float own[OWNED] = {numbers.above[first], numbers.above[first + 1]};
  const unsigned key = list.keys[min(at, count - 1)], column = list.columns[min(at, count - 1)];
  const float4* fours = reinterpret_cast<const float4*>(numbers.above);
  unsigned rank = 0;
  if (warp_has) {
    float sums[OWNED][2] = {};
#pragma unroll 1
    for (unsigned four = lane; 4 * four < count; four += AT_ONCE * SHARE) {
      float4 its[AT_ONCE];
#pragma unroll
      for (unsigned i = 0; i < AT_ONCE; i++) its[i] = fours[four + i * SHARE];
#pragma unroll
      for (unsigned i = 0; i < AT_ONCE; i++)
#pragma unroll
        for (unsigned o = 0; o < OWNED; o++) {
          sums[o][0] += __saturatef(its[i].x - own[o]), sums[o][1] += __saturatef(its[i].y - own[o]);
          sums[o][0] += __saturatef(its[i].z - own[o]), sums[o][1] += __saturatef(its[i].w - own[o]);
        }
    }
    const float larger[OWNED] = {sum_of_share(sums[0][0] + sums[0][1]), sum_of_share(sums[1][0] + sums[1][1])};
    rank = unsigned(larger[0]);
    if (lane % OWNED) rank = unsigned(larger[1]);
    if (has) {
      if (rank < want) put(rank, key, column);
      atomicAdd(&list.intervals[rank], 1u);
    }
  }
  __syncthreads();
  const bool equals = has && list.intervals[rank] > 1;
  if (!warp_has || !__any_sync(~0u, equals)) return;
  const uint4* columns = reinterpret_cast<const uint4*>(list.columns);
  const unsigned own_columns[OWNED] = {list.columns[first], list.columns[first + 1]};
  unsigned before[OWNED] = {};
#pragma unroll 2
  for (unsigned four = lane; 4 * four < count; four += SHARE) {
    const float4 its = fours[four];
    const uint4 other = columns[four];
#pragma unroll
    for (unsigned o = 0; o < OWNED; o++) {
      before[o] += (its.x == own[o] && other.x < own_columns[o]) + (its.y == own[o] && other.y < own_columns[o]);
      before[o] += (its.z == own[o] && other.z < own_columns[o]) + (its.w == own[o] && other.w < own_columns[o]);
    }
  }
  const unsigned earlier[OWNED] = {sum_of_share(before[0]), sum_of_share(before[1])};
  rank += earlier[0];
  if (lane % OWNED) rank += earlier[1] - earlier[0];
  if (equals && rank < want) put(rank, key, column);
}
