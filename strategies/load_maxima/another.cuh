// Another cut where one misled: the maxima that may be the k-th's are counted by how far they are below the largest of them, in steps that
// are the wider the farther, and those of a step that is too wide again.
#pragma once
#include "guess.cuh"
#include "steps.cuh"

// What is known of the cut: `above` elements have larger keys than `top`, fewer than wanted, and enough reach `bottom`.
struct Range {
  Key bottom, top;
  unsigned above;
  Key most;          // no larger than the top, and mostly the largest key below it
  unsigned reached;  // elements that reach the bottom, if that was found out since maxima were counted, else 0
  float elements;    // of a maximum that reaches it

  __device__ __forceinline__ Key middle() const { return bottom + (top - bottom) / 2 + 1; }
};

struct Counted {
  const unsigned* counts;  // [MOST_STEPS], of the cluster
  Key largest;             // that was counted
};

// Two words for every step, where what warps told each other has room for them, or for themselves.
__device__ __forceinline__ unsigned* steps_of(Exchange& exchange) {
  constexpr int COUNT = 2 * MOST_STEPS;
  if constexpr (sizeof(Exchange::maxima) >= COUNT * sizeof(unsigned)) {
    return reinterpret_cast<unsigned*>(exchange.maxima);
  } else {
    __shared__ unsigned steps[COUNT];
    return steps;
  }
}

// Count the cluster's maxima from `low` to `end` by steps below `high`; what is above it is in the first. Ends with a barrier.
__device__ __forceinline__ Counted count_maxima(const OfRow& maxima, Exchange& exchange, Key low, Key high, Key end) {
  unsigned* counts = steps_of(exchange);
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < MOST_STEPS; i += THREADS) counts[i] = 0;
  if (threadIdx.x == 0) exchange.tops[0] = 0;
  __syncthreads();
  Key largest = 0;
#pragma unroll
  for (int i = 0; i <= OfRow::COUNT; i++) {
    const Key key = i < OfRow::COUNT ? maxima.key(i) : maxima.part;
    if (key < low || key > end) continue;
    largest = max(largest, key);
    atomicAdd(&counts[step_of<Key>(high - min(key, high))], 1u);
  }
  largest = largest_of_lanes(largest);
  if (lane_of() == 0) atomicMax(&exchange.tops[0], largest);
  cluster_sync();
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < MOST_STEPS; i += THREADS) {
    unsigned sum = 0;
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) sum += *of_block(&counts[i], block);
    counts[MOST_STEPS + i] = sum;
  }
  largest = largest_of_lanes(*of_block(&exchange.tops[0], lane_of() % BLOCKS));
  __syncthreads();
  return {counts + MOST_STEPS, largest};
}

// A cut above the range's bottom that about `aim` elements reach; where a key has too many for any, the key above it, or that key if it is
// the top. The bottom is raised to what more than CAPACITY reach, and the top lowered where nothing is better than ties. Has barriers of the
// cluster.
__device__ __forceinline__ Key another_cut(const OfRow& maxima, Exchange& exchange, Range& range, unsigned aim) {
  constexpr int OWN = MOST_STEPS / 32;  // steps of a lane
  Key low = max(range.bottom, Key(1)), end = range.top, most = range.most;
  unsigned beyond = 0;  // maxima between `end` and the top
#pragma unroll 1
  for (;;) {
    const Key high = min(max(most, low), end);
    const Counted counted = count_maxima(maxima, exchange, low, high, end);
    unsigned counts[OWN], own = 0, all;
#pragma unroll
    for (int i = 0; i < OWN; i++) counts[i] = counted.counts[lane_of() * OWN + i], own += counts[i];
    BLOCKS > 1 ? cluster_arrive() : __syncthreads();  // before something else is counted there
    unsigned upto = beyond + scan_lanes(own, all), before = upto - own;
    if (end == range.top) range.most = max(counted.largest, range.bottom);
    if (range.reached) range.elements = fmaxf(__fdividef(float(range.reached - range.above), float(max(all, 1u))), 1), range.reached = 0;
    // The first step up to which there are enough maxima, or the last.
    const unsigned wanted = max(unsigned(__fdividef(float(aim - range.above), range.elements)), 1u);
    const unsigned enough = __ballot_sync(~0u, upto >= wanted);
    const int lane = enough ? __ffs(enough) - 1 : 31;
    unsigned step = lane_of() * OWN;
    upto = before;
#pragma unroll
    for (int i = 0; i < OWN; i++)
      if (i == 0 || upto < wanted) step = lane_of() * OWN + i, before = upto, upto += counts[i];
    step = __shfl_sync(~0u, step, lane), before = __shfl_sync(~0u, before, lane), upto = __shfl_sync(~0u, upto, lane);
    cluster_wait();
    const Key farthest = least_of<Key>(step + 1) - 1, first = high - low > farthest ? high - farthest : low;
    if (range.above + range.elements * upto <= CAPACITY && first > range.bottom) return first;
    if (!enough) return range.middle();  // maxima tell nothing: what is in the range are no more of them
    if (range.above + upto > CAPACITY) range.bottom = first;
    if (step == 0 && counted.largest > high) {
      most = counted.largest;
    } else if (bits_of_step(step) == 0) {
      if (range.bottom == first && range.above + before == 0) range.top = first;
      return first < range.top ? first + 1 : first;
    } else {
      end = high - least_of<Key>(step), beyond = before;
      most = counted.largest;
    }
    low = first;
  }
}
