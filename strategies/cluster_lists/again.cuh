// The best k where the blocks' own cuts misled: a cut for all, others between those that are known, and the list of all in every block.
#pragma once
#include "pivots.cuh"
#include "room.cuh"

typedef unsigned long long Entry;  // a key and the complement of its column: no two are equal, and the better are larger

__device__ __forceinline__ Entry entry_of(Key key, unsigned column) { return Entry(key) << 32 | ~column; }

template <class Answers> __device__ __forceinline__ void put_entry(const Answers& answers, unsigned rank, Entry entry) {
  answers.put(rank, Key(entry >> 32), ~unsigned(entry));
}

__device__ __forceinline__ Found sum_of_lanes(Found found) {
  return {__reduce_add_sync(~0u, found.reaching), __reduce_add_sync(~0u, found.beyond)};
}

// Sums over all threads of the cluster. Rounds take turns with what is told. Has a barrier of the cluster.
template <class Blocks> __device__ __forceinline__ Found sum_of_all(const Room& room, Found found, unsigned round) {
  found = sum_of_lanes(found);
  if (lane_of() == 0) room.told.own[warp_of()] = found;
  __syncthreads();
  if (warp_of() == 0) {
    const Found own = sum_of_lanes(lane_of() < WARPS ? room.told.own[lane_of() % WARPS] : Found{});
    if (lane_of() < Blocks::COUNT) Blocks::of(&room.told, lane_of())->found[round % 2][Blocks::own()] = own;
  }
  Blocks::sync();
  return sum_of_lanes(lane_of() < Blocks::COUNT ? room.told.found[round % 2][lane_of() % Blocks::COUNT] : Found{});
}

// Where there is room for CAPACITY entries. Keys of 64 bits are apart from columns.
struct Entries {
  static constexpr bool PACKED = sizeof(Key) <= 4;
  Key* keys;
  unsigned* columns;

  __device__ __forceinline__ Entry* packed() const { return reinterpret_cast<Entry*>(keys); }
  __device__ __forceinline__ void set(unsigned at, Key key, unsigned column) const {
    if (PACKED) packed()[at] = entry_of(key, column);
    else keys[at] = key, columns[at] = column;
  }
  __device__ __forceinline__ void copy(unsigned at, Entries from, unsigned its) const {
    if (PACKED) packed()[at] = from.packed()[its];
    else keys[at] = from.keys[its], columns[at] = from.columns[its];
  }
};

__device__ __forceinline__ Entries listed_entries(const Room& room) { return {room.list.keys, room.list.columns}; }

// Those that a block has found; a block alone lists them at once.
template <class Blocks> __device__ __forceinline__ Entries found_entries(const Room& room) {
  return Blocks::COUNT > 1 ? Entries{room.keys, room.columns} : listed_entries(room);
}

template <class Blocks>
__device__ __forceinline__ void store_found(const Row& row, const Holding<Blocks>& holding, const Reaching<Blocks>& reaching, const Room& room) {
  const unsigned slot = reserve_from(&room.list.counters->count, reaching.count());
  const Entries entries = found_entries<Blocks>(room);
  store_reaching(row, holding, reaching, slot, [&](unsigned at, Key key, unsigned column) { entries.set(at, key, column); });
}

// Entries that the blocks have found, `own` of them for the block with the lane's number, to the list of each. By all blocks, behind a
// barrier of the cluster; another is arrived at, and to be waited for: until then what a block has found is read. Has a barrier.
template <class Blocks> __device__ __forceinline__ void fetch_entries(const Room& room, unsigned own) {
  constexpr unsigned EACH = WARPS > Blocks::COUNT ? WARPS / Blocks::COUNT : 1;  // warps for a block's
  const Entries entries = listed_entries(room), found = found_entries<Blocks>(room);
#pragma unroll 1
  for (unsigned block = warp_of() / EACH; Blocks::COUNT > 1 && block < Blocks::COUNT; block += WARPS / EACH) {
    const unsigned before = __reduce_add_sync(~0u, lane_of() < block ? own : 0), its = __shfl_sync(~0u, own, block);
    const Entries others = {Blocks::of(found.keys, block), Blocks::of(found.columns, block)};
#pragma unroll 4
    for (unsigned at = warp_of() % EACH * 32 + lane_of(); at < its; at += EACH * 32) entries.copy(before + at, others, at);
  }
  Blocks::arrive();
  __syncthreads();
}

