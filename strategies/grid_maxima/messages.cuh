// What the warps of all blocks tell the one that finishes: two words each, or each pair, written and read at once, so that nobody
// waits for a fence. A word that is not there is 0, as all are between launches.
//
// Compile-time: MERGED (warps of a message, 1 or 2).
#pragma once
#include "streamed.cuh"

constexpr int SENDERS = WARPS / MERGED;  // messages of a block
constexpr int LANE_BITS = 4 + MERGED, PLACE_BITS = ROUND_BITS + LANE_BITS + ELEMENT_BITS;
constexpr int HALF_BOUND = 31 - PLACE_BITS, DROPPED = ELEMENT_BYTES == 4 ? 32 - 2 * HALF_BOUND : 0;

// Of lanes: their two best elements, unless these are a lane's and not of the same line, and what no other element is better than. A place
// is (round, lane, element).
struct Best {
  unsigned key, place, second_key, second_place, bound;
};

__device__ __forceinline__ unsigned with_lane(unsigned place) {
  const unsigned lane = warp_of() % MERGED * 32 + lane_of();
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

// A bound is told without its lowest bits, so that it may seem to be above a floor that it is equal to. Where many elements are equal it
// is a key of the two, and these tell which. No other bound is so large: that of NaN is one of the keys.
constexpr unsigned AS_FIRST = (1u << 2 * HALF_BOUND) - 1, AS_SECOND = AS_FIRST - 1;

// A word is a key, half of the bound, a place, and a bit that tells that it is there.
struct Message {
  unsigned long long first, second;

  __device__ __forceinline__ bool there() const { return first && second; }
  static __device__ __forceinline__ unsigned key(unsigned long long word) { return word >> 32; }
  static __device__ __forceinline__ unsigned place(unsigned long long word) { return unsigned(word) >> 1 & ((1u << PLACE_BITS) - 1); }
  // Whether more than the two may have keys above `floor`.
  __device__ __forceinline__ bool several(unsigned floor) const {
    const unsigned high = unsigned(first) >> (PLACE_BITS + 1), low = unsigned(second) >> (PLACE_BITS + 1);
    const unsigned told = high << HALF_BOUND | low;
    if (told >= AS_SECOND) return key(told == AS_FIRST ? first : second) > floor;
    return floor != ~0u && told >= (floor + 1) >> DROPPED;
  }
};

__device__ __forceinline__ Message message_of(Best best) {
  const unsigned as_second = best.bound == best.second_key ? AS_SECOND : best.bound >> DROPPED;
  const unsigned bound = best.bound == best.key ? AS_FIRST : as_second, high = bound >> HALF_BOUND, low = bound % (1u << HALF_BOUND);
  return {(unsigned long long)best.key << 32 | high << (PLACE_BITS + 1) | best.place << 1 | 1,
          (unsigned long long)best.second_key << 32 | low << (PLACE_BITS + 1) | best.second_place << 1 | 1};
}

// Where the messages of a row are: those of neighbours are far apart, so that rows in order crowd nowhere.
struct Messages {
  unsigned long long* words;  // [2][count]: all first ones, all second ones
  unsigned parts, count;

  __device__ __forceinline__ unsigned number(unsigned part, unsigned sender) const { return sender * parts + part; }
  __device__ __forceinline__ unsigned long long read(unsigned at) const {
    return *reinterpret_cast<const volatile unsigned long long*>(words + at);
  }
  __device__ __forceinline__ void write(unsigned at, unsigned long long word) const {
    *reinterpret_cast<volatile unsigned long long*>(words + at) = word;
  }
  __device__ __forceinline__ Message message(unsigned number) const { return {read(number), read(count + number)}; }
  // One that is there and tells of nothing, behind the last.
  __device__ __forceinline__ Message read_or(unsigned number) const { return number < count ? message(number) : Message{1, 1}; }

  // The first line of a sender, of its first lane.
  __device__ __forceinline__ unsigned line(const Row& row, unsigned number) const {
    return first_line(row, number % parts) + number / parts * (32 * MERGED);
  }
  // The place of an element of a line of this thread, so many lines behind its first.
  __device__ __forceinline__ unsigned place(unsigned further, unsigned element) const {
    const unsigned round = further / (parts * THREADS);
    return (round << LANE_BITS | threadIdx.x % (32 * MERGED)) << ELEMENT_BITS | element;
  }
  __device__ __forceinline__ unsigned column(const Row& row, unsigned number, unsigned place) const {
    const unsigned round = place >> (LANE_BITS + ELEMENT_BITS), lane = place >> ELEMENT_BITS & (32 * MERGED - 1);
    return row.column(line(row, number) + lane + round * parts * THREADS, place % (1u << ELEMENT_BITS));
  }
};

__device__ __forceinline__ void write_words(const Messages& messages, unsigned part, unsigned sender, Best best) {
  const Message message = message_of(best);
  const unsigned number = messages.number(part, sender);
  messages.write(number, message.first), messages.write(messages.count + number, message.second);
}

// Tell what the block's threads found. Has a barrier.
__device__ __forceinline__ void send(const Messages& messages, unsigned part, BestOfThread own) {
  const Best best = best_of_warp(own);
  if constexpr (MERGED == 1) {
    if (lane_of() == 0) write_words(messages, part, warp_of(), best);
    __syncthreads();
  } else {
    __shared__ Best bests[WARPS];
    if (lane_of() == 0) bests[warp_of()] = best;
    __syncthreads();
    if (threadIdx.x < SENDERS) write_words(messages, part, threadIdx.x, merged(bests[2 * threadIdx.x], bests[2 * threadIdx.x + 1]));
  }
}
