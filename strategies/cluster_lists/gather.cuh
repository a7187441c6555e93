// Lists of the blocks of a cluster: every block lists what reaches a cut of its own and sends it to all others.
#pragma once
#include "holding.cuh"
#include "share.cuh"

template <class Blocks> constexpr unsigned SEGMENT = CAPACITY / Blocks::COUNT;  // of entries, for each block
// Lines that a thread takes elements from.
template <class Blocks> constexpr int AT_ONCE = LISTED < 2 * THREADS || SEGMENT<Blocks> < 2 * THREADS ? 1 : 2;

// What blocks tell all others, by their numbers; rounds take turns with counts.
struct Told {
  unsigned counts[2][BLOCKS];
  Key cuts[BLOCKS], tops[BLOCKS];
  unsigned places[BLOCKS];  // of the cuts
  unsigned ranks[WARPS];  // of the block's own warps
};

struct Room {
  List list;          // of entries in their places
  Key* keys;          // [CAPACITY] of the entries of all blocks, in a segment for each; 0 where there is none
  unsigned* columns;  // [CAPACITY]
  uint4* bits;        // [LISTED] lines that reach the block's cut
  unsigned* lines;    // [LISTED] which
  Told& told;
  Exchange& exchange;
};

__device__ __forceinline__ Room room_of(unsigned char* dynamic, Counters& counters, Exchange& exchange) {
  const List list = list_of(dynamic, &counters);
  uint4* bits = reinterpret_cast<uint4*>(list.intervals + INTERVALS);
  Key* keys = reinterpret_cast<Key*>(bits + LISTED);
  unsigned* columns = reinterpret_cast<unsigned*>(keys + CAPACITY);
  unsigned* lines = columns + CAPACITY;
  return {list, keys, columns, bits, lines, *reinterpret_cast<Told*>(lines + LISTED), *kept(&exchange)};
}

// List the block's lines that reach a cut, of which none is 0, in no order. Returns how many there are: if more than LISTED, not all
// are listed. Has a barrier.
template <class Blocks>
__device__ __forceinline__ unsigned list_lines(const Holding<Blocks>& holding, const Room& room, unsigned* count, Key cut) {
  unsigned chosen = 0;
#pragma unroll
  for (int i = 0; i < Blocks::HOLDS; i++) chosen |= unsigned(holding.best[i] >= cut) << i;
  const bool part = holding.part >= cut;
  unsigned slot = reserve_from(count, __popc(chosen) + part);
#pragma unroll
  for (int i = 0; i < Blocks::HOLDS; i++) {
    if ((chosen >> i & 1) && slot < LISTED) room.bits[slot] = holding.bits[i], room.lines[slot] = holding.line(i);
    slot += chosen >> i & 1;
  }
  if (part && slot < LISTED) room.lines[slot] = holding.part_line;
  __syncthreads();
  return *count;
}

// List the elements of the block's first lines that reach a cut, in no order, and count them: more than a segment are not all listed.
template <class Blocks>
__device__ __forceinline__ void list_elements(const Row& row, const Room& room, unsigned listed, unsigned* count, Key cut) {
  constexpr int COUNT = AT_ONCE<Blocks>;
  const unsigned segment = Blocks::own() * SEGMENT<Blocks>;
#pragma unroll 1
  for (unsigned first = threadIdx.x; first - lane_of() < listed; first += COUNT * THREADS) {
    uint4 bits[COUNT];
    unsigned line[COUNT], chosen[COUNT], own = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const unsigned at = first + i * THREADS;
      line[i] = at < listed ? room.lines[at] : ~0u, bits[i] = make_uint4(0, 0, 0, 0);
      unsigned inside = row.whole(line[i]) ? EVERY : 0;
      if (inside) bits[i] = room.bits[at];
      else if (line[i] != ~0u) bits[i] = row.part(line[i], inside);
      chosen[i] = elements_reaching(bits[i], inside, cut, row.order);
      own += __popc(chosen[i]);
    }
    unsigned slot = reserve_from(count, own);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
#pragma unroll
      for (int e = 0; e < VECTOR; e++) {
        if ((chosen[i] >> e & 1) && slot < SEGMENT<Blocks>)
          room.keys[segment + slot] = equal_key(element(bits[i], e), row.order), room.columns[segment + slot] = row.column(line[i], e);
        slot += chosen[i] >> e & 1;
      }
    }
  }
}

