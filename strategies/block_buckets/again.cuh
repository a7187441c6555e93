// Rows of which a guess, or buckets, let more through than the list has room for. They are read again, from the caches, and held anew, out
// of line: what other rows need is all that lies together, and that registers are found for.
#pragma once
#include "placed.cuh"

// Elements as they were held.
template <int OWN> __device__ __forceinline__ Elements<OWN> held_again(const Row& row) {
  Elements<OWN> elements = ask_for_elements<OWN>(row, First<0>());
  find_edge(elements, row);
#pragma unroll
  for (int word = 0; word < 4 * OWN; word++) {
    const unsigned keys = keys_of(elements.words[word], row.order);
    elements.words[word] = threadIdx.x + word / 4 * THREADS < elements.lines ? keys : 0;
  }
  return elements;
}

// The word of the k-th is from the bottom to the top, unless there are too few; `before` words are above, fewer than k.
struct Within {
  Word top, bottom;
  bool certain;  // that there are not
  bool tied;     // whether it is known to have the bottom's key, and `before` words to be above all of that key
  unsigned before;
};

// Narrow it to the largest and the least word there is, and find out whether the k-th is one of equals: of the bottom's key, or, where that has many, of the
// next. Begins behind a barrier, and has some.
template <int OWN> __device__ __forceinline__ void narrow(const Elements<OWN>& elements, const Room& room, unsigned k, Within& within) {
#pragma unroll 1
  for (bool last = false;; last = true) {
    const Word equals = within.bottom | COLUMNS;
    Word top = 0, bottom = ALL_KEYS, next = ALL_KEYS;
    unsigned beyond = 0, among = 0;  // the bottom's key, and from the bottom to the top
    elements.visit([&](Word word, unsigned) {
      if (word > equals) beyond++, next = min(next, word);
      if (word <= within.top && word >= within.bottom) top = max(top, word), bottom = min(bottom, word), among++;
    });
    top = largest_of_lanes(top), bottom = least_of_lanes(bottom), next = least_of_lanes(next);
    beyond = __reduce_add_sync(~0u, beyond), among = __reduce_add_sync(~0u, among);
    if (lane_of() == 0) {
      room.counters.keys[0][warp_of()] = top, room.counters.keys[1][warp_of()] = bottom, room.exchange.guesses[warp_of()] = next;
      room.counters.totals[0][warp_of()] = among, room.counters.totals[1][warp_of()] = beyond;
    }
    __syncthreads();
    const int warp = lane_of() < WARPS ? lane_of() : 0;
    within.top = largest_of_lanes(unsigned(room.counters.keys[0][warp]));
    bottom = least_of_lanes(unsigned(room.counters.keys[1][warp])), next = least_of_lanes(unsigned(room.exchange.guesses[warp]));
    beyond = __reduce_add_sync(~0u, lane_of() < WARPS ? room.counters.totals[1][warp] : 0);
    among = __reduce_add_sync(~0u, lane_of() < WARPS ? room.counters.totals[0][warp] : 0);
    within.tied = within.certain && beyond < k;
    if (within.tied) {
      within.before = beyond;
      return;
    }
    const bool many = !COLUMN_BITS && within.certain && within.before + among > beyond + CROWD;
    within.bottom = bottom, within.certain |= within.before + among >= k;
    within.tied = within.certain && !COLUMN_BITS && bottom == within.top;
    if (within.tied || last || !many) return;
    within.bottom = next & ~COLUMNS;
    __syncthreads();
  }
}

// Words from the bottom on to the list, in any order. Begins behind a barrier, with a count of 0.
template <int OWN> __device__ __forceinline__ void list_words(const Elements<OWN>& elements, const Room& room, Word bottom) {
  unsigned own = 0, all, place = 0;
  elements.visit([&](Word word, unsigned) { own += word >= bottom; });
  const unsigned before = scan_lanes(own, all) - own;
  if (lane_of() == 0 && all) place = atomicAdd(&room.counters.count, all);
  place = __shfl_sync(~0u, place, 0) + before;
  if (own) {
    elements.visit([&](Word word, unsigned column) {
      if (word >= bottom) room.entries[place++] = entry_of(word, column);
    });
  }
}

