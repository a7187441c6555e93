// A row in the registers of a cluster, as keys. Every block has a part of the row; its thread t has loads t, t + THREADS, ...
// of 16 bytes.
//
// Compile-time: LOADS (of a thread).
#pragma once
#include "answer.cuh"
#include "cluster.cuh"

constexpr int ELEMENTS = LOADS * VECTOR;         // of a thread
constexpr int MASKS = (ELEMENTS + 31) / 32;

// A load of elements as keys, but for NaN, of which it tells.
__device__ __forceinline__ uint4 keys_but_nan(uint4 bits, Order order, bool& nan) {
#if !FLOAT
  return flipped(bits, order);
#elif ELEMENT_BYTES == 4
  const unsigned turn = SIGN ^ order.turn;
  const auto key = [&](unsigned word) { return word ^ (unsigned(int(word) >> 31) & ~SIGN) ^ turn; };
  const auto is_nan = [](unsigned word) { return __uint_as_float(word) != __uint_as_float(word); };
  nan |= (is_nan(bits.x) | is_nan(bits.y)) | (is_nan(bits.z) | is_nan(bits.w));
  return make_uint4(key(bits.x), key(bits.y), key(bits.z), key(bits.w));
#elif ELEMENT_BYTES == 8
  const Key low = key_of(element(bits, 0), order), high = key_of(element(bits, 1), order);
  return make_uint4(unsigned(low), unsigned(low >> 32), unsigned(high), unsigned(high >> 32));
#else
  const unsigned turn = (0x8000u ^ order.turn) * 0x10001u, beyond = (0x7FFFu - order.infinity) * 0x10001u;
  const auto key = [&](unsigned word) { return word ^ (word >> 15 & 0x10001u) * 0x7FFFu ^ turn; };
  const auto high = [&](unsigned word) { return (word & 0x7FFF7FFFu) + beyond; };  // bits 15 and 31 where NaN
  nan |= bool((high(bits.x) | high(bits.y) | high(bits.z) | high(bits.w)) & 0x80008000u);
  return make_uint4(key(bits.x), key(bits.y), key(bits.z), key(bits.w));
#endif
}

