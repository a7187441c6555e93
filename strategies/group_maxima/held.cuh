// A row in the registers of a block: every thread holds LOADS loads of 16 bytes, the i-th at position i * THREADS + thread.
//
// Compile-time: LOADS; LOADS * VECTOR is at most 32.
#pragma once
#include "answer.cuh"

constexpr int HELD = LOADS * VECTOR;  // elements of a thread

struct Held_row {
  uint4 bits[LOADS];
  unsigned skew;  // elements of the first load before the row
  unsigned cols;
  Order order;

  __device__ __forceinline__ Key key(int i, int e) const { return key_of(element(bits[i], e), order); }
  __device__ __forceinline__ unsigned column(int i, int e) const {
    return (i * THREADS + threadIdx.x) * VECTOR + e - skew;  // beyond cols where the load reaches beyond the row
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

__device__ __forceinline__ void hold(Held_row& held, const Element* data, unsigned cols, Order order) {
  held.skew = unsigned(reinterpret_cast<unsigned long long>(data) % 16 / ELEMENT_BYTES);
  held.cols = cols, held.order = order;
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    const long long column = (long long)(i * THREADS + threadIdx.x) * VECTOR - held.skew;
    const bool whole = column >= 0 && column + VECTOR <= cols;
    held.bits[i] = whole ? __ldcs(reinterpret_cast<const uint4*>(data + column)) : load_edge(data, column, cols, order);
  }
}
