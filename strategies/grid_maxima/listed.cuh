// The list of what is known to be above a floor, and of who has more of it.
//
// Compile-time: MOST_PARTS (of a row); LISTED (words for lists of messages); RANKED (entries that are ranked among each other).
#pragma once
#include "guess.cuh"
#include "messages.cuh"
#include "steps.cuh"

constexpr int MOST_MESSAGES = (MOST_PARTS * SENDERS + THREADS - 1) / THREADS;  // of a thread
constexpr unsigned MOST_MORE = LISTED / 4;                                     // senders that have more than they told

constexpr unsigned COLUMN_BITS = ELEMENT_BYTES == 2 ? 12 : 0;  // of a number

// What is listed, beside the list: a number that is larger for what is better, by how far a key is above the floor; of keys of 16 bits, of which
// many are equal, also by the highest bits of the column. Below all where there is no entry.
struct Numbers {
  float* above;  // [CAPACITY], the first RANKED of which are cleared
  unsigned floor, shift;
  unsigned* far;  // not 0 if some are so far above that numbers do not tell them apart

  __device__ __forceinline__ bool is_far(unsigned key) const { return ELEMENT_BYTES == 4 && key > floor && key - floor >= 1u << 24; }
  // Rounded down, so that the largest of a key of 16 bits is below the least of the next.
  __device__ __forceinline__ float of(unsigned key, unsigned column) const {
    if constexpr (COLUMN_BITS == 0) return __uint2float_rz(key - floor);
    else return __uint2float_rz((key - floor) << COLUMN_BITS | ((1u << COLUMN_BITS) - 1 - (column >> shift)));
  }
  __device__ __forceinline__ void put(const List& list, unsigned slot, unsigned key, unsigned column) const {
    above[slot] = of(key, column), list.keys[slot] = key, list.columns[slot] = column;
  }
  __device__ __forceinline__ void add(const List& list, unsigned key, unsigned column) const {
    const unsigned slot = atomicAdd(&list.counters->count, 1u);
    if (slot < CAPACITY) put(list, slot, key, column);
    if (is_far(key)) atomicOr(far, 1u);
  }
};

__device__ __forceinline__ unsigned* senders_of(const List& list) { return list.intervals + INTERVALS; }  // [LISTED]
__device__ __forceinline__ float* numbers_of(const List& list) { return reinterpret_cast<float*>(senders_of(list) + LISTED); }  // [CAPACITY]

__device__ __forceinline__ Numbers numbers_above(const Row& row, const List& list, unsigned floor, Exchange& exchange) {
  return {numbers_of(list), floor, unsigned(max(top_bit_of(row.cols) + 1 - int(COLUMN_BITS), 0)), &exchange.lines[1]};
}

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

// What a thread knows of a row when all is there: some messages, and an element of a line that is the row's in part, at
// its beginning or its end; keys of 0 where there is none.
struct Known {
  Message messages[MOST_MESSAGES];
  unsigned edge, edge_column;

  __device__ __forceinline__ unsigned first_key(int i) const { return Message::key(messages[i].first); }
  __device__ __forceinline__ unsigned second_key(int i) const { return Message::key(messages[i].second); }
  __device__ __forceinline__ unsigned largest() const {
    unsigned largest = edge;
#pragma unroll
    for (int i = 0; i < MOST_MESSAGES; i++) largest = max(largest, first_key(i));
    return largest;
  }
};

// Waits for messages that are not there yet, after what may be done `meanwhile`.
template <class Meanwhile>
__device__ __forceinline__ Known known_of(const Row& row, const Messages& messages, Meanwhile meanwhile) {
  constexpr unsigned EACH = VECTOR - 1;
  Known known;
#pragma unroll
  for (int i = 0; i < MOST_MESSAGES; i++) known.messages[i] = messages.read_or(i * THREADS + threadIdx.x);
  const unsigned head = row.begin ? min(VECTOR - row.skew, row.cols) : 0, tail = row.column(row.end, 0);
  const bool behind = threadIdx.x >= EACH;
  known.edge_column = behind ? max(tail, head) + threadIdx.x - EACH : threadIdx.x;
  const bool has = threadIdx.x < 2 * EACH && known.edge_column < (behind ? row.cols : head);
  const Element edge = has ? row.data()[known.edge_column] : Element(0);
  meanwhile();
#pragma unroll
  for (int i = 0; i < MOST_MESSAGES; i++)
    while (!known.messages[i].there()) {
      __nanosleep(20);
      known.messages[i] = messages.message(i * THREADS + threadIdx.x);
    }
  known.edge = has ? equal_key(edge, row.order) : 0;
  return known;
}

// List what is known to be above the floor, and which senders have more than they told. Before a barrier.
__device__ __forceinline__ void list_above(const Row& row, const Known& known, const Messages& messages, List& list,
                                           const Numbers& numbers, unsigned* senders, Exchange& exchange) {
  const unsigned floor = numbers.floor;
  unsigned own = known.edge > floor;
  unsigned besides = 0;  // messages that may tell of more than their first key
#pragma unroll
  for (int i = 0; i < MOST_MESSAGES; i++) {
    const bool above = known.first_key(i) > floor, second = known.second_key(i) > floor;
    own += above, besides |= unsigned(above && (second || known.messages[i].perhaps_several(floor))) << i;
  }
  const unsigned slot = reserve(list, own);
  if (slot + own > CAPACITY) besides = 0;  // this list is of no use
  else {
    unsigned next = slot;
#pragma unroll
    for (int i = 0; i < MOST_MESSAGES; i++)
      if (known.first_key(i) > floor)
        numbers.put(list, next++, known.first_key(i), messages.column(row, i * THREADS + threadIdx.x, Message::place(known.messages[i].first)));
    if (known.edge > floor) numbers.put(list, next, known.edge, known.edge_column);
  }
  if (numbers.is_far(known.largest())) atomicOr(numbers.far, 1u);
#pragma unroll 1
  for (; besides; besides &= besides - 1) {
    const int number = __ffs(besides) - 1;
    const unsigned sender = number * THREADS + threadIdx.x;
    Message its = known.messages[0];
#pragma unroll
    for (int i = 1; i < MOST_MESSAGES; i++)
      if (number == i) its = known.messages[i];
    if (Message::key(its.second) > floor)
      numbers.add(list, Message::key(its.second), messages.column(row, sender, Message::place(its.second)));
    if (its.bound() > floor) {
      const unsigned at = atomicAdd(&exchange.lines[0], 1u);
      if (at < MOST_MORE) senders[at] = sender, senders[MOST_MORE + at] = its.bound();
    }
  }
}
