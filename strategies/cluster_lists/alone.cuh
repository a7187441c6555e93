// The order of few floats of 32 bits that a block has alone: each is compared with all, which takes a comparison and a sum.
#pragma once
#include "listed.cuh"

constexpr unsigned FEW = 128;  // up to which that is sooner than to count them by intervals
constexpr bool MAY_BE_FEW = ELEMENT_BYTES == 4 && CAPACITY > FEW && CAPACITY <= 4 * FEW && THREADS >= FEW;
constexpr unsigned AT_ONCE = 32;  // numbers that a lane reads

// Behind the list are numbers that are better than none.
__device__ __forceinline__ unsigned no_better_bits(Order order) { return order.turn ? 0x7F800000 : 0xFF800000; }

// How many are no NaN.
__device__ __forceinline__ unsigned numbers_of(const float* numbers, unsigned count) {
  unsigned sum = 0;
#pragma unroll 1
  for (unsigned i = 0; i < count; i++) sum += numbers[i] == numbers[i];
  return sum;
}

// Call `answers.put(rank, key, column)` for the listed elements below rank k, each by some thread. There are `count`, at least one and at most
// FEW, for which `ties` have room; `counts` of as many and one more, and the number of `equal` ones, are 0. Has barriers.
template <class Answers>
__device__ __forceinline__ void rank_few(const Row& row, const Elements& list, unsigned count, unsigned* counts, unsigned* equal, Entry* ties,
                                         unsigned k, const Answers& answers) {
  constexpr unsigned LANES = THREADS > FEW ? THREADS / FEW : 1;  // for each
  const float* numbers = reinterpret_cast<const float*>(list.bits);
  const unsigned at = threadIdx.x / LANES, part = threadIdx.x % LANES;
  const float own = numbers[min(at, count - 1)];
  float sums[4] = {};  // how many are better
  const auto add_up = [&](auto is_better) {
#pragma unroll 1
    for (unsigned first = 0; first < count; first += LANES * AT_ONCE) {
      float4 fours[AT_ONCE / 4];
#pragma unroll
      for (int i = 0; i < AT_ONCE / 4; i++) fours[i] = reinterpret_cast<const float4*>(numbers + first)[i * LANES + part];
#pragma unroll
      for (int i = 0; i < AT_ONCE / 4; i++) {
        sums[0] += is_better(fours[i].x) ? 1.f : 0.f, sums[1] += is_better(fours[i].y) ? 1.f : 0.f;
        sums[2] += is_better(fours[i].z) ? 1.f : 0.f, sums[3] += is_better(fours[i].w) ? 1.f : 0.f;
      }
    }
  };
  if (warp_of() * 32 / LANES < count) {
    if (row.order.turn) add_up([&](float number) { return number < own; });
    else add_up([&](float number) { return !(number <= own); });  // also NaN
  }
  unsigned rank = unsigned((sums[0] + sums[1]) + (sums[2] + sums[3]));
#pragma unroll
  for (unsigned distance = LANES / 2; distance; distance /= 2) rank += __shfl_xor_sync(~0u, rank, distance);
  const bool has = part == 0 && at < count;
  if (own != own) rank = row.order.turn ? numbers_of(numbers, count) : 0;
  const bool equals = has && atomicAdd(&counts[rank], 1u);
  const unsigned column = has ? list.columns[at] : 0;
  if (__syncthreads_or(equals)) {  // of equals the first is the best
    const bool tied = has && counts[rank] > 1;
    const unsigned slot = reserve_from(equal, tied);
    if (tied) ties[slot] = Entry(rank) << 32 | column;
    __syncthreads();
    const unsigned all = *equal, first = rank;
#pragma unroll 1
    for (unsigned i = 0; tied && i < all; i++) rank += unsigned(ties[i] >> 32) == first && unsigned(ties[i]) < column;
  }
  if (has && rank < k) answers.put(rank, settled_key(Element(__float_as_uint(own)), row.order), column);
}