// Of a chunk, the 32 lines that a warp holds side by side: elements that have the key of the k-th, and those of the block's chunks
// before it.
struct Tied {
  unsigned own, before;
};

__device__ __forceinline__ Tied* chunks_of(const Room& room) { return reinterpret_cast<Tied*>(room.exchange.maxima); }

// By all blocks, before a barrier of the cluster. Has one of the block.
template <class Blocks>
__device__ __forceinline__ void count_ties(const Holding<Blocks>& holding, const Reaching<Blocks>& ties, const Room& room) {
  constexpr unsigned CHUNKS = Blocks::HOLDS * WARPS;
  static_assert(CHUNKS * sizeof(Tied) <= sizeof(room.exchange.maxima) && CHUNKS <= INTERVALS, "chunks have no room");
  Tied* chunks = chunks_of(room);
#pragma unroll 1
  for (int i = 0; i < Blocks::HOLDS; i++) {
    const unsigned own = __reduce_add_sync(~0u, __popc(ties.of_line(i)));
    if (lane_of() == 0) chunks[i * WARPS + warp_of()].own = own, room.list.intervals[i * WARPS + warp_of()] = 0;
  }
  if (threadIdx.x == 0) room.list.counters->found = 0;
  __syncthreads();
  if (warp_of()) return;
  unsigned before = __shfl_sync(~0u, holding.part_line == 0 ? __popc(ties.part) : 0, 0);
#pragma unroll 1
  for (unsigned first = 0; first < CHUNKS; first += 32) {
    const bool has = first + lane_of() < CHUNKS;
    const unsigned own = has ? chunks[first + lane_of()].own : 0;
    unsigned all, upto = before + scan_lanes(own, all);
    if (has) chunks[first + lane_of()].before = upto - own;
    before += all;
  }
}

// Write the first `want` of them by columns, behind the `above` best. By all blocks, behind a barrier of the cluster; before one has
// left, another is to be passed. Has a barrier.
template <class Blocks, class Answers>
__device__ __forceinline__ void write_ties(const Row& row, const Holding<Blocks>& holding, const Reaching<Blocks>& ties, const Room& room,
                                           Key tie, unsigned want, unsigned above, const Answers& answers) {
  constexpr unsigned CHUNKS = Blocks::HOLDS * WARPS, EACH = WARPS > Blocks::COUNT ? WARPS / Blocks::COUNT : 1;
  unsigned* before = room.list.intervals;  // [CHUNKS], of all blocks
#pragma unroll 1
  for (unsigned block = warp_of() / EACH; block < Blocks::COUNT; block += WARPS / EACH) {
    const Tied* chunks = Blocks::of(chunks_of(room), block);
#pragma unroll 2
    for (unsigned at = warp_of() % EACH * 32 + lane_of(); at < CHUNKS; at += EACH * 32) {
      const Tied its = chunks[at];
      atomicAdd(&before[at], its.before + (block < Blocks::own() ? its.own : 0));
      if (at == CHUNKS - 1) atomicAdd(&room.list.counters->found, its.before + its.own);
    }
  }
  __syncthreads();
  const auto put = [&](unsigned line, unsigned its, unsigned place) {
#pragma unroll 1
    for (; its && place < want; its &= its - 1) answers.put(above + place++, tie, row.column(line, __ffs(its) - 1));
  };
#pragma unroll 1
  for (int i = 0; i <= Blocks::HOLDS; i++) {
    if (i == Blocks::HOLDS) {  // a line that is the row's in part
      put(holding.part_line, ties.part, holding.part_line ? room.list.counters->found : 0);
      break;
    }
    unsigned all, place = before[i * WARPS + warp_of()];
    if (place >= want) continue;
    const unsigned own = ties.of_line(i);
    place += scan_lanes(__popc(own), all) - __popc(own);
    put(holding.line(i), own, place);
  }
  __syncthreads();
}

