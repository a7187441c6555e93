// The list of what is known to be above a floor, and of who has more of it.
//
// Compile-time: MOST_PARTS (of a row); LISTED (words for lists of messages); RANKED (entries that are ranked among each other).
#pragma once
#include "guess.cuh"
#include "messages.cuh"

constexpr int MOST_MESSAGES = (MOST_PARTS * SENDERS + THREADS - 1) / THREADS;  // of a thread
constexpr unsigned LANES = 32 * MERGED;                                        // of a sender
constexpr unsigned MOST_MORE = LISTED / 4;                                     // senders that have more than they told
constexpr unsigned IS_COLUMN = 1u << 31;  // of what is listed as a column, else the number of a message, and a place in its lines

__device__ __forceinline__ unsigned told_of(unsigned sender, unsigned place) { return sender << PLACE_BITS | place; }
__device__ __forceinline__ unsigned column_of(const Row& row, const Messages& messages, unsigned told) {
  return told & IS_COLUMN ? told ^ IS_COLUMN : messages.column(row, told >> PLACE_BITS, told & ((1u << PLACE_BITS) - 1));
}

// What is listed, beside the list: how far a key is above the floor, as a number; below it where there is no entry.
struct Numbers {
  float* above;  // [RANKED]
  unsigned floor;
  unsigned* far;  // not 0 if some are so far above that numbers do not tell them apart

  __device__ __forceinline__ void add(const List& list, unsigned slot, unsigned key, unsigned told) const {
    if (slot < RANKED) above[slot] = __uint2float_rn(key - floor);
    if (key - floor >= 1u << 24) atomicOr(far, 1u);
    if (slot < CAPACITY) list.keys[slot] = key, list.columns[slot] = told;
  }
};

__device__ __forceinline__ unsigned* senders_of(const List& list) { return list.intervals + INTERVALS; }  // [LISTED]
__device__ __forceinline__ float* numbers_of(const List& list) { return reinterpret_cast<float*>(senders_of(list) + LISTED); }  // [RANKED]

__device__ __forceinline__ void clear_listed(const List& list, Exchange& exchange) {
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < RANKED; i += THREADS) numbers_of(list)[i] = -1, list.columns[i] = 0;
  if (threadIdx.x == 0) list.counters->count = exchange.lines[0] = exchange.lines[1] = 0;
}

// What finishing needs; a barrier is between this and that.
__device__ __forceinline__ void clear_memory(List list, Exchange& exchange) {
  clear_counters(list);
  clear_intervals(list);
  clear_listed(list, exchange);
  if (threadIdx.x < 3) exchange.found[threadIdx.x] = 0;
}

// An element of a line that is the row's in part, at its beginning or its end: of some threads.
struct Edge {
  unsigned key, column;
};

__device__ __forceinline__ Edge edge_of_thread(const Row& row) {
  constexpr unsigned EACH = VECTOR - 1;
  const unsigned head = row.begin ? min(VECTOR - row.skew, row.cols) : 0, tail = row.column(row.end, 0);
  const bool behind = threadIdx.x >= EACH;
  const unsigned column = behind ? max(tail, head) + threadIdx.x - EACH : threadIdx.x;
  const bool has = threadIdx.x < 2 * EACH && column < (behind ? row.cols : head);
  return {has ? equal_key(row.data()[column], row.order) : 0u, has ? column : ~0u};
}

// List what is known to be above the floor, and which senders have more than they told. Before a barrier.
__device__ __forceinline__ void list_above(const Message (&its)[MOST_MESSAGES], Edge edge, List& list, const Numbers& numbers,
                                           unsigned* senders, Exchange& exchange) {
  const unsigned floor = numbers.floor;
  unsigned chosen = 0, own = edge.key > floor;
#pragma unroll
  for (int i = 0; i < MOST_MESSAGES; i++) {
    const bool above = Message::key(its[i].first) > floor;
    chosen |= unsigned(above) << i, own += above + (Message::key(its[i].second) > floor);
  }
  unsigned slot = reserve(list, own);
#pragma unroll 1
  for (; chosen; chosen &= chosen - 1) {
    const int number = __ffs(chosen) - 1;
    Message message = its[0];
#pragma unroll
    for (int i = 1; i < MOST_MESSAGES; i++)
      if (number == i) message = its[i];
    const unsigned sender = number * THREADS + threadIdx.x;
    numbers.add(list, slot++, Message::key(message.first), told_of(sender, Message::place(message.first)));
    if (Message::key(message.second) > floor)
      numbers.add(list, slot++, Message::key(message.second), told_of(sender, Message::place(message.second)));
    if (message.several(floor)) {
      const unsigned at = atomicAdd(&exchange.lines[0], 1u);
      if (at < MOST_MORE) senders[at] = sender;
    }
  }
  if (edge.key > floor) numbers.add(list, slot, edge.key, edge.column | IS_COLUMN);
}
