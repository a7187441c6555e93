// Of long rows of which few are wanted, what reaches the cut is listed first, and that alone is counted and put in order: a counter takes
// as long for one lane as for many, and a thread has one entry or two.
#pragma once
#include "again.cuh"

constexpr int LIST_BUCKETS = INTERVALS < 128 ? INTERVALS : 128;  // so few that a warp adds up all of them

// Of lanes before this one, none of which has more than `MOST`: ballots are asked for at once, a sum by shuffles one after another.
template <unsigned MOST> __device__ __forceinline__ unsigned few_before(unsigned own) {
  unsigned before = 0;
#pragma unroll
  for (int bit = 0; MOST >> bit; bit++)
    before += __popc(__ballot_sync(~0u, own >> bit & 1) & ((1u << lane_of()) - 1)) << bit;
  return before;
}

// Which elements reach a cut: by their keys.
struct ByKeys {
  Key cut;

  // Of 32 from `begin` on, a bit each.
  template <int OWN> __device__ __forceinline__ unsigned among(const Elements<OWN>& elements, int begin) const {
    return elements.template reaching<32>(begin, cut);
  }
  template <int OWN> __device__ __forceinline__ bool edge(const Elements<OWN>& elements) const { return elements.edge >= cut; }
};

// List the columns of elements that reach a cut, in no order. Returns how many there are: if more than CAPACITY, not all are listed. Has a barrier.
template <int OWN, class Reach>
__device__ __forceinline__ unsigned list_columns(const Row& row, Elements<OWN> elements, const Room& room, const Reach& reach, unsigned* columns) {
  constexpr int COUNT = Elements<OWN>::COUNT, PARTS = (COUNT + 31) / 32;
  const bool edge = reach.edge(elements);
  elements.first = row.column(row.begin + thread_anew(), 0);
  unsigned reaching[PARTS], own = edge;
#pragma unroll
  for (int part = 0; part < PARTS; part++) own += __popc(reaching[part] = reach.among(elements, 32 * part));
  const unsigned before = few_before<COUNT + 1>(own);
  unsigned place = 0;
  if (lane_of() == 31 && before + own) place = atomicAdd(&room.counters.count, before + own);
  place = __shfl_sync(~0u, place, 31) + before;
  if (place + own <= CAPACITY) {
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
#pragma unroll 1
      for (unsigned left = reaching[part]; left;) {  // the first and the last at once: few threads have three
        const int first = __ffs(left) - 1, last = 31 - __clz(left);
        columns[place] = elements.column(32 * part + first), columns[place + (first < last)] = elements.column(32 * part + last);
        place += 1 + (first < last), left &= ~(1u << first | 1u << last);
      }
    }
    if (edge) columns[place] = edge_column(row, thread_anew());
  }
  __syncthreads();
  return room.counters.count;
}

// Whether intervals of numbers tell more apart than those of keys.
__device__ __forceinline__ bool better_by_numbers(Key top, Key cut) { return cut == 0 || ((cut ^ top) & SIGN) || top - cut > FEW_OCTAVES; }

// Call `answers.put(rank, key, column)` for the best k, each by some thread, of elements that reach a cut that is not 0. Returns whether enough do: else
// nothing was counted.
template <int OWN, class Reach, class Answers>
__device__ __forceinline__ bool select_listed(const Row& row, const Elements<OWN>& elements, const Reach& reach, Key cut, Word top, bool numbers, unsigned k,
                                              const Room& room, const Answers& answers) {
  unsigned* columns = reinterpret_cast<unsigned*>(room.entries);
  const Word least = least_word(cut);
  const Buckets<true, LIST_BUCKETS> buckets = buckets_of<true, LIST_BUCKETS>(top < least ? ALL_KEYS : top, least, numbers, row.order);
  const unsigned count = list_columns(row, elements, room, reach, columns);
  if (count < k) return false;
  if (count > CAPACITY) {
    select_again<OWN>(row, {ALL_KEYS, least, true, false, 0}, k, room, answers);
    return true;
  }
  Entry own[LISTED];
  unsigned its[LISTED], place[LISTED];  // the bucket of an entry, and how many were counted there before it
#pragma unroll
  for (int i = 0; i < LISTED; i++) {
    if (threadIdx.x + i * THREADS >= count) continue;
    const unsigned column = columns[threadIdx.x + i * THREADS];
    const Word word = elements.word(settled_key(row.data()[column], row.order), column);  // the L1 cache has it
    own[i] = entry_of(word, column), its[i] = buckets(word);
    place[i] = atomicAdd(&room.counts[its[i]], 1u);
  }
  __syncthreads();
  unsigned* begins = room.counters.bins[0];  // of buckets
  static_assert(LIST_BUCKETS * sizeof(unsigned) <= sizeof(room.counters.bins), "buckets have no room");
  constexpr int ADDED = LIST_BUCKETS / 32;  // of a lane
  struct alignas(ADDED % 4 ? ADDED * 4 : 16) Counts {
    unsigned each[ADDED];
  };
  bool crowd = false;
  if (warp_of() == 0) {
    Counts counts = reinterpret_cast<const Counts*>(room.counts)[lane_of()];
    unsigned sum = 0, all;
#pragma unroll
    for (int i = 0; i < ADDED; i++) sum += counts.each[i];
    sum = scan_lanes(sum, all) - sum;
#pragma unroll
    for (int i = 0; i < ADDED; i++) {
      const unsigned its = counts.each[i];
      crowd |= its > CROWD && sum < k;
      counts.each[i] = sum;
      sum += its;
    }
    reinterpret_cast<Counts*>(begins)[lane_of()] = counts;
  }
  crowd = __syncthreads_or(crowd);
  if (crowd) {
#pragma unroll
    for (int i = 0; i < LISTED; i++)
      if (threadIdx.x + i * THREADS < count) room.entries[threadIdx.x + i * THREADS] = own[i];
    __syncthreads();
    rank_mixed(room, count, k, answers);
    return true;
  }
  unsigned begin[LISTED];
#pragma unroll
  for (int i = 0; i < LISTED; i++) {
    begin[i] = threadIdx.x + i * THREADS < count ? begins[its[i]] : k;
    if (begin[i] < k) room.entries[begin[i] + place[i]] = own[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < LISTED; i++) {
    if (begin[i] >= k) continue;
    const unsigned rank = rank_among(room.entries, begin[i], begin[i] + room.counts[its[i]], own[i]);
    if (rank < k) put_word(answers, rank, own[i]);
  }
  return true;
}
