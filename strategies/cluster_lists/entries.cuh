// Entries of a list, (key, column), of which the better are the larger and no two are equal.
#pragma once
#include "lines.cuh"

typedef unsigned long long Entry;  // a key and the complement of its column

__device__ __forceinline__ Entry entry_of(Key key, unsigned column) { return Entry(key) << 32 | ~column; }

struct Pair {
  Key key;
  unsigned column;
};

__device__ __forceinline__ Pair pair_of(Entry entry) { return {Key(entry >> 32), ~unsigned(entry)}; }

// As `equal_key`, in half of the instructions: a sum with 0 leaves all numbers as they are but -0, which becomes +0, and makes all NaN one.
__device__ __forceinline__ Key settled_key(Element bits, Order order) {
  constexpr int ABOVE = 32 - 8 * ELEMENT_BYTES;
  unsigned number;
  if (ELEMENT_BYTES == 2 && order.half()) {
    asm("add.f16x2 %0, %1, %2;" : "=r"(number) : "r"(unsigned(bits)), "r"(0));
    number <<= 16;
  } else {
    float sum;
    asm("add.f32 %0, %1, %2;" : "=f"(sum) : "f"(__uint_as_float(unsigned(bits) << ABOVE)), "f"(0.f));
    number = __float_as_uint(sum);
  }
  const Key key = (number ^ (unsigned(int(number) >> 31) | 0x80000000)) >> ABOVE ^ order.turn;
  return key + (key == SIGN - 1);
}

// The largest of the lanes: of those with the largest key.
__device__ __forceinline__ Entry largest_entry(Entry own) {
  const unsigned key = largest_of_lanes(unsigned(own >> 32)), rest = largest_of_lanes(unsigned(own >> 32) == key ? unsigned(own) : 0u);
  return Entry(key) << 32 | rest;
}

template <class Answers> __device__ __forceinline__ void put_entry(const Answers& answers, unsigned rank, Entry entry) {
  answers.put(rank, pair_of(entry).key, pair_of(entry).column);
}

// Where there is room for CAPACITY of them: as words, or keys and columns apart.
template <bool PACKS> struct Entries {
  Key* keys;
  unsigned* columns;

  __device__ __forceinline__ Entry* packed() const { return reinterpret_cast<Entry*>(keys); }
  __device__ __forceinline__ void set(unsigned at, Key key, unsigned column) const {
    if (PACKS) packed()[at] = entry_of(key, column);
    else keys[at] = key, columns[at] = column;
  }
  __device__ __forceinline__ Pair get(unsigned at) const { return PACKS ? pair_of(packed()[at]) : Pair{keys[at], columns[at]}; }

  // How many of those from `first` to `end` are better.
  __device__ __forceinline__ unsigned better_than(Pair one, unsigned first, unsigned end) const {
    const Entry entry = entry_of(one.key, one.column);
    unsigned sum = 0;
#pragma unroll 1
    for (; first < end; first += 4) {
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (first + i < end) sum += PACKS ? packed()[first + i] > entry : better(keys[first + i], columns[first + i], one.key, one.column);
    }
    return sum;
  }
};
