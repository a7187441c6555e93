// What the warps of all blocks tell the one that finishes: two words each, or each pair, written and read at once, so that nobody
// waits for a fence. A word that is not there is 0, as all are between launches.
//
// Compile-time: MERGED (warps of a message, 1 or 2).
#pragma once
#include "streamed.cuh"

constexpr int SENDERS = WARPS / MERGED;  // messages of a block
constexpr unsigned LANES = 32 * MERGED;   // of a sender
constexpr int LANE_BITS = 4 + MERGED, PLACE_BITS = ROUND_BITS + LANE_BITS + ELEMENT_BITS;
constexpr int HALF_BOUND = 31 - PLACE_BITS, KEY_BITS = 8 * ELEMENT_BYTES;
constexpr unsigned PLACES = (1u << PLACE_BITS) - 1;

// Of lanes: their two best elements, unless these are a lane's and not of the same line, and what no other element is better than. A place
// is (round, lane, element).
struct Best {
  unsigned key, place, second_key, second_place, bound;
};

__device__ __forceinline__ unsigned with_lane(unsigned place) {
  const unsigned lane = threadIdx.x % LANES;
  return (place >> ELEMENT_BITS << LANE_BITS | lane) << ELEMENT_BITS | place % (1u << ELEMENT_BITS);
}

__device__ __forceinline__ Best best_of_warp(BestOfThread own) {
  const unsigned most = largest_of_lanes(own.key), first = __ffs(__ballot_sync(~0u, own.key == most)) - 1;
  const bool is_first = lane_of() == first;
  const unsigned rest = is_first ? own.second_key : own.key, next = largest_of_lanes(rest);
  const unsigned second = __ffs(__ballot_sync(~0u, rest == next)) - 1;
  const unsigned left = lane_of() != second ? rest : is_first ? 0 : own.second_key, bound = largest_of_lanes(max(left, own.bound));
  const unsigned place = with_lane(is_first ? own.second_place : own.place);
  return {most, __shfl_sync(~0u, with_lane(own.place), first), next, __shfl_sync(~0u, place, second), bound};
}

__device__ __forceinline__ Best merged(const Best& a, const Best& b) {
  if (b.key > a.key) return {b.key, b.place, max(a.key, b.second_key), a.key >= b.second_key ? a.place : b.second_place,
                             max(max(a.bound, b.bound), a.key >= b.second_key ? max(a.second_key, b.second_key) : a.key)};
  return {a.key, a.place, max(b.key, a.second_key), b.key >= a.second_key ? b.place : a.second_place,
          max(max(a.bound, b.bound), b.key >= a.second_key ? max(a.second_key, b.second_key) : b.key)};
}

// A bound as it is told: its highest bits, all of them where there is room; and the largest that is told so.
__device__ __forceinline__ unsigned told_bound(unsigned bound) {
  if constexpr (KEY_BITS > 2 * HALF_BOUND) return bound >> (KEY_BITS - 2 * HALF_BOUND);
  else return bound << (2 * HALF_BOUND - KEY_BITS);
}
__device__ __forceinline__ unsigned largest_told(unsigned told) {
  constexpr int DROPPED = KEY_BITS - 2 * HALF_BOUND;
  if constexpr (DROPPED > 0) return ((told + 1) << DROPPED) - 1;
  else return told >> -DROPPED;
}

// Without its lowest bits it may seem to be above a floor that it is equal to. Where many elements are equal it is a key of the two, and
// these tell which. No other bound is so large: that of NaN is one of the keys.
constexpr unsigned AS_FIRST = (1u << 2 * HALF_BOUND) - 1, AS_SECOND = AS_FIRST - 1;

// A word is a key, half of the bound, a place, and a bit that tells that it is there.
struct Message {
  unsigned long long first, second;

  __device__ __forceinline__ bool there() const { return first && second; }
  static __device__ __forceinline__ unsigned key(unsigned long long word) { return word >> 32; }
  static __device__ __forceinline__ unsigned place(unsigned long long word) { return unsigned(word) >> 1 & PLACES; }
  // What no other element than the two is better than.
  __device__ __forceinline__ unsigned bound() const {
    const unsigned high = unsigned(first) >> (PLACE_BITS + 1), low = unsigned(second) >> (PLACE_BITS + 1);
    const unsigned told = high << HALF_BOUND | low;
    return told < AS_SECOND ? largest_told(told) : key(told == AS_FIRST ? first : second);
  }
  // Whether it may be above a floor, by half of it.
  __device__ __forceinline__ bool perhaps_several(unsigned floor) const {
    return unsigned(first) >= told_bound(floor) >> HALF_BOUND << (PLACE_BITS + 1);
  }
};

