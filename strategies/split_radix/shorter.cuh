// A list made shorter in a few passes: entries are counted by how far they are beyond the cut that all of them reach, in
// steps that are the wider the farther, and the better steps are kept. A step that is too wide is divided evenly. Where that
// keeps too many all the same, digits tell.
#pragma once
#include "selection.cuh"
#include "steps.cuh"

constexpr unsigned STEPS = 2 * BINS;                  // of keys beyond the cut's, the best first; of columns of its ties
constexpr int STEPS_BITS = 9;
constexpr int KEPT_AT_ONCE = ELEMENT_BYTES == 8 ? 4 : 8;  // entries of a thread
static_assert(STEPS == 1 << STEPS_BITS && BINS == MOST_STEPS, "");

// One step in as many equal ones.
struct Fine {
  Cut worst;       // that the step's entries reach
  Key best;        // of the step, unless it is of columns
  unsigned first;  // of the step's columns
  int shift;
  bool of_columns;

  __device__ __forceinline__ unsigned at(Key key, unsigned column) const {
    if (!chosen(key, column, worst)) return STEPS;
    if (of_columns) return key > worst.key || column < first ? 0 : (column - first) >> shift;
    return key > best ? 0 : unsigned((best - key) >> shift);
  }
  __device__ __forceinline__ Cut upto(unsigned step) const {
    if (of_columns) return {worst.key, max(worst.place, ~(first + ((step + 1) << shift) - 1))};
    return {max(worst.key, Key(best - (Key(step + 1) << shift) + 1)), 0};
  }
};

// The steps of entries that a cut chooses, none of whose ties has a column below `from`.
struct Steps {
  Cut cut;
  unsigned from;

  __device__ __forceinline__ unsigned at(Key key, unsigned column) const {
    return key > cut.key ? BINS - 1 - step_of<Key>(key - cut.key) : BINS + step_of<unsigned>(column - from);
  }
  // The cut that chooses the entries of all steps up to this one.
  __device__ __forceinline__ Cut upto(unsigned step) const {
    if (step < BINS) return {Key(cut.key + least_of<Key>(BINS - 1 - step)), 0};
    return {cut.key, max(cut.place, ~(from + least_of<unsigned>(step - BINS + 1) - 1))};
  }
  __device__ __forceinline__ Fine within(unsigned step) const {
    const bool of_columns = step >= BINS;
    const unsigned its = of_columns ? step - BINS : BINS - 1 - step;
    const Cut worst = upto(step);
    const Key best = worst.key + (Key(1) << bits_of_step(its)) - 1;
    return {worst, best < worst.key ? Key(~Key(0)) : best, of_columns ? from + least_of<unsigned>(its) : 0,
            max(bits_of_step(its) - STEPS_BITS, 0), of_columns};
  }
};

// The step of the entry that is `rank`-th (from 1). Every warp finds it for itself.
__device__ __forceinline__ Bin find_step(const unsigned* counts, unsigned rank) {
  constexpr unsigned OWN_STEPS = STEPS / 32;
  const uint4* own = reinterpret_cast<const uint4*>(counts + OWN_STEPS * lane_of());
  unsigned sum = 0, all;
#pragma unroll
  for (unsigned i = 0; i < OWN_STEPS / 4; i++) sum += own[i].x + own[i].y + own[i].z + own[i].w;
  unsigned upto = scan_lanes(sum, all);
  const int owner = __ffs(__ballot_sync(~0u, upto >= rank)) - 1;
  const unsigned before = __shfl_sync(~0u, upto - sum, owner);
  const unsigned count = lane_of() < OWN_STEPS ? counts[OWN_STEPS * owner + lane_of()] : 0;
  upto = before + scan_lanes(count, all);
  const int found = __ffs(__ballot_sync(~0u, upto >= rank)) - 1;
  return {OWN_STEPS * owner + found, __shfl_sync(~0u, upto - count, found), __shfl_sync(~0u, count, found)};
}