// Tell all blocks this one's cut, and the largest key that it has looked at; before a barrier of the cluster.
template <class Blocks> __device__ __forceinline__ void tell_cut(const Room& room, Cut cut, Key top) {
  if (threadIdx.x >= Blocks::COUNT) return;
  Told* told = Blocks::of(&room.told, threadIdx.x);
  told->cuts[Blocks::own()] = cut.key, told->places[Blocks::own()] = cut.place, told->tops[Blocks::own()] = top;
}

// The highest cut of all blocks: what reaches it, all have listed.
template <class Blocks> __device__ __forceinline__ Cut highest_cut(const Room& room) {
  const unsigned block = lane_of() % Blocks::COUNT;
  const Key its = room.told.cuts[block], key = largest_of_lanes(its);
  return {key, largest_of_lanes(its == key ? room.told.places[block] : 0)};
}

template <class T> struct alignas(16) Four {
  T each[4];
};

// Copy this block's segment of an array to the block `to`, by `threads` threads of which this is number `own`.
template <class Blocks, class T>
__device__ __forceinline__ void send_array(T* array, unsigned count, unsigned to, unsigned own, unsigned threads) {
  array += Blocks::own() * SEGMENT<Blocks>;
  T* its = Blocks::of(array, to);
#pragma unroll 1
  for (unsigned at = own; at < count / 4; at += threads) reinterpret_cast<Four<T>*>(its)[at] = reinterpret_cast<Four<T>*>(array)[at];
  if (own < count % 4) its[count - 1 - own] = array[count - 1 - own];
}

// Send the block's entries to all others.
template <class Blocks> __device__ __forceinline__ void send_entries(const Room& room, unsigned count) {
  constexpr unsigned SENDERS = THREADS / Blocks::COUNT;  // threads for each of the others
  const unsigned to = threadIdx.x / SENDERS, own = threadIdx.x % SENDERS;
  if (to == Blocks::own()) return;
  send_array<Blocks>(room.keys, count, to, own, SENDERS);
  send_array<Blocks>(room.columns, count, to, own, SENDERS);
}

// Entries of all blocks: thread t has every THREADS-th group of as many as it reads at once.
constexpr int GROUP = ITEMS < 4 ? ITEMS : 4;

template <class T> struct alignas(GROUP * sizeof(T)) Group {
  T each[GROUP];
};

__device__ __forceinline__ unsigned place_of(int item) { return (item / GROUP * THREADS + threadIdx.x) * GROUP + item % GROUP; }

// Their keys; 0 of those that do not reach a cut by their columns.
__device__ __forceinline__ void read_keys(const Room& room, Cut cut, Key (&keys)[ITEMS]) {
#pragma unroll
  for (int i = 0; i < ITEMS; i += GROUP) {
    Group<Key> group = {};
    if (place_of(i) < CAPACITY) group = reinterpret_cast<const Group<Key>*>(room.keys)[place_of(i) / GROUP];
#pragma unroll
    for (int j = 0; j < GROUP; j++) keys[i + j] = group.each[j];
  }
  if (!cut.place) return;
#pragma unroll
  for (int i = 0; i < ITEMS; i++)
    if (keys[i] == cut.key && ~room.columns[place_of(i)] < cut.place) keys[i] = 0;
}

__device__ __forceinline__ void clear_entries(const Room& room) {
#pragma unroll
  for (int i = 0; i < ITEMS; i += GROUP)
    if (place_of(i) < CAPACITY) reinterpret_cast<Group<Key>*>(room.keys)[place_of(i) / GROUP] = {};
}

