// A row in the shared memory of a cluster. Its lines of 16 bytes are dealt out to the warps of all blocks, a stretch to each:
// first warps of all blocks, then second ones, so that every block has a like part of the row. Every lane looks at the lines
// that it has copied itself, 32 apart; no barrier is needed between.
#pragma once
#include <cuda_pipeline_primitives.h>

#include "answer.cuh"
#include "cluster.cuh"

typedef unsigned long long Mask;  // of the elements of a thread, line by line
constexpr unsigned LINE_MASK = (1u << VECTOR) - 1;

struct HeldRow {
  uint4* held;          // of this lane, its first line
  const Element* data;
  unsigned cols, skew;  // elements from a line to the row
  unsigned first, end;  // lines of this lane, 32 apart
  Order order;

  __device__ __forceinline__ unsigned column(unsigned line, int e) const { return line * VECTOR + e - skew; }

  // Which elements of a line are the row's.
  __device__ __forceinline__ unsigned inside(unsigned line) const {
    unsigned mask = LINE_MASK;
    if (line == 0) mask = LINE_MASK << skew;
    if ((line + 1) * VECTOR > cols + skew) mask &= LINE_MASK >> ((line + 1) * VECTOR - cols - skew);
    return mask;
  }

  // Ask for one line.
  __device__ __forceinline__ void copy(unsigned line) const {
    uint4* to = held + (line - first);
    const Element* from = data + ((long long)line * VECTOR - skew);
    if (inside(line) == LINE_MASK) {
      __pipeline_memcpy_async(to, from, 16);
    } else {
#pragma unroll
      for (int e = 0; e < VECTOR; e++)
        if (inside(line) >> e & 1) reinterpret_cast<Element*>(to)[e] = from[e];
        else reinterpret_cast<Element*>(to)[e] = 0;
    }
  }

  // Ask for all: in one group the first lines, then two groups.
  __device__ __forceinline__ void read(uint4* lines, const Element* row, unsigned columns, Order its) {
    data = row, cols = columns, order = its;
    skew = unsigned(reinterpret_cast<unsigned long long>(data) % 16 / ELEMENT_BYTES);
    const unsigned total = (cols + skew + VECTOR - 1) / VECTOR;
    const unsigned share = ((total + BLOCKS * WARPS - 1) / (BLOCKS * WARPS) + 7) / 8 * 8;  // of a warp
    const unsigned begin = (warp_of() * BLOCKS + block_of()) * share;
    first = begin + lane_of(), end = min(begin + share, total);
    held = lines + warp_of() * share + lane_of();
    if (first < end) copy(first);
    __pipeline_commit();
#pragma unroll 1
    for (unsigned line = first + 32; line < end; line += 32) copy(line);
    __pipeline_commit();
  }

  __device__ __forceinline__ uint4 load(unsigned line) const { return held[line - first]; }

  // The elements of this lane for whose load `reaches(bits)` is true, a bit each.
  template <class Reaches> __device__ __forceinline__ Mask mask_of(Reaches reaches) const {
    Mask mask = 0;
    int bit = 0;
#pragma unroll 2
    for (unsigned line = first; line < end; line += 32, bit += VECTOR) mask |= Mask(reaches(load(line)) & inside(line)) << bit;
    return mask;
  }

  // Call `look(key, column)` for each element of a mask.
  template <class Look> __device__ __forceinline__ void each(Mask mask, Look look) const {
#pragma unroll 1
    for (; mask; mask &= mask - 1) {
      const unsigned bit = __ffsll((long long)mask) - 1, line = first + bit / VECTOR * 32, e = bit % VECTOR;
      const Element element = reinterpret_cast<const Element*>(held + (line - first))[e];
      look(key_of(element, order), column(line, e));
    }
  }
};

// Elements whose keys are at least `least`.
__device__ __forceinline__ Mask reaching_key(const HeldRow& row, Key least) {
  return row.mask_of([&](uint4 bits) {
    unsigned mask = 0;
#pragma unroll
    for (int e = 0; e < VECTOR; e++) mask |= unsigned(key_of(element(bits, e), row.order) >= least) << e;
    return mask;
  });
}

// The same, where few are NaN or zero; floats are compared as they are.
__device__ __forceinline__ Mask reaching_first(const HeldRow& row, Key least) {
#if FLOAT
  const Number bound = bound_of(least, row.order);
  if (bound == bound && bound != 0) {  // -0 and +0 are alike as numbers
    const bool nan = !(row.order.turn & SIGN);  // is the best of all, else the worst
    return row.mask_of([&](uint4 bits) {
      const uint4 numbers = flipped(bits, row.order);
      unsigned mask = 0;
#pragma unroll
      for (int e = 0; e < VECTOR; e++) {
        const Number number = number_of(element(numbers, e), row.order);
        mask |= unsigned(number >= bound || (nan && number != number)) << e;
      }
      return mask;
    });
  }
#endif
  return reaching_key(row, least);
}