// Write the first `want` elements of a key that is not 0, by columns, behind the `above` best. Has a barrier.
template <int OWN, class Answers>
__device__ __forceinline__ void write_equals(const Elements<OWN>& elements, const Room& room, Key tie, unsigned want, unsigned above,
                                             const Answers& answers) {
  constexpr int PAIRS = (OWN + 1) / 2;  // of lines, whose counts share a word
  static_assert(THREADS * VECTOR < 1 << 16, "two counts share a word");
  static_assert(PAIRS * WARPS <= BINS, "counts have no room");
  unsigned before[PAIRS];  // this lane, elements of the warp's other lanes
#pragma unroll
  for (int pair = 0; pair < PAIRS; pair++) {
    const unsigned high = 2 * pair + 1 < OWN ? __popc(elements.equal(2 * pair + 1, tie)) : 0;
    const unsigned own = __popc(elements.equal(2 * pair, tie)) | high << 16;
    unsigned all;
    before[pair] = scan_lanes(own, all) - own;
    if (lane_of() == 0) room.counters.bins[0][pair * WARPS + warp_of()] = all;
  }
  const bool edge = elements.edges && threadIdx.x < EDGES && elements.edge == tie;
  const unsigned edges = __ballot_sync(~0u, edge);
  if (threadIdx.x == 0) room.counters.bins[1][0] = edges;
  __syncthreads();
  unsigned rank = __popc(room.counters.bins[1][0] & EVERY);  // columns before the whole lines
#pragma unroll
  for (int line = 0; line < OWN; line++) {
    const unsigned counts = lane_of() < WARPS ? room.counters.bins[0][line / 2 * WARPS + lane_of()] : 0;
    const unsigned its = line % 2 ? counts >> 16 : counts & 0xFFFF;
    unsigned place = rank + __reduce_add_sync(~0u, lane_of() < warp_of() ? its : 0);
    rank += __reduce_add_sync(~0u, its);
    place += line % 2 ? before[line / 2] >> 16 : before[line / 2] & 0xFFFF;
    for (unsigned left = elements.equal(line, tie); left && place < want; left &= left - 1)
      answers.put(above + place++, equal_key_of(tie), elements.column(line * VECTOR + __ffs(left) - 1));
  }
  if (!edge) return;
  const unsigned others = edges & ((1u << threadIdx.x) - 1);
  const unsigned place = threadIdx.x < VECTOR ? __popc(others) : rank + __popc(others & ~EVERY);
  if (place < want) answers.put(above + place, equal_key_of(tie), elements.edge_column);
}

// Call `answers.put(rank, key, column)` for the best k of a row, each by some thread. Rounds of counting, each between the extremes of
// what is left, find so few words that the list has room for all of them, or the key that too many have.
template <int OWN, class Answers>
__device__ __noinline__ void select_again(Row row, Within within, unsigned k, Room its, Answers answers) {
  constexpr int COUNT = BUCKETS<true>;
  const Room room = kept_room(its);
  const Elements<OWN> elements = held_again<OWN>(row);
  unsigned count = 0;  // of words from the bottom on
#pragma unroll 1
  while (!count) {
    __syncthreads();
    if (threadIdx.x == 0) room.counters.count = 0;
    clear_buckets<COUNT>(room);
    narrow(elements, room, k, within);
    if (within.tied) {
      const Key tie = key_of_word(within.bottom);
      if (within.before) list_words(elements, room, (within.bottom | COLUMNS) + 1);
      write_equals(elements, room, tie, k - within.before, within.before, answers);
      if (within.before) rank_list(room, within.before, within.before, row.order, answers);
      return;
    }
    const int shift = max(bits_of(within.top - min(within.top, within.bottom)) - INTERVAL_BITS, 0);  // of words to intervals
    elements.visit([&](Word word, unsigned) {
      if (word >= within.bottom && word <= within.top) atomicAdd(&room.counts[(within.top - word) >> shift], 1u);
    });
    __syncthreads();
    const Added added = add_buckets<COUNT>(room, k - within.before);
    const unsigned bucket = added.crossing.bucket;
    if (bucket == COUNT) {  // all others are NaN
      count = within.before + added.total;
      write_ties(row, room.exchange, 0, k - count, count, answers);
      break;
    }
    within.top -= bucket << shift, within.bottom = max(within.bottom, within.top - min(within.top, (1u << shift) - 1));
    within.certain = true, within.before += added.crossing.before;
    if (within.before + added.crossing.count <= CAPACITY) count = within.before + added.crossing.count;
  }
  if (!count) return;
  list_words(elements, room, within.bottom);
  __syncthreads();
  rank_list(room, count, min(count, k), row.order, answers);
}
