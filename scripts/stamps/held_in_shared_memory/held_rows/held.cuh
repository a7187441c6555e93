// A row in the shared memory of a cluster. Its lines of 16 bytes are dealt out to the warps of all blocks, a stretch to each:
// first warps of all blocks, then second ones, so that every block has a like part of the row. Every lane looks at the lines
// that it has copied itself, 32 apart; no barrier is needed between.
#pragma once
#include <cuda_pipeline_primitives.h>

#include "answer.cuh"
#include "cluster.cuh"

typedef unsigned long long Mask;  // of the elements of a lane, line by line
constexpr unsigned LINE_MASK = (1u << VECTOR) - 1;

struct HeldRow {
  const uint4* held;    // of this lane, its first line
  unsigned lines;       // of this lane
  unsigned first;       // its first one's number in the row
  unsigned skew;        // elements from the row's first line to the row
  Mask own;             // elements of the row in the lane's lines
  Order order;

  __device__ __forceinline__ unsigned column(unsigned line, int e) const { return (first + line * 32) * VECTOR + e - skew; }

  // Ask for all lines, the first ones in a group of copies of their own. Those at the ends of the row are read by elements.
  __device__ __forceinline__ void read(uint4* memory, const Element* data, unsigned cols, Order its) {
    order = its;
    skew = unsigned(reinterpret_cast<unsigned long long>(data) % 16 / ELEMENT_BYTES);
    const unsigned total = (cols + skew + VECTOR - 1) / VECTOR, behind = total * VECTOR - cols - skew;
    const unsigned share = ((total + BLOCKS * WARPS - 1) / (BLOCKS * WARPS) + 7) / 8 * 8;  // of a warp
    const unsigned begin = (warp_of() * BLOCKS + block_of()) * share, end = min(begin + share, total);
    first = begin + lane_of();
    lines = first < end ? (end - first + 31) / 32 : 0;
    uint4* to = kept(memory + warp_of() * share + lane_of());
    held = to;
    const Element* from = data + ((long long)first * VECTOR - skew);
    own = lines * VECTOR < 64 ? (Mask(1) << lines * VECTOR) - 1 : ~Mask(0);
    if (first == 0) own &= ~Mask(0) << skew;
    const unsigned last = total - 1 - first;  // where the row's last line is this lane's: 32 times its number
    const bool ends = lines && behind && last % 32 == 0 && last / 32 < lines;
    if (ends) own &= ~(Mask(LINE_MASK & ~(LINE_MASK >> behind)) << last / 32 * VECTOR);
#pragma unroll 1
    for (unsigned line = 0; line < lines || line == 0; line++, to += 32, from += 32 * VECTOR) {
      const unsigned mask = unsigned(own >> line * VECTOR) & LINE_MASK;
      if (mask == LINE_MASK) __pipeline_memcpy_async(to, from, 16);
      else if (line < lines) copy_edge(to, from, mask);
      if (line == 0) __pipeline_commit();
    }
    __pipeline_commit();
  }

  __device__ __forceinline__ void copy_edge(uint4* to, const Element* from, unsigned mask) const {
#pragma unroll 1
    for (int e = 0; e < VECTOR; e++) reinterpret_cast<Element*>(to)[e] = mask >> e & 1 ? from[e] : Element(0);
  }

  // The elements of this lane which `reaches(bits)` tells of each line, a bit each.
  template <class Reaches> __device__ __forceinline__ Mask mask_of(Reaches reaches) const {
    constexpr unsigned STEP = 4;  // lines
    Mask mask = 0;
#pragma unroll 1
    for (unsigned line = 0; line < lines; line += STEP) {
      Mask some = 0;
#pragma unroll
      for (unsigned i = 0; i < STEP; i++) some |= Mask(reaches(held[min(line + i, lines - 1) * 32])) << i * VECTOR;
      mask |= some << line * VECTOR;
    }
    return mask & own;
  }

  // Call `look(key, column)` for each element of a mask.
  template <class Look> __device__ __forceinline__ void each(Mask mask, Look look) const {
#pragma unroll 1
    for (; mask; mask &= mask - 1) {
      const unsigned bit = __ffsll((long long)mask) - 1, line = bit / VECTOR, e = bit % VECTOR;
      look(key_of(reinterpret_cast<const Element*>(held + line * 32)[e], order), column(line, e));
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

// The same, of floats as they are.
__device__ __forceinline__ Mask reaching(const HeldRow& row, Key least) {
#if FLOAT
  const Number bound = bound_of(least, row.order);
  if (bound == bound && bound != 0) {  // -0 and +0 are alike as numbers
    const auto mask_of = [&](auto passes) {
      return row.mask_of([&](uint4 bits) {
        const uint4 numbers = flipped(bits, row.order);
        unsigned mask = 0;
#pragma unroll
        for (int e = 0; e < VECTOR; e++) mask |= passes(number_of(element(numbers, e), row.order)) ? 1u << e : 0u;
        return mask;
      });
    };
    if (row.order.turn & SIGN) return mask_of([&](Number number) { return number >= bound; });
    return mask_of([&](Number number) { return !(number < bound); });  // NaN is the best of all
  }
#endif
  return reaching_key(row, least);
}
