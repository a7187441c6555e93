// The order of entries that crowd in even intervals: by intervals between some of them, so that few share one whatever they are.
#pragma once
#include "list.cuh"

// The rank of an entry of the interval that has the places from `rank` to `end`.
template <class Entry> __device__ __forceinline__ unsigned rank_among(const Entry* entries, unsigned rank, unsigned end, Entry entry) {
#pragma unroll 1
  for (unsigned first = rank; first < end; first += 4) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (first + i < end) rank += entries[first + i] > entry;
  }
  return rank;
}

// How many of the pivots but the last are larger.
template <unsigned PIVOTS, class Entry> __device__ __forceinline__ unsigned pivots_above(const Entry* pivots, Entry entry) {
  unsigned found = 0;
#pragma unroll
  for (unsigned step = PIVOTS / 2; step; step /= 2)
    if (pivots[found + step - 1] > entry) found += step;
  return found;
}

// Call `put(rank, entry)` for the ranks of [first, want) among entries, of which the larger are the better and no two are equal, each by
// some thread. There are `count`, at most MOST of a thread; `pivots` and `counts` have room for PIVOTS. Begins behind a barrier, and
// ends without.
template <unsigned PIVOTS, int MOST, class Entry, class Put>
__device__ __forceinline__ void rank_crowd(Entry* entries, unsigned count, unsigned first, unsigned want, Entry* pivots,
                                           unsigned* counts, Put put) {
  constexpr unsigned LANES = THREADS / PIVOTS > 32 ? 32 : THREADS / PIVOTS > 1 ? THREADS / PIVOTS : 1;
  constexpr int OF_THREAD = PIVOTS > THREADS ? PIVOTS / THREADS : 1;
  // side by side first: where one is takes longer to tell than how two compare
  for (unsigned number = threadIdx.x; number < PIVOTS; number += THREADS)
    pivots[number] = entries[place_of_pivot<PIVOTS>(number, count)], counts[number] = 0;
  __syncthreads();
  Entry own[OF_THREAD];
  unsigned ranks[OF_THREAD];
#pragma unroll
  for (int i = 0; i < OF_THREAD; i++) {
    const unsigned number = threadIdx.x / LANES + i * THREADS;
    own[i] = pivots[min(number, PIVOTS - 1)], ranks[i] = 0;
#pragma unroll 8
    for (unsigned other = threadIdx.x % LANES; other < PIVOTS; other += LANES)
      ranks[i] += pivots[other] > own[i] || (pivots[other] == own[i] && other < number);
#pragma unroll
    for (unsigned distance = LANES / 2; distance; distance /= 2) ranks[i] += __shfl_xor_sync(~0u, ranks[i], distance);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < OF_THREAD; i++)
    if (threadIdx.x % LANES == 0 && threadIdx.x / LANES + i * THREADS < PIVOTS) pivots[ranks[i]] = own[i];
  __syncthreads();
  Entry held[MOST];
  unsigned places[MOST];  // and intervals
#pragma unroll
  for (int i = 0; i < MOST; i++) {
    const unsigned at = i * THREADS + threadIdx.x;
    if (at >= count) break;
    held[i] = entries[at];
    const unsigned interval = pivots_above<PIVOTS>(pivots, held[i]);
    places[i] = interval << 16 | atomicAdd(&counts[interval], 1u);
  }
  __syncthreads();
  if (warp_of() == 0) {
    unsigned before = 0;
    for (unsigned begin = 0; begin < PIVOTS; begin += 32) {
      const bool has = begin + lane_of() < PIVOTS;
      const unsigned its = has ? counts[begin + lane_of()] : 0;
      unsigned all;
      const unsigned upto = before + scan_lanes(its, all);
      if (has) counts[begin + lane_of()] = upto - its;
      before += all;
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < MOST; i++) {
    if (i * THREADS + threadIdx.x >= count) break;
    entries[counts[places[i] >> 16] + (places[i] & 0xFFFF)] = held[i];
  }
  __syncthreads();
#pragma unroll 1
  for (unsigned at = threadIdx.x; at < count; at += THREADS) {
    const Entry entry = entries[at];
    const unsigned interval = pivots_above<PIVOTS>(pivots, entry);
    unsigned rank = counts[interval];
    if (rank >= want) break;
    const unsigned end = interval + 1 < PIVOTS ? counts[interval + 1] : count;
    if (first && end <= first) continue;
    rank = rank_among(entries, rank, end, entry);
    if (rank >= first && rank < want) put(rank, entry);
  }
}
