// Lists of which a thread has an entry or two: they are counted by few intervals, which every warp adds up for itself, and ranked among those
// of their own.
#pragma once
#include "listed.cuh"
#include "ranges.cuh"
#include "share.cuh"

constexpr bool FEW_EACH = ITEMS <= 2 && INTERVALS >= COUNTED;

// Intervals of keys between the top and a cut, near which they are a third as wide, since most entries are there; of keys of 16 bits, of which
// many are equal, also of columns; where keys are of both signs, of numbers.
struct Narrow {
  Key most;
  float number, inverse;  // of the most; of how far it is to the cut
  bool of_numbers;
  float of_column;      // the part of a key that a column is
  Order order;

  __device__ __forceinline__ unsigned interval(Key key, unsigned column) const {
    float below = __uint2float_rn(most - min(key, most));
    if (ELEMENT_BYTES == 2) below += key > most ? 0.f : float(column) * of_column;
    if (of_numbers) below = key >= most ? 0.f : fabsf(number - number_of(element_of(key, order), order));
    const float part = below * inverse;
    return min(unsigned(fmaf(part, part, part) * (COUNTED / 2)), unsigned(COUNTED - 1));
  }
};

__device__ __forceinline__ Narrow narrow_between(Key top, Key cut, const Row& row) {
  const Key most = max(top, cut);
  const bool of_numbers = (most ^ cut) & SIGN;
  const float number = number_of(element_of(most, row.order), row.order);
  const float width = of_numbers ? fabsf(number - number_of(element_of(cut, row.order), row.order)) : __uint2float_rn(most - cut + 1);
  return {most, number, __fdividef(1.f, width), of_numbers, __fdividef(1.f, float(row.cols)), row.order};
}

// The rank of an entry of the interval that has the places from `rank` to `end`: as `rank_among`, whose others are asked for together.
__device__ __forceinline__ unsigned rank_of_few(const Entry* places, unsigned rank, unsigned end, Entry entry) {
  constexpr int AT_ONCE = 4;
#pragma unroll 1
  for (unsigned first = rank; first < end; first += AT_ONCE) {
    Entry others[AT_ONCE];
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) others[j] = places[min(first + j, end - 1)];
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) rank += first + j < end && others[j] > entry;
  }
  return rank;
}

// Call `answers.put(rank, key, column)` for the ranks of the share, each by some thread. Returns whether it did: not where intervals are crowded,
// or fewer than k elements reach the cut. All intervals must be 0. Has two barriers.
template <class Blocks, class Answers>
__device__ __forceinline__ bool rank_few(const Row& row, const Room& room, unsigned own, Key cut, Key top, unsigned k, Share share,
                                         const Answers& answers) {
  const Narrow narrow = narrow_between(top, cut, row);
  const unsigned* words = listed_of<Blocks>(room).bits;
  Entry* places = places_of(room).packed();
  Entry entries[ITEMS];  // 0 where there is none
  unsigned interval[ITEMS], place[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const Read its = group_at<Blocks, 1>(room, own, i * THREADS + threadIdx.x);
    entries[i] = 0, interval[i] = 0;
    if (!its.count) continue;
    const unsigned word = words[its.bits], column = words[its.columns];
    const Key key = settled_key(Element(ELEMENT_BYTES == 2 && (column + row.skew) % 2 ? word >> 16 : word), row.order);
    if (Blocks::COUNT > 1 && key < cut) continue;
    entries[i] = entry_of(key, column), interval[i] = narrow.interval(key, column);
    place[i] = atomicAdd(&room.list.intervals[interval[i]], 1u);
  }
  __syncthreads();
  const Starts starts = starts_of<CROWD>(room.list.intervals);
  if (starts.crowd || (Blocks::COUNT == 1 ? own : starts.all()) < k) return false;
  unsigned begin[ITEMS], end[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    starts.find(interval[i], begin[i], end[i]);
    if (!entries[i] || begin[i] >= share.end || end[i] <= share.first) end[i] = 0;
    else places[begin[i] + place[i]] = entries[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    if (!end[i]) continue;
    const unsigned rank = rank_of_few(places, begin[i], end[i], entries[i]);
    if (rank >= share.first && rank < share.end) put_entry(answers, rank, entries[i]);
  }
  return true;
}