__device__ __forceinline__ Message message_of(Best best) {
  const unsigned as_second = best.bound == best.second_key ? AS_SECOND : told_bound(best.bound);
  const unsigned bound = best.bound == best.key ? AS_FIRST : as_second, high = bound >> HALF_BOUND, low = bound % (1u << HALF_BOUND);
  return {(unsigned long long)best.key << 32 | high << (PLACE_BITS + 1) | best.place << 1 | 1,
          (unsigned long long)best.second_key << 32 | low << (PLACE_BITS + 1) | best.second_place << 1 | 1};
}

// Where the messages of a row are: those of a block are side by side, since what is written at once arrives at once.
struct Messages {
  unsigned long long* words;  // [parts][2][SENDERS]
  unsigned parts, count;

  __device__ __forceinline__ unsigned first_word(unsigned number) const { return number / SENDERS * 2 * SENDERS + number % SENDERS; }
  __device__ __forceinline__ unsigned long long first(unsigned number) const { return read(first_word(number)); }
  __device__ __forceinline__ Message message(unsigned number) const { return {first(number), read(first_word(number) + SENDERS)}; }
  // One that is there and tells of nothing, behind the last.
  __device__ __forceinline__ Message read_or(unsigned number) const { return number < count ? message(number) : Message{1, 1}; }
  __device__ __forceinline__ unsigned long long read(unsigned at) const {
    return *reinterpret_cast<const volatile unsigned long long*>(words + at);
  }
  // A word of a block.
  __device__ __forceinline__ void write(unsigned part, unsigned word, unsigned long long bits) const {
    *reinterpret_cast<volatile unsigned long long*>(words + part * 2 * SENDERS + word) = bits;
  }

  // The first line of a sender, of its first lane.
  __device__ __forceinline__ unsigned line(const Row& row, unsigned number) const {
    return first_line(row, number / SENDERS) + number % SENDERS * LANES;
  }
  // The place of an element of a line of this thread, so many lines behind its first.
  __device__ __forceinline__ unsigned place(unsigned further, unsigned element) const {
    const unsigned round = further / (parts * THREADS);
    return (round << LANE_BITS | threadIdx.x % LANES) << ELEMENT_BITS | element;
  }
  __device__ __forceinline__ unsigned column(const Row& row, unsigned number, unsigned place) const {
    constexpr int LINE_BITS = LANE_BITS + ELEMENT_BITS;  // of a place within a round
    const unsigned first = row.column(line(row, number), 0);
    return first + (place & ((1u << LINE_BITS) - 1)) + (place >> LINE_BITS) * (parts * THREADS * VECTOR);
  }
};

// Ask the L2 cache for the memory of a block's messages: to add words to what it does not have takes longer.
__device__ __forceinline__ void ask_for_memory(const Messages& messages, unsigned part) {
  constexpr unsigned LINE = 128 / sizeof(unsigned long long);
  const unsigned word = threadIdx.x * LINE;
  if (word < 2 * SENDERS) asm volatile("prefetch.global.L2 [%0];" ::"l"(messages.words + part * 2 * SENDERS + word));
}

// Tell what the block's threads found. Has a barrier.
__device__ __forceinline__ void send(const Messages& messages, unsigned part, BestOfThread own) {
  const Best best = best_of_warp(own);
  if constexpr (MERGED == 1) {
    __shared__ unsigned long long words[2 * SENDERS];
    if (lane_of() == 0) {
      const Message message = message_of(best);
      words[warp_of()] = message.first, words[SENDERS + warp_of()] = message.second;
    }
    __syncthreads();
    if (threadIdx.x < 2 * SENDERS) messages.write(part, threadIdx.x, words[threadIdx.x]);
  } else {
    __shared__ Best bests[WARPS];
    if (lane_of() == 0) bests[warp_of()] = best;
    __syncthreads();
    if (threadIdx.x >= 2 * SENDERS) return;
    const unsigned sender = threadIdx.x % SENDERS;
    const Message message = message_of(merged(bests[2 * sender], bests[2 * sender + 1]));
    messages.write(part, threadIdx.x, threadIdx.x < SENDERS ? message.first : message.second);
  }
}
