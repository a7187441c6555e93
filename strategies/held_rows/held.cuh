// A row in the registers of a cluster, as keys. Every block has a part of the row; its thread t has loads t, t + THREADS, ...
// of 16 bytes.
//
// Compile-time: LOADS (of a thread).
#pragma once
#include "answer.cuh"
#include "cluster.cuh"

constexpr int ELEMENTS = LOADS * VECTOR;         // of a thread
constexpr int MASKS = (ELEMENTS + 31) / 32;

// A load of elements as keys.
__device__ __forceinline__ uint4 keys_of(uint4 bits, Order order) {
#if !FLOAT
  return flipped(bits, order);
#elif ELEMENT_BYTES == 4
  return make_uint4(key_of(bits.x, order), key_of(bits.y, order), key_of(bits.z, order), key_of(bits.w, order));
#elif ELEMENT_BYTES == 8
  const Key low = key_of(element(bits, 0), order), high = key_of(element(bits, 1), order);
  return make_uint4(unsigned(low), unsigned(low >> 32), unsigned(high), unsigned(high >> 32));
#else
  const unsigned turn = order.turn * 0x10001u, beyond = (0x7FFFu - order.infinity) * 0x10001u;
  const auto both = [&](unsigned word) {
    const unsigned nan = ((word & 0x7FFF7FFFu) + beyond) >> 15 & 0x10001u, negative = word >> 15 & 0x10001u;
    return ((word ^ 0x80008000u ^ negative * 0x7FFFu) | nan * 0xFFFFu) ^ turn;
  };
  return make_uint4(both(bits.x), both(bits.y), both(bits.z), both(bits.w));
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
  unsigned first;   // column of the first element
  unsigned cols;
  unsigned filled;  // loads of the block

  __device__ __forceinline__ Key key(int load, int e) const { return element(loads[load], e); }
  __device__ __forceinline__ unsigned column(int load, int e) const { return first + (load * THREADS * VECTOR + e); }
  // Keys elsewhere are 0.
  __device__ __forceinline__ bool inside(int load, int e) const {
    return load * THREADS + threadIdx.x < filled && column(load, e) < cols;
  }

  __device__ __forceinline__ void read(const Element* data, unsigned columns, Order order) {
    const unsigned skew = unsigned(reinterpret_cast<unsigned long long>(data) % 16 / ELEMENT_BYTES);
    const uint4* line = reinterpret_cast<const uint4*>(data - skew);
    const unsigned total = (columns + VECTOR - 1) / VECTOR, per = (total + BLOCKS - 1) / BLOCKS;
    const unsigned begin = min(block_of() * per, total), end = min(begin + per, total), at = begin + threadIdx.x;
    const unsigned lines = (columns + skew) / VECTOR;  // whole ones
    const unsigned whole = max(min(end, skew && lines ? lines - 1 : lines), begin);
    cols = columns, first = at * VECTOR, filled = end - begin;
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
#pragma unroll
    for (int i = 0; i < LOADS; i++)
      loads[i] = at + i * THREADS < whole ? keys_of(loads[i], order) : make_uint4(0, 0, 0, 0);
#pragma unroll 1
    for (unsigned edge = skew ? begin : whole; edge < end; edge = max(edge + 1, whole)) {
      const unsigned number = edge - begin;
      if ((edge > 0 && edge < whole) || number % THREADS != threadIdx.x) continue;
      const uint4 keys = edge_keys(data, edge * VECTOR, columns, order);
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
    for (int e = 0; e < VECTOR; e++)
      if (row.key(i, e) >= least) chosen.masks[(i * VECTOR + e) / 32] |= 1u << ((i * VECTOR + e) % 32);
  }
  return chosen;
}
