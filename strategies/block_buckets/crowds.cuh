// Entries of a row, and what many of them that have the same key are put in order by: a map of their columns.
#pragma once
#include "elements.cuh"

typedef Unsigned<ELEMENT_BYTES == 4 ? 8 : 4>::type Entry;  // a word and, where that tells no column, its complement

__device__ __forceinline__ Entry entry_of(Word word, unsigned column) {
  return COLUMN_BITS ? Entry(word) : Entry((unsigned long long)word << 32 | ~column);
}
__device__ __forceinline__ Word word_of(Entry entry) {
  return COLUMN_BITS ? Word(entry) : Word((unsigned long long)entry >> 32);
}
__device__ __forceinline__ unsigned column_of(Entry entry) {
  return COLUMN_BITS ? ~Word(entry) & COLUMNS : ~Word(entry);
}

struct Room {
  Entry* entries;    // [CAPACITY]
  unsigned* counts;  // [INTERVALS + 1] of buckets
  Exchange& exchange;
  Counters& counters;
};

__device__ __forceinline__ Room room_of(unsigned char* dynamic, Counters& counters, Exchange& exchange) {
  unsigned char* memory = kept(dynamic);
  return {reinterpret_cast<Entry*>(memory), reinterpret_cast<unsigned*>(memory + CAPACITY * sizeof(Entry)),
          *kept(&exchange), *kept(&counters)};
}

template <class Answers>
__device__ __forceinline__ void put_word(const Answers& answers, unsigned rank, Entry entry) {
  const Key key = key_of_word(word_of(entry));
  answers.put(rank, key == SIGN - 1 ? SIGN : key, column_of(entry));
}

// A map of columns, a bit each, in counters that are of no other use here.
constexpr unsigned MAP = (THREADS * ELEMENTS + EDGES + 31) / 32, MAP_OF_LANE = (MAP + 31) / 32;  // words
constexpr unsigned MAP_END = 32 * MAP_OF_LANE, MOST_CROWDS = CAPACITY / CROWD + 1;
constexpr bool HAS_MAP = MAP_END + 33 + MOST_CROWDS <= 3 * BINS;
constexpr unsigned MOST_KEYS = 8, ENOUGH_KEYS = 3;  // of all crowds; to sort them takes no longer than more

struct Map {
  unsigned* words;   // [MAP_END]
  unsigned* before;  // bits in the words of lanes before each, and in all

  __device__ __forceinline__ explicit Map(const Room& room) : words(room.counters.bins[0]), before(words + MAP_END) {}
  __device__ __forceinline__ void clear() const {
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < MAP_END; i += THREADS) words[i] = 0;
  }
  __device__ __forceinline__ void mark(unsigned column) const { atomicOr(&words[column / 32], 1u << column % 32); }

  // Begins and ends with a barrier.
  __device__ __forceinline__ void add_up() const {
    __syncthreads();
    if (warp_of() == 0) {
      unsigned own = 0, all;
#pragma unroll
      for (unsigned i = 0; i < MAP_OF_LANE; i++) own += __popc(words[lane_of() * MAP_OF_LANE + i]);
      before[lane_of()] = scan_lanes(own, all) - own;
      if (lane_of() == 0) before[32] = all;
    }
    __syncthreads();
  }

  // How many columns before the first of a word are marked.
  __device__ __forceinline__ unsigned before_word(unsigned word) const {
    const unsigned lane = word / MAP_OF_LANE;
    unsigned sum = before[lane];
    for (unsigned other = lane * MAP_OF_LANE; other < word; other++) sum += __popc(words[other]);
    return sum;
  }
};

// Call `answers.put(rank, key, column)` for the first `want` by columns of the elements that have a key, ranks from
// `above` on. Begins with a barrier.
template <class Answers>
__device__ __forceinline__ void put_ties(const Elements& elements, const Room& room, const Row& row, Key key,
                                         unsigned want,
                                         unsigned above, const Answers& answers) {
  const Key its = key == SIGN - 1 ? SIGN : key;
  if constexpr (HAS_MAP) {
    const Map map(room);
    __syncthreads();
    map.clear();
    __syncthreads();
    elements.visit([&](Word word, unsigned column) {
      if (key_of_word(word) == key) map.mark(column);
    });
    map.add_up();
#pragma unroll 1
    for (unsigned word = threadIdx.x; word < MAP; word += THREADS) {
      unsigned rank = map.before_word(word);
#pragma unroll 1
      for (unsigned bits = map.words[word]; bits && rank < want; bits &= bits - 1, rank++)
        answers.put(above + rank, its, word * 32 + __ffs(bits) - 1);
    }
  } else {
    write_ties<1>(row, room.exchange, its, want, above, answers);
  }
}