// Count entries of all blocks that reach a cut by intervals, of this thread's ~0 where they do not.
template <class Intervals>
__device__ __forceinline__ void count_entries(const Room& room, const Key (&keys)[ITEMS], Key cut, Intervals by,
                                              unsigned (&intervals)[ITEMS]) {
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const bool reaches = keys[i] >= cut;
    const unsigned column = reaches && by.of_columns() ? room.columns[place_of(i)] : 0;
    intervals[i] = reaches ? by.interval(keys[i], column) : ~0u;
    if (reaches) atomicAdd(&room.list.intervals[intervals[i]], 1u);
  }
}

// Intervals of the entries that reach a cut where they crowd in even ones. Has barriers.
__device__ __forceinline__ AmidTies crowded_intervals(const Room& room, const Key (&keys)[ITEMS], Cut cut,
                                                      const Row& row) {
  return amid_ties_of(*room.list.counters, row.cols, row.order, [&](auto entry) {
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
      if (keys[i] >= cut.key) entry(keys[i], room.columns[place_of(i)]);
  });
}

// Put entries of the intervals that have the share's ranks in places, and call `put(rank, key, column)` for these
// ranks.
template <class Intervals, class Put>
__device__ __forceinline__ void rank_share(const Room& room, const Key (&keys)[ITEMS],
                                           const unsigned (&intervals)[ITEMS], Share share,
                                           Places places, Intervals by, Put put) {
  unsigned slots[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const bool shares = intervals[i] >= places.first && intervals[i] <= places.last;
    slots[i] = shares ? atomicAdd(&room.list.intervals[intervals[i]], 1u) : ~0u;
  }
#pragma unroll
  for (int i = 0; i < ITEMS; i++)
    if (slots[i] != ~0u) room.list.keys[slots[i]] = keys[i], room.list.columns[slots[i]] = room.columns[place_of(i)];
  __syncthreads();
  rank_places(room.list, share, places, by, put);
}

// Entries that reach a cut to the list. Returns how many. Has a barrier.
__device__ __forceinline__ unsigned bring_together(const Room& room, const Key (&keys)[ITEMS], Cut cut) {
  unsigned own = 0;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) own += keys[i] >= cut.key;
  unsigned slot = reserve_from(&room.list.counters->count, own);
#pragma unroll
  for (int i = 0; i < ITEMS; i++)
    if (keys[i] >= cut.key) room.list.keys[slot] = keys[i], room.list.columns[slot++] = room.columns[place_of(i)];
  __syncthreads();
  return room.list.counters->count;
}

// List the best of the block's elements, as many as there is room for or some fewer, and tell the cut that they reach;
// of about `likely` that reach `cut`. Counts at `count`, which is 0; intervals are clear.
template <class Blocks>
__device__ __forceinline__ unsigned list_fitting(const Row& row, unsigned k, const Room& room, unsigned* count,
                                                 Key top, unsigned likely,
                                                 Cut& cut) {
  constexpr unsigned SPACE = SEGMENT<Blocks>, MOST = SPACE - SPACE / 8;
  const Again again = lines_again<Blocks>(row);
  const List& list = room.list;
  const auto count_fitting = [&](Fitting fitting, unsigned left) {
    visit_elements(row, again, [&](Key key, unsigned column) {
      if (fitting.counts(key, column)) atomicAdd(&list.intervals[fitting.interval(key, column)], 1u);
    });
    __syncthreads();
    const Places places = add_up(list, {left, left});
    clear_intervals(list);
    __syncthreads();
    return Fits{places.first, places.begin, places.total};
  };
  cut = cut_to_fit(cut.key, top, row.cols, likely, k <= SPACE ? max(k, MOST) : MOST, SPACE, count_fitting);
  Key* keys = room.keys + Blocks::own() * SPACE;
  unsigned* columns = room.columns + Blocks::own() * SPACE;
  const auto store = [&](unsigned slot, Key key, unsigned column) { keys[slot] = key, columns[slot] = column; };
  store_elements(row, again, cut, 0, count, store);
  __syncthreads();
#pragma unroll 1
  // of the list that ran over
  for (unsigned slot = *count + threadIdx.x; slot < SPACE; slot += THREADS) keys[slot] = 0;
  return *count;
}