// Keep what the cut chooses of the list's `count` entries, in any order; ends with a barrier.
__device__ __forceinline__ void retain(List& list, unsigned count, Cut cut) {
  if (threadIdx.x == 0) list.counters->count = 0;
#pragma unroll 1
  for (unsigned base = 0; base < count; base += KEPT_AT_ONCE * THREADS) {
    Key keys[KEPT_AT_ONCE];
    unsigned columns[KEPT_AT_ONCE], stays = 0;
#pragma unroll
    for (int i = 0; i < KEPT_AT_ONCE; i++) {
      const unsigned at = base + i * THREADS + threadIdx.x;
      if (at >= count) continue;
      keys[i] = list.keys[at], columns[i] = list.columns[at];
      stays |= unsigned(chosen(keys[i], columns[i], cut)) << i;
    }
    __syncthreads();  // all up to here were read, and no more than these are kept
    unsigned slot = reserve(list, __popc(stays));
#pragma unroll
    for (int i = 0; i < KEPT_AT_ONCE; i++)
      if (stays >> i & 1) list.keys[slot] = keys[i], list.columns[slot] = columns[i], slot++;
  }
  __syncthreads();
}

// Count the steps of the list's `count` entries, and find that of the `rank`-th. Begins with a barrier.
template <class Steps>
__device__ __forceinline__ Bin count_steps(List& list, unsigned count, unsigned rank, Steps steps) {
  unsigned* counts = list.counters->bins[0];
  __syncthreads();
  for (unsigned i = threadIdx.x; i < STEPS; i += THREADS) counts[i] = 0;
  __syncthreads();
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < count; i += THREADS) {
    const unsigned step = steps.at(list.keys[i], list.columns[i]);
    if (step < STEPS) atomicAdd(&counts[step], 1u);
  }
  __syncthreads();
  return find_step(counts, rank);
}

// All counters are zero after the barrier that follows.
__device__ __forceinline__ void forget_steps(List& list) {
  __syncthreads();
  unsigned* counts = list.counters->bins[0];
  for (unsigned i = threadIdx.x; i < 3 * BINS; i += THREADS) counts[i] = 0;
  if (threadIdx.x < 6) list.counters->differ[threadIdx.x / 2][threadIdx.x % 2] = 0;
  list.round = 0;
}

constexpr unsigned MOST_COMPARED = 256 < THREADS ? 256 : THREADS;  // entries that are compared with each other

// Keep the best `want` of the list's `count` entries, more than that and at most MOST_COMPARED. Behind a barrier, and ends with one.
__device__ __forceinline__ void keep_of_few(List& list, unsigned count, unsigned want) {
  constexpr unsigned LANES = THREADS / MOST_COMPARED;
  unsigned thread = threadIdx.x;
  asm volatile("" : "+r"(thread));  // else what is made of it is kept, and something else is spilled
  const unsigned at = min(thread / LANES, count - 1);
  const Key key = list.keys[at];
  const unsigned column = list.columns[at];
  unsigned rank = 0;
#pragma unroll 4
  for (unsigned other = thread % LANES; other < count; other += LANES) {
    const Key its = list.keys[other];
    rank += its > key || (its == key && list.columns[other] < column);
  }
#pragma unroll
  for (unsigned distance = LANES / 2; distance; distance /= 2) rank += __shfl_xor_sync(~0u, rank, distance);
  __syncthreads();  // all were read
  if (rank < want && thread % LANES == 0 && thread / LANES < count) list.keys[rank] = key, list.columns[rank] = column;
  if (thread == 0) list.counters->count = want;
  __syncthreads();
}

// Keep the best `want`, and no more than `most`, of the list's `count` entries, which are no fewer. All of them reach the
// cut, and none of its ties has a column below `from`; then it is what chooses what is kept. Begins and ends with a barrier.
__device__ __forceinline__ void shorten(List& list, unsigned count, unsigned want, unsigned most, Cut& its, unsigned from) {
  const Steps steps = {its, from};
  Bin last = count_steps(list, count, want, steps);
  Cut cut = steps.upto(last.digit);
  if (last.before + last.count > want + want / 4) {
    const Fine fine = steps.within(last.digit);
    last = count_steps(list, count, want, fine);
    cut = fine.upto(last.digit);
  }
  unsigned kept = last.before + last.count;
  forget_steps(list);
#pragma unroll 1
  for (;;) {
    retain(list, count, cut);
    if (kept <= most) break;
    const Key first = list.keys[0];
    cut = narrow_entries(list, kept, want, most - want, first, differing_bits(list, kept, first));
    count = kept, kept = most;
  }
  if (threadIdx.x == 0) its = cut;
  __syncthreads();
}
