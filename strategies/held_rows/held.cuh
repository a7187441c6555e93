// A row in the registers of a cluster, as keys. Every block has a part of the row, every warp of it a part of that, in loads
// of 16 bytes: its first load is that of all lanes, then comes its second.
//
// Compile-time: LOADS (of a thread).
#pragma once
#include "answer.cuh"
#include "cluster.cuh"

constexpr int ELEMENTS = LOADS * VECTOR;  // of a thread
constexpr int MASKS = (ELEMENTS + 31) / 32;

// A load of elements as keys. NaN is seldom, and costs a branch.
__device__ __forceinline__ uint4 keys_of(uint4 bits, Order order) {
#if !FLOAT
  return flipped(bits, order);
#elif ELEMENT_BYTES == 4
  const unsigned turn = SIGN ^ order.turn;
  const auto key = [&](unsigned word) { return word ^ (unsigned(int(word) >> 31) & ~SIGN) ^ turn; };
  const auto nan = [](unsigned word) { return __uint_as_float(word) != __uint_as_float(word); };
  uint4 keys = make_uint4(key(bits.x), key(bits.y), key(bits.z), key(bits.w));
  if (nan(bits.x) || nan(bits.y) || nan(bits.z) || nan(bits.w))
    keys = make_uint4(key_of(bits.x, order), key_of(bits.y, order), key_of(bits.z, order), key_of(bits.w, order));
  return keys;
#elif ELEMENT_BYTES == 8
  const Key low = key_of(element(bits, 0), order), high = key_of(element(bits, 1), order);
  return make_uint4(unsigned(low), unsigned(low >> 32), unsigned(high), unsigned(high >> 32));
#else
  const unsigned turn = (0x8000u ^ order.turn) * 0x10001u, beyond = (0x7FFFu - order.infinity) * 0x10001u;
  const auto nan = [&](unsigned word) { return (word & 0x7FFF7FFFu) + beyond & 0x80008000u; };  // a bit each
  const auto both = [&](unsigned word) { return word ^ (word >> 15 & 0x10001u) * 0x7FFFu ^ turn; };
  uint4 keys = make_uint4(both(bits.x), both(bits.y), both(bits.z), both(bits.w));
  if (nan(bits.x) | nan(bits.y) | nan(bits.z) | nan(bits.w)) {
    const unsigned best = order.turn * 0x10001u;
    const auto mended = [&](unsigned key, unsigned word) {
      const unsigned where = (nan(word) >> 15) * 0xFFFFu;
      return (key & ~where) | (~best & where);
    };
    keys = make_uint4(mended(keys.x, bits.x), mended(keys.y, bits.y), mended(keys.z, bits.z), mended(keys.w, bits.w));
  }
  return keys;
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
  unsigned cols;
  unsigned skew;     // elements from a line of 16 bytes to the row
  unsigned at, end;  // this thread's first load, and the end of the warp's
  unsigned whole;    // the end of those that may be read at once

  __device__ __forceinline__ Key key(int load, int e) const { return element(loads[load], e); }
  __device__ __forceinline__ unsigned column(int load, int e) const { return (at + load * 32) * VECTOR + e; }
  // Keys elsewhere are 0.
  __device__ __forceinline__ bool inside(int load, int e) const { return at + load * 32 < end && column(load, e) < cols; }

  // Ask for all loads.
  __device__ __forceinline__ void read(const Element* row, unsigned columns) {
    data = row, cols = columns;
    skew = unsigned(reinterpret_cast<unsigned long long>(data) % 16 / ELEMENT_BYTES);
    const uint4* line = reinterpret_cast<const uint4*>(data - skew);
    const unsigned total = (cols + VECTOR - 1) / VECTOR, lines = (cols + skew) / VECTOR;
    const unsigned per = ((total + BLOCKS * WARPS - 1) / (BLOCKS * WARPS) + 7) / 8 * 8;  // of a warp, in lines of 128 bytes
    const unsigned begin = (block_of() * WARPS + warp_of()) * per;
    at = begin + lane_of(), end = min(begin + per, total);
    whole = min(end, skew && lines ? lines - 1 : lines);
    if (skew == 0) {
#pragma unroll
      for (int i = 0; i < LOADS; i++)
        loads[i] = at + i * 32 < whole ? __ldcs(line + at + i * 32) : make_uint4(0, 0, 0, 0);
    } else {
#pragma unroll
      for (int i = 0; i < LOADS; i++) {
        const uint4* from = line + at + i * 32;
        if (at + i * 32 < whole && at + i * 32 > 0) loads[i] = shifted(__ldg(from), __ldg(from + 1), skew);
      }
    }
  }

  // Make keys of loads from one to another.
  template <int FROM, int TO> __device__ __forceinline__ void take(Order order) {
#pragma unroll
    for (int i = FROM; i < TO; i++)
      loads[i] = at + i * 32 < whole ? keys_of(loads[i], order) : make_uint4(0, 0, 0, 0);
  }

  // The loads at the ends of the row, which are read by elements.
  __device__ __forceinline__ void take_edges(Order order) {
    const unsigned begin = at - lane_of();
#pragma unroll 1
    for (unsigned edge = skew && begin == 0 ? 0 : max(whole, begin); edge < end; edge = max(edge + 1, max(whole, begin))) {
      const unsigned number = edge - begin;
      if (number % 32 != lane_of()) continue;
      const uint4 keys = edge_keys(data, edge * VECTOR, cols, order);
#pragma unroll
      for (int i = 0; i < LOADS; i++) {  // by words: the loads must stay in registers
        const bool here = i == number / 32;
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