// Tries a cut for all, and others between those that are known. Returns how many of the best are listed, with every block, and no
// others but at most CAPACITY - k; the others of the best are written. Where any are listed, a barrier of the cluster is yet to be
// waited for.
template <class Blocks, class Answers>
__device__ __forceinline__ unsigned list_again(const Row& row, const Holding<Blocks>& holding, unsigned k, const Room& room, Key cut, Key top,
                                               const Answers& answers) {
  Range range = {0, ONES, 0, row.cols};
#pragma unroll 1
  for (unsigned round = 1;; round++) {
    auto [reaching, beyond] = elements_around(row, holding, cut);
    const Found found = sum_of_all<Blocks>(room, {reaching.count(), beyond}, round);
    const Found its = room.told.found[round % 2][lane_of() % Blocks::COUNT];
    if (found.reaching >= k && found.reaching <= CAPACITY) {
      store_found(row, holding, reaching, room);
      Blocks::sync();
      fetch_entries<Blocks>(room, its.reaching);
      return found.reaching;
    }
    if (found.reaching >= k && found.beyond < k) {
      Reaching<Blocks> better = {};
      if (found.beyond) better = elements_around(row, holding, cut + 1).reaching;
      reaching.leave_out(better);
      count_ties(holding, reaching, room);
      store_found(row, holding, better, room);
      Blocks::sync();
      write_ties(row, holding, reaching, room, cut, k - found.beyond, found.beyond, answers);
      fetch_entries<Blocks>(room, its.beyond);
      if (!found.beyond) Blocks::wait();
      return found.beyond;
    }
    if (found.reaching >= k) range.bottom = cut + 1, range.within = found.beyond - range.above;
    else range.top = cut - 1, range.within -= found.reaching - range.above, range.above = found.reaching;
    if (range.bottom == range.top || (range.bottom > top && round % 3 == 1)) cut = range.top;  // an infinity, perhaps, or NaN
    else if (round % 3 == 0) cut = range.middle(top);
    else cut = range.between((k + CAPACITY) / 2, top);
  }
}

// Call `answers.put(rank, key, column)` for the ranks of [first, want) among the list's `count` entries, each by some thread: by even
// intervals, or where these crowd by intervals between the entries.
template <class Answers>
__device__ __forceinline__ void rank_listed(const Row& row, const Room& room, unsigned count, unsigned first, unsigned want, const Answers& answers) {
  const auto put = [&](unsigned rank, Key key, unsigned column) {
    if (rank >= first) answers.put(rank, key, column);
  };
  if constexpr (Entries::PACKED) {
    constexpr unsigned PIVOTS = INTERVALS / 4 < 128 ? INTERVALS / 4 : 128;
    Entry* entries = listed_entries(room).packed();
    Held held;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
      const unsigned at = i * THREADS + threadIdx.x;
      const Entry entry = at < count ? entries[at] : 0;
      held.keys[i] = Key(entry >> 32), held.columns[i] = ~unsigned(entry);
    }
    clear_intervals(room.list);
    const Even even = even_intervals(room.list, held, count, row.cols, row.order);
    if (!count_intervals(room.list, held, count, want, even)) return rank_intervals(room.list, held, count, want, even, put);
    rank_crowd<PIVOTS, ITEMS>(entries, count, first, want, reinterpret_cast<Entry*>(room.list.intervals + INTERVALS / 2),
                              room.list.intervals, [&](unsigned rank, Entry entry) { put_entry(answers, rank, entry); });
  } else {
    rank_list(room.list, count, want, row.cols, row.order, put);
  }
}