// Such a load with the key of NaN where there is any.
__device__ __forceinline__ uint4 with_nan(uint4 bits, Order order) {
#if FLOAT && ELEMENT_BYTES < 8
  unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
  const Key most = SIGN | infinity_of(order), least = SIGN - 1 - infinity_of(order);  // of infinities
#pragma unroll
  for (int w = 0; w < 4; w++) {
#pragma unroll
    for (int shift = 0; shift < 32; shift += 8 * ELEMENT_BYTES) {
      const Key key = (words[w] >> shift & ONES) ^ order.turn;
      if (key > most || key < least) words[w] = (words[w] & ~(ONES << shift)) | (ONES ^ order.turn) << shift;
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
#else
  return bits;
#endif
}

// A load at an end of a row, as keys; 0 behind the row.
__device__ __forceinline__ uint4 edge_keys(const Element* data, unsigned column, unsigned cols, Order order) {
  uint4 bits = make_uint4(0, 0, 0, 0);
  unsigned* words = &bits.x;
#pragma unroll
  for (int e = 0; e < VECTOR; e++) {
    if (column + e >= cols) continue;
    const Key key = key_of(data[column + e], order);
    const int bit = 8 * ELEMENT_BYTES * e;
    words[bit / 32] |= unsigned(key) << bit % 32;
    if (ELEMENT_BYTES == 8) words[bit / 32 + 1] = unsigned(key >> (8 * sizeof(Key) - 32));
  }
  return bits;
}

// 16 bytes that begin `skew` elements behind where a line of 16 bytes does, which the next one goes on from.
__device__ __forceinline__ uint4 shifted(uint4 line, uint4 next, unsigned skew) {
  const unsigned bits = skew * ELEMENT_BYTES * 8;
  unsigned words[8] = {line.x, line.y, line.z, line.w, next.x, next.y, next.z, next.w};
#pragma unroll
  for (int step = 2; step; step /= 2) {
#pragma unroll
    for (int w = 0; w + step < 8; w++) words[w] = bits / 32 & step ? words[w + step] : words[w];
  }
  return make_uint4(__funnelshift_r(words[0], words[1], bits % 32), __funnelshift_r(words[1], words[2], bits % 32),
                    __funnelshift_r(words[2], words[3], bits % 32), __funnelshift_r(words[3], words[4], bits % 32));
}

struct HeldRow {
  uint4 loads[LOADS];
  const Element* data;
  unsigned cols, skew;  // elements from a line of 16 bytes to the row
  unsigned begin, end;  // loads of the block
  unsigned at;          // the first one of this thread
  unsigned whole;       // the end of those that are read at once

  __device__ __forceinline__ Key key(int load, int e) const { return element(loads[load], e); }
  __device__ __forceinline__ unsigned column(int load, int e) const { return at * VECTOR + (load * THREADS * VECTOR + e); }
  // Keys elsewhere are 0.
  __device__ __forceinline__ bool inside(int load, int e) const {
    return load * THREADS + at < end && column(load, e) < cols;
  }

  // Ask for all loads.
  __device__ __forceinline__ void read(const Element* row, unsigned columns) {
    data = row, cols = columns;
    skew = unsigned(reinterpret_cast<unsigned long long>(data) % 16 / ELEMENT_BYTES);
    const uint4* line = reinterpret_cast<const uint4*>(data - skew);
    const unsigned total = (cols + VECTOR - 1) / VECTOR, per = (total + BLOCKS - 1) / BLOCKS;
    begin = min(block_of() * per, total), end = min(begin + per, total), at = begin + threadIdx.x;
    const unsigned lines = (cols + skew) / VECTOR;  // whole ones
    whole = max(min(end, skew && lines ? lines - 1 : lines), begin);
    if (skew == 0) {
#pragma unroll
      for (int i = 0; i < LOADS; i++)
        loads[i] = at + i * THREADS < whole ? __ldcs(line + at + i * THREADS) : make_uint4(0, 0, 0, 0);
    } else {
#pragma unroll
      for (int i = 0; i < LOADS; i++) {
        const uint4* from = line + at + i * THREADS;
        if (at + i * THREADS < whole && at + i * THREADS > 0) loads[i] = shifted(__ldg(from), __ldg(from + 1), skew);
      }
    }
  }

  // Make keys of what was asked for.
  __device__ __forceinline__ void take(Order order) {
    bool nan = false;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const uint4 keys = keys_but_nan(loads[i], order, nan);
      loads[i] = at + i * THREADS < whole ? keys : make_uint4(0, 0, 0, 0);
    }
    if (nan) {
#pragma unroll
      for (int i = 0; i < LOADS; i++)
        if (at + i * THREADS < whole) loads[i] = with_nan(loads[i], order);
    }
  }

  // The loads at the ends of the row, which are read by elements.
  __device__ __forceinline__ void take_edges(Order order) {
#pragma unroll 1
    for (unsigned edge = skew ? begin : whole; edge < end; edge = max(edge + 1, whole)) {
      const unsigned number = edge - begin;
      if ((edge > 0 && edge < whole) || number % THREADS != threadIdx.x) continue;
      const uint4 keys = edge_keys(data, edge * VECTOR, cols, order);
#pragma unroll
      for (int i = 0; i < LOADS; i++) {  // by words: the loads must stay in registers
        const bool here = i == number / THREADS;
        loads[i] = make_uint4(here ? keys.x : loads[i].x, here ? keys.y : loads[i].y, here ? keys.z : loads[i].z,
                              here ? keys.w : loads[i].w);
      }
    }
  }
};

// Which elements of a thread are chosen, a bit each.
struct Chosen {
  unsigned masks[MASKS];

  __device__ __forceinline__ unsigned count() const {
    unsigned sum = 0;
#pragma unroll
    for (int m = 0; m < MASKS; m++) sum += __popc(masks[m]);
    return sum;
  }
  __device__ __forceinline__ bool has(int load, int e) const {
    return masks[(load * VECTOR + e) / 32] >> ((load * VECTOR + e) % 32) & 1;
  }
};

// Elements whose keys are at least `least`, which is above 0.
__device__ __forceinline__ Chosen reaching(const HeldRow& row, Key least) {
  Chosen chosen;
#pragma unroll
  for (int m = 0; m < MASKS; m++) chosen.masks[m] = 0;
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
#pragma unroll
    for (int e = 0; e < VECTOR; e++) {
#if ELEMENT_BYTES == 2  // the upper half of a word compares as the word does
      const uint4 load = row.loads[i];
      const unsigned word = e < 2 ? load.x : e < 4 ? load.y : e < 6 ? load.z : load.w;
      const bool reaches = (e % 2 ? word : word << 16) >= least << 16;
#else
      const bool reaches = row.key(i, e) >= least;
#endif
      if (reaches) chosen.masks[(i * VECTOR + e) / 32] |= 1u << ((i * VECTOR + e) % 32);
    }
  }
  return chosen;
}