// Of words.
struct Words {
  Word least, most;
};

// Of all threads'; has two barriers.
__device__ __forceinline__ Words words_of_block(const Room& room, Words own) {
  own = {least_of_lanes(own.least), largest_of_lanes(own.most)};
  __syncthreads();
  if (lane_of() == 0) room.counters.keys[0][warp_of()] = own.least, room.counters.keys[1][warp_of()] = own.most;
  __syncthreads();
  const int warp = lane_of() < WARPS ? lane_of() : 0;
  return {least_of_lanes(unsigned(room.counters.keys[0][warp])),
          largest_of_lanes(unsigned(room.counters.keys[1][warp]))};
}

// Call `answers.put(rank, key, column)` for the best `want` of entries [begin, end), key by key, and for those of a key
// by columns. Counts keys, and returns whether there are few. Begins and ends with a barrier.
template <class Answers>
__device__ __forceinline__ bool rank_crowd(const Room& room, unsigned begin, unsigned end, unsigned want,
                                           unsigned& keys,
                                           const Answers& answers) {
  const Map map(room);
  Key limit = ONES;
#pragma unroll 1
  for (unsigned rank = begin; rank < min(end, want); rank += map.before[32], limit--) {
    const bool last = end - rank <= CROWD;  // so few are left that they rank among each other
    if (!last && keys++ == MOST_KEYS) return false;
    __syncthreads();
    if (last) {
#pragma unroll 1
      for (unsigned at = begin + threadIdx.x; at < end; at += THREADS) {
        const Entry entry = room.entries[at];
        if (key_of_word(word_of(entry)) > limit) continue;
        unsigned its = rank;
#pragma unroll 4
        for (unsigned other = begin; other < end; other++)
          its += room.entries[other] > entry && key_of_word(word_of(room.entries[other])) <= limit;
        if (its < want) put_word(answers, its, entry);
      }
      break;
    }
    Key key = 0;
#pragma unroll 1
    for (unsigned at = begin + threadIdx.x; at < end; at += THREADS) {
      const Key its = key_of_word(word_of(room.entries[at]));
      if (its <= limit) key = max(key, its);
    }
    map.clear();
    limit = words_of_block(room, {0, key}).most;
#pragma unroll 1
    for (unsigned at = begin + threadIdx.x; at < end; at += THREADS) {
      const Entry entry = room.entries[at];
      if (key_of_word(word_of(entry)) == limit) map.mark(column_of(entry));
    }
    map.add_up();
    if (keys >= ENOUGH_KEYS && map.before[32] * MOST_KEYS < end - rank - CROWD) return false;  // there are more keys
#pragma unroll 1
    for (unsigned at = begin + threadIdx.x; at < end; at += THREADS) {
      const Entry entry = room.entries[at];
      if (key_of_word(word_of(entry)) != limit) continue;
      const unsigned column = column_of(entry);
      const unsigned in_word = map.words[column / 32] & ((1u << column % 32) - 1);
      const unsigned its = rank + map.before_word(column / 32) + __popc(in_word);
      if (its < want) put_word(answers, its, entry);
    }
  }
  __syncthreads();
  return true;
}

// The same for all buckets that crowd. Begins and ends with a barrier.
template <int COUNT, class Answers>
__device__ __forceinline__ bool rank_crowds(const Room& room, unsigned want, const Answers& answers) {
  unsigned* crowds = room.counters.bins[0] + MAP_END + 33;
  __syncthreads();
#pragma unroll 1
  for (unsigned bucket = threadIdx.x; bucket < COUNT; bucket += THREADS) {
    const unsigned begin = bucket ? room.counts[bucket - 1] : 0;
    if (begin < want && room.counts[bucket] - begin > CROWD) crowds[atomicAdd(&room.counters.count, 1u)] = bucket;
  }
  __syncthreads();
  unsigned keys = 0;
  const unsigned count = room.counters.count;
  bool few = true;
#pragma unroll 1
  for (unsigned i = 0; i < count && few; i++)
    few = rank_crowd(room, crowds[i] ? room.counts[crowds[i] - 1] : 0, room.counts[crowds[i]], want, keys, answers);
  __syncthreads();
  if (threadIdx.x == 0) room.counters.count = 0;
  __syncthreads();
  return few;
}
