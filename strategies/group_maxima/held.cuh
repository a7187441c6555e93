// A row in the shared memory of a block: loads of 16 bytes, from the one that the row begins in on. Thread t looks at loads
// t, t + THREADS, ...
#pragma once
#include "answer.cuh"

struct HeldRow {
  uint4* loads;
  unsigned count;  // of loads
  unsigned skew;   // elements of the first load before the row
  unsigned cols;
  Order order;

  __device__ __forceinline__ unsigned column(unsigned load, int e) const { return load * VECTOR + e - skew; }

  // Call `look(load, bits)` for every load of this thread.
  template <class Look> __device__ __forceinline__ void each_load(Look look) const {
#pragma unroll 4
    for (unsigned load = threadIdx.x; load < count; load += THREADS) look(load, loads[load]);
  }

  // Call `look(key, column)` for every element of this thread.
  template <class Look> __device__ __forceinline__ void each(Look look) const {
    each_load([&](unsigned load, uint4 bits) {
#pragma unroll
      for (int e = 0; e < VECTOR; e++)
        if (column(load, e) < cols) look(key_of(element(bits, e), order), column(load, e));
    });
  }
};

// An element that none is worse than, for places outside of the row.
__device__ __forceinline__ Element loser(Order order) {
  if (FLOAT) return order.turn & SIGN ? Element(ONES) : Element(SIGN | infinity_of(order));
  return element_of(0, order);
}

// A load of which a part is outside of the row.
__device__ __forceinline__ uint4 load_edge(const Element* data, long long column, unsigned cols, Order order) {
  union {
    Element elements[VECTOR];
    uint4 bits;
  } edge;
#pragma unroll
  for (int e = 0; e < VECTOR; e++) {
    const bool inside = column + e >= 0 && column + e < cols;
    edge.elements[e] = inside ? data[column + e] : loser(order);
  }
  return edge.bits;
}

// Every thread reads what it will look at: no barrier is needed.
__device__ __forceinline__ HeldRow hold(uint4* loads, const Element* data, unsigned cols, Order order) {
  const unsigned skew = unsigned(reinterpret_cast<unsigned long long>(data) % 16 / ELEMENT_BYTES);
  const HeldRow held = {loads, (cols + skew + VECTOR - 1) / VECTOR, skew, cols, order};
#pragma unroll 8
  for (unsigned load = threadIdx.x; load < held.count; load += THREADS) {
    const long long column = (long long)load * VECTOR - skew;
    const bool whole = column >= 0 && column + VECTOR <= cols;
    loads[load] = whole ? __ldcs(reinterpret_cast<const uint4*>(data + column)) : load_edge(data, column, cols, order);
  }
  return held;
}
