// Radix selection in the list: the cut that chooses a number of entries.
#pragma once
#include "list.cuh"

struct Bin {
  unsigned digit;
  unsigned before;  // entries in larger bins
  unsigned count;
};

// The bin of the entry that is `rank`-th (from 1) from the largest digit on. Every warp finds it for itself.
__device__ __forceinline__ Bin find_bin(const unsigned* bins, unsigned rank) {
  const uint4* pair = reinterpret_cast<const uint4*>(bins + BINS - 8 - 8 * lane_of());
  const uint4 low = pair[0], high = pair[1];
  const unsigned counts[8] = {high.w, high.z, high.y, high.x, low.w, low.z, low.y, low.x};
  unsigned sum = 0, all;
#pragma unroll
  for (int i = 0; i < 8; i++) sum += counts[i];
  unsigned upto = scan_lanes(sum, all);
  int owner = __ffs(__ballot_sync(~0u, upto >= rank)) - 1;
  Bin bin = {unsigned(BINS - 1 - 8 * lane_of()), upto - sum, counts[0]};
  bool found = false;
#pragma unroll
  for (int i = 1; i < 8; i++) {
    found |= bin.before + bin.count >= rank;
    if (!found) bin = {bin.digit - 1, bin.before + bin.count, counts[i]};
  }
  return {__shfl_sync(~0u, bin.digit, owner), __shfl_sync(~0u, bin.before, owner),
          __shfl_sync(~0u, bin.count, owner)};
}

// Count a digit of every lane that takes part; the lanes that share the first one's are counted at once, so that keys
// that are all alike do not queue at one address.
__device__ __forceinline__ void count_digit(unsigned* bins, bool counts, unsigned digit) {
  unsigned lanes = __ballot_sync(~0u, counts);
  if (!lanes) return;
  int leader = __ffs(lanes) - 1;
  unsigned first = __shfl_sync(~0u, digit, leader);
  bool shared = counts && digit == first;
  unsigned same = __ballot_sync(~0u, shared);
  if (lane_of() == leader) atomicAdd(&bins[first], __popc(same));
  if (counts && !shared) atomicAdd(&bins[digit], 1u);
}

// Narrow the words that begin as `prefix` above the `known` lower bits to the `rank`-th of them, digit by digit, until
// the last digit, or until at most `slack` more than `rank` are at or above the prefix. Returns which it was.
// `word_of(i, word)` is entry i's word, and whether it takes part.
template <class Word, class WordOf>
__device__ __forceinline__ bool narrow(List& list, unsigned count, Word& prefix, int known, unsigned& rank,
                                       unsigned slack, WordOf word_of) {
  while (known > 0) {
    unsigned* bins = list.counters->bins[begin_round(list)];
    int shift = known > 8 ? known - 8 : 0;
#pragma unroll 1
    for (unsigned base = 0; base < count; base += THREADS) {
      unsigned i = base + threadIdx.x;
      Word word = 0;
      bool counts = i < count && word_of(i, word) && ((word ^ prefix) >> (known - 1) >> 1) == 0;
      count_digit(bins, counts, unsigned(word >> shift) & (BINS - 1));
    }
    __syncthreads();
    Bin bin = find_bin(bins, rank);
    rank -= bin.before;
    prefix |= Word(bin.digit) << shift;
    if (bin.count <= rank + slack) return true;
    known = shift;
  }
  return false;
}

// How many of the lower bits of the keys differ from those of `first`, among `count` entries.
__device__ __forceinline__ int differing_bits(List& list, unsigned count, Key first) {
  unsigned* differ = list.counters->differ[begin_round(list)];
  Key bits = 0;
#pragma unroll 2
  for (unsigned i = threadIdx.x; i < count; i += THREADS) bits |= list.keys[i] ^ first;
  unsigned low = __reduce_or_sync(~0u, unsigned(bits));
  if (lane_of() == 0 && low) atomicOr(&differ[0], low);
#if ELEMENT_BYTES == 8
  unsigned high = __reduce_or_sync(~0u, unsigned(bits >> 32));
  if (lane_of() == 0 && high) atomicOr(&differ[1], high);
  __syncthreads();
  if (differ[1]) return 64 - __clz(differ[1]);
#else
  __syncthreads();
#endif
  return 32 - __clz(differ[0]);
}

// The cut that chooses `rank` of the list's first `count` entries, which are more, and at most `slack` more; of equal keys
// the lowest columns. Keys are known to agree above the `known` lower bits with `key`. Writes no entry, and reads none
// after its last barrier.
__device__ __forceinline__ Cut narrow_entries(List& list, unsigned count, unsigned rank, unsigned slack, Key key,
                                              int known) {
  Cut cut = {known < int(8 * sizeof(Key)) ? key >> known << known : 0, 0};
  if (narrow(list, count, cut.key, known, rank, slack, [&](unsigned i, Key& word) {
        word = list.keys[i];
        return true;
      }))
    return cut;
  const Key tie = cut.key;
  narrow(list, count, cut.place, 32, rank, slack, [&](unsigned i, unsigned& word) {
    word = ~list.columns[i];
    return list.keys[i] == tie;
  });
  return cut;
}
