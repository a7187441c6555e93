// Rows that crowd where a guess, or even buckets, did not expect it. They are read again, from the caches, out of line: what
// other rows need is all that lies together, and that registers are found for.
#pragma once
#include "buckets.cuh"

constexpr unsigned CROWD_PIVOTS = INTERVALS / 4 < 128 ? INTERVALS / 4 : 128;  // between entries of the list
constexpr int LISTED = (CAPACITY + THREADS - 1) / THREADS;                  // entries of a thread

// The word of the k-th is from the bottom to the top, unless there are too few; `before` words are above.
struct Within {
  Word top, bottom;
  bool certain;  // that there are not
  unsigned before;
  unsigned count;  // of words from the bottom on, where they have room, else 0
};

// Call `visit(word, column)` for all elements of the row, by all lanes of a warp at once; words of what is not the row's are 0.
template <class Visit> __device__ __forceinline__ void visit_row(const Row& row, Visit visit) {
  const auto word = [](Key key, unsigned column) { return least_word(key) | (~column & COLUMNS); };
#pragma unroll 1
  for (unsigned first = row.begin; first < row.end; first += THREADS) {
    const unsigned line = first + threadIdx.x;
    const bool has = line < row.end;
    uint4 bits = has ? __ldg(row.lines + line) : make_uint4(0, 0, 0, 0);
    bits = {keys_of(bits.x, row.order), keys_of(bits.y, row.order), keys_of(bits.z, row.order), keys_of(bits.w, row.order)};
#pragma unroll
    for (int e = 0; e < VECTOR; e++) {
      const unsigned column = row.column(line, e);
      visit(has ? word(element(bits, e), column) : 0, column);
    }
  }
  if (warp_of()) return;
  const unsigned column = edge_column(row);
  visit(has_edge(row, column) ? word(settled_key(row.data()[column], row.order), column) : 0, column);
}

// The largest and the least word between the bottom and the top, 0 and ALL_KEYS where there is none; has a barrier.
__device__ __forceinline__ void narrow(const Row& row, const Room& room, Within& within) {
  Word top = 0, bottom = ALL_KEYS;
  visit_row(row, [&](Word word, unsigned) {
    if (word >= within.bottom && word <= within.top) top = max(top, word), bottom = min(bottom, word);
  });
  top = largest_of_lanes(top), bottom = least_of_lanes(bottom);
  if (lane_of() == 0) room.counters.keys[0][warp_of()] = top, room.counters.keys[1][warp_of()] = bottom;
  __syncthreads();
  const int warp = lane_of() < WARPS ? lane_of() : 0;
  within.top = largest_of_lanes(unsigned(room.counters.keys[0][warp]));
  within.bottom = least_of_lanes(unsigned(room.counters.keys[1][warp]));
}

// One atomic operation for all lanes that have the same bucket: equal addresses cost as much as so many operations.
__device__ __forceinline__ void count_alike(const Room& room, bool counts, unsigned bucket) {
  const unsigned alike = __match_any_sync(~0u, counts ? bucket : INTERVALS);
  if (counts && __ffs(alike) - 1 == lane_of()) atomicAdd(&room.counts[bucket], unsigned(__popc(alike)));
}

// Words from the bottom on to the list, in any order. Begins and ends with a barrier.
__device__ __forceinline__ void list_row(const Row& row, const Room& room, Word bottom) {
  __syncthreads();
  if (threadIdx.x == 0) room.counters.count = 0;
  __syncthreads();
  visit_row(row, [&](Word word, unsigned column) {
    const bool lists = word >= bottom;
    const unsigned votes = __ballot_sync(~0u, lists);
    if (!votes) return;
    unsigned place = 0;
    if (lane_of() == 0) place = atomicAdd(&room.counters.count, __popc(votes));
    place = __shfl_sync(~0u, place, 0) + __popc(votes & ((1u << lane_of()) - 1));
    if (lists) room.entries[place] = entry_of(word, column);
  });
  __syncthreads();
}

// Call `answers.put(rank, key, column)` for the best k of a row, each by some thread. Rounds of counting, each between the
// extremes of what is left, find so few words that the list has room for all of them, or the one that too many have.
template <class Answers>
__device__ __noinline__ void select_crowd(Row row, Within within, unsigned k, Room its, Answers answers) {
  const Room room = {kept(its.entries), kept(its.counts), *kept(&its.exchange), *kept(&its.counters)};
  unsigned want = k;
#pragma unroll 1
  while (!within.count) {
    __syncthreads();
    clear_buckets<INTERVALS>(room);
    narrow(row, room, within);
    const int shift = max(bits_of(within.top - min(within.top, within.bottom)) - INTERVAL_BITS, 0);  // of words to intervals
    Added added = {{0, 0, CAPACITY + 1}, 0, false};
    if (!within.certain || within.top != within.bottom) {
      visit_row(row, [&](Word word, unsigned) {
        count_alike(room, word >= within.bottom && word <= within.top, (within.top - word) >> shift);
      });
      __syncthreads();
      added = add_buckets<INTERVALS>(room, k - within.before);
    }
    const unsigned bucket = added.crossing.bucket;
    if (bucket == INTERVALS) {  // all others are NaN
      write_ties(row, room.exchange, 0, k - added.total, added.total, answers);
      want = within.count = added.total;
      break;
    }
    within.top -= bucket << shift, within.bottom = max(within.bottom, within.top - min(within.top, (1u << shift) - 1));
    within.certain = true, within.before += added.crossing.before;
    const unsigned count = within.before + added.crossing.count;
    if (count <= CAPACITY) {
      within.count = count;
    } else if (within.top == within.bottom) {
      write_ties(row, room.exchange, equal_key_of(key_of_word(within.top)), k - within.before, within.before, answers);
      want = within.count = within.before, within.bottom = within.top + 1;
      break;
    }
  }
  if (!want) return;
  list_row(row, room, within.bottom);
  Entry* pivots = reinterpret_cast<Entry*>(room.counts + INTERVALS / 2);
  rank_crowd<CROWD_PIVOTS, LISTED>(room.entries, within.count, 0, want, pivots, room.counts,
                             [&](unsigned rank, Entry entry) { put_word(answers, rank, entry); });
}
