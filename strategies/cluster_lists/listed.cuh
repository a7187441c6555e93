// Elements of a block that reach its cut, listed in no order, and how those of all blocks are read.
#pragma once
#include "room.cuh"

// The word that has an element of a line.
__device__ __forceinline__ unsigned word_of_line(uint4 line, int e) {
  const unsigned words[4] = {line.x, line.y, line.z, line.w};
  return words[e / (4 / ELEMENT_BYTES)];
}

// Store elements of the line that is the row's in part, from a slot on.
template <class Blocks> __device__ __forceinline__ void store_part(const Row& row, const Holding<Blocks>& holding, unsigned part, unsigned* slot) {
#pragma unroll 1
  for (; part; part &= part - 1, slot++) {
    const unsigned column = row.column(holding.part_line, __ffs(part) - 1);
    slot[0] = row.data()[column] * (ELEMENT_BYTES == 2 ? 0x10001u : 1u), slot[LIST_ROOM<Blocks>] = column;
  }
}

// Store elements of the lines that a thread holds, from a slot on.
template <class Blocks>
__device__ __forceinline__ void store_held(const Row& row, const Holding<Blocks>& holding, const Reaching<Blocks>& reaching, unsigned* slot) {
  constexpr unsigned COLUMNS = LIST_ROOM<Blocks>;  // from there on
#pragma unroll
  for (int i = 0; i < Blocks::HOLDS; i++) {
    const unsigned column = row.column(holding.line(i), 0);
#pragma unroll
    for (int e = 0; e < VECTOR; e++) {
      const int bit = i * VECTOR + e;
      if (!(reaching.words[bit / 32] >> bit % 32 & 1)) continue;
      slot[0] = word_of_line(holding.bits[i], e), slot[COLUMNS] = column + e;
      slot++;
    }
  }
  store_part(row, holding, reaching.part, slot);
}

// Keep the lines of a thread where its elements are found by their numbers.
template <class Blocks> __device__ __forceinline__ void keep_lines(const Holding<Blocks>& holding, uint4* lines) {
#pragma unroll
  for (int i = 0; i < Blocks::HOLDS; i++) lines[i * THREADS + threadIdx.x] = holding.bits[i];
}

// As `store_held`, of lines that were kept: two elements at a time, so that few of a few threads take few turns.
template <class Blocks>
__device__ __forceinline__ void store_kept(const Row& row, const Holding<Blocks>& holding, const Reaching<Blocks>& reaching, const uint4* lines,
                                           unsigned* slot) {
  constexpr unsigned COLUMNS = LIST_ROOM<Blocks>;
  const unsigned* words = reinterpret_cast<const unsigned*>(lines + threadIdx.x);
  const auto word = [&](unsigned at) { return words[at / VECTOR * (4 * THREADS) + at % VECTOR / (4 / ELEMENT_BYTES)]; };
  const unsigned first = row.column(holding.line(0), 0);
  const auto column = [&](unsigned at) { return first + at / VECTOR * (Holding<Blocks>::STRIDE * VECTOR) + at % VECTOR; };
#pragma unroll
  for (int i = 0; i < Reaching<Blocks>::WORDS; i++) {
#pragma unroll 1
    for (unsigned left = reaching.words[i]; left;) {
      const unsigned one = i * 32 + __ffs(left) - 1;
      left &= left - 1;
      const unsigned other = left ? i * 32 + __ffs(left) - 1 : one;
      const unsigned its[2] = {word(one), word(other)};
      slot[0] = its[0], slot[COLUMNS] = column(one);
      if (left) slot[1] = its[1], slot[COLUMNS + 1] = column(other);
      slot += 2, left &= left - 1;
    }
    if (__popc(reaching.words[i]) % 2) slot--;
  }
  store_part(row, holding, reaching.part, slot);
}

// List lines of a thread that reach a limit, where they are read again. Returns how many the block has: if more than LISTED, not all are
// listed. Has a barrier.
template <bool HALF, class Blocks>
__device__ __forceinline__ unsigned list_lines(const Holding<Blocks>& holding, Limit limit, Key cut, unsigned* lines, unsigned* count) {
  const unsigned chosen = lines_reaching<HALF>(holding, limit), all = __popc(chosen) + (holding.part >= cut);
  unsigned slot = reserve_from(count, all);
  if (slot + all <= LISTED) {
#pragma unroll 1
    for (unsigned left = chosen; left; left &= left - 1) lines[slot++] = holding.line(__ffs(left) - 1);
    if (holding.part >= cut) lines[slot] = holding.part_line;
  }
  __syncthreads();
  return *count;
}

