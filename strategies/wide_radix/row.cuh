// Reading a row: every warp of its blocks has a share of its own, adjacent columns, the later the warp the larger.
//
// Compile-time: see keys.cuh; THREADS (of a block).
#pragma once
#include "keys.cuh"

constexpr unsigned WARPS = THREADS / 32;
constexpr unsigned LOADS = ELEMENT_BYTES == 1 ? 1 : 2;  // that a thread has in flight, of 16 bytes

__device__ __forceinline__ unsigned lane_of() { return threadIdx.x % 32; }
__device__ __forceinline__ unsigned warp_of() { return threadIdx.x / 32; }

struct Row {
  const Element* data;
  unsigned cols;
  Order order;
};

// Some of a row's columns, as loads of 16 bytes counted from the aligned address at or before the row.
struct Share {
  const Element* line;
  unsigned skew;         // elements of the first load before the row
  unsigned end;          // of the row, in elements from the line
  unsigned first, last;  // loads

  // A load, element by element where it reaches beyond the row; and which of its elements are of the row, a bit each.
  __device__ __forceinline__ uint4 load(unsigned at, unsigned& valid) const {
    constexpr unsigned EVERY = (1u << VECTOR) - 1;
    unsigned begin = at * VECTOR;
    valid = at < last ? EVERY : 0;
    if (at >= last) return make_uint4(0, 0, 0, 0);
    if (begin >= skew && begin + VECTOR <= end) return __ldg(reinterpret_cast<const uint4*>(line) + at);
    unsigned words[4] = {0, 0, 0, 0};
    valid = 0;
#pragma unroll
    for (unsigned e = 0; e < VECTOR; e++) {
      if (begin + e < skew || begin + e >= end) continue;
      const unsigned long long bits = line[begin + e];
      const unsigned byte = e * ELEMENT_BYTES;
      words[byte / 4] |= unsigned(bits) << (8 * byte % 32);
      if (ELEMENT_BYTES == 8) words[byte / 4 + 1] = unsigned(bits >> 32);
      valid |= 1u << e;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
};

__device__ __forceinline__ Share find_share(Row row, unsigned number, unsigned shares) {
  const unsigned skew = unsigned(reinterpret_cast<unsigned long long>(row.data) % 16 / ELEMENT_BYTES);
  const unsigned end = row.cols + skew, loads = (end + VECTOR - 1) / VECTOR;
  const unsigned each = ((loads + 31) / 32 + shares - 1) / shares * 32;
  const unsigned first = unsigned(min((unsigned long long)number * each, (unsigned long long)loads));
  return {row.data - skew, skew, end, first, min(first + each, loads)};
}

// Call `use(bits, column, valid)` for the loads of a share, all lanes at once, in the order of columns: `column` is the
// first element's, and `valid` has a bit for every element that is of the row.
template <class Use>
__device__ __forceinline__ void read_share(const Share& share, Use use) {
#pragma unroll 1
  for (unsigned at = share.first; at < share.last; at += 32 * LOADS) {
    uint4 bits[LOADS];
    unsigned valid[LOADS];
#pragma unroll
    for (unsigned i = 0; i < LOADS; i++) bits[i] = share.load(at + 32 * i + lane_of(), valid[i]);
#pragma unroll
    for (unsigned i = 0; i < LOADS; i++)
      use(bits[i], (at + 32 * i + lane_of()) * VECTOR - share.skew, valid[i]);
  }
}

// The sum over this and all lower lanes.
__device__ __forceinline__ unsigned scan_lanes(unsigned value) {
#pragma unroll
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    unsigned other = __shfl_up_sync(~0u, value, distance);
    if (lane_of() >= distance) value += other;
  }
  return value;
}