// List elements of these lines that reach the limit.
template <bool HALF, class Blocks>
__device__ __forceinline__ void list_again(const Row& row, const unsigned* lines, unsigned count, Limit limit, Elements elements, unsigned* found) {
#pragma unroll 1
  for (unsigned at = threadIdx.x; at - lane_of() < count; at += THREADS) {
    const unsigned number = at < count ? lines[at] : ~0u;
    unsigned inside = row.whole(number) ? EVERY : 0;
    uint4 line = line_past(row.lines + (inside ? number : 0), inside);
    if (!inside && number != ~0u) line = row.part(number, inside);
    const unsigned chosen = reaching_limit<HALF, 1>(&line, limit) & inside, own = __popc(chosen);
    unsigned slot = reserve_from(found, own);
    if (slot + own > LIST_ROOM<Blocks>) continue;
#pragma unroll
    for (int e = 0; e < VECTOR; e++) {
      if (!(chosen >> e & 1)) continue;
      elements.bits[slot] = word_of_line(line, e), elements.columns[slot] = row.column(number, e);
      slot++;
    }
  }
}

// List the elements of the block that reach a cut, in no order. Returns how many there are: if more than LIST_ROOM, not all are listed, as
// where most are equal to a cut that is `common`. Ends with a barrier.
template <class Blocks>
__device__ __forceinline__ unsigned list_elements(const Row& row, const Holding<Blocks>& holding, const Room& room, Key cut, bool common) {
  const Elements elements = listed_of<Blocks>(room);
  unsigned* found = &room.exchange.found[0];
  bool all_lines = true;
  if constexpr (HELD_LINES<Blocks>) {
    const Key cuts[] = {cut};
    const Reaching<Blocks> reaching = elements_around(row, holding, cuts).of[0];
    const unsigned own = reaching.count();
    const bool dense = common && __any_sync(~0u, own > Blocks::HOLDS * VECTOR / 2);  // slots of the lanes would share banks
    const unsigned slot = reserve_from(found, dense ? LIST_ROOM<Blocks> + 1 : own);
    if (slot + own <= LIST_ROOM<Blocks>) {
      if constexpr (KEEPS) store_kept(row, holding, reaching, room.kept, elements.bits + slot);
      else store_held(row, holding, reaching, elements.bits + slot);
    }
  } else {
    const Limit limit(cut, row.order);
    const bool half = ELEMENT_BYTES == 2 && row.order.half();
    unsigned* count = &room.exchange.lines[0];
    const unsigned lines = half ? list_lines<true>(holding, limit, cut, room.lines, count) : list_lines<false>(holding, limit, cut, room.lines, count);
    all_lines = lines <= LISTED;
    if (all_lines && half) list_again<true, Blocks>(row, room.lines, lines, limit, elements, found);
    else if (all_lines) list_again<false, Blocks>(row, room.lines, lines, limit, elements, found);
  }
  __syncthreads();
  return all_lines ? *found : LIST_ROOM<Blocks> + 1;
}

// Elements are read by groups of as many as a thread reads at once; thread t has every THREADS-th.
constexpr int GROUP = ITEMS < 4 ? ITEMS : 4, GROUPS = ITEMS / GROUP;

template <class T> struct alignas(GROUP * sizeof(T)) Group {
  T each[GROUP];
};

// Where elements are that a thread reads together, if it has any.
struct Read {
  unsigned bits, columns;  // words behind the block's list
  unsigned count;
};

// Of few blocks the groups of one are numbered behind those of another, so that all threads have about as many.
template <class Blocks, int GROUP> __device__ __forceinline__ Read group_at(const Room& room, unsigned own, unsigned number) {
  constexpr unsigned SIZE = SEGMENT<Blocks>;
  unsigned block = 0, first = number * GROUP, count = own;
  if constexpr (Blocks::COUNT > 4) {
    block = first / SIZE, first %= SIZE, count = block < Blocks::COUNT ? room.told.counts[block % Blocks::COUNT] : 0;
  } else if constexpr (Blocks::COUNT > 1) {
    count = room.told.counts[0];
#pragma unroll
    for (unsigned i = 1; i < Blocks::COUNT; i++) {
      const unsigned all = (count + GROUP - 1) / GROUP * GROUP;
      if (block == i - 1 && first >= all) block = i, first -= all, count = room.told.counts[i];
    }
  }
  const unsigned left = first < count ? count - first : 0;
  if (Blocks::COUNT == 1 || block == Blocks::own()) return {first, LIST_ROOM<Blocks> + first, left};
  const unsigned sent = unsigned(room.sent.bits - room.listed.bits) + block * SIZE + first;
  return {sent, sent + CAPACITY, left};
}
