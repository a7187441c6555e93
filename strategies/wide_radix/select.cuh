// The keys that are chosen of a row, digit by digit from the highest bits, and the places that they get.
#pragma once
#include "row.cuh"

constexpr unsigned KEY_BITS = 8 * ELEMENT_BYTES;
constexpr unsigned DIGIT_BITS = 11;
constexpr unsigned BINS = 1 << DIGIT_BITS;
constexpr unsigned COUNTS = (KEY_BITS + DIGIT_BITS - 1) / DIGIT_BITS;  // digits of a key
constexpr unsigned COPIES = 4;  // of the bins of a block: neighbouring lanes do not queue at one address

// What is known of a row's k-th key; all zero when the row begins.
struct Bound {
  unsigned long long bits;  // its upper `found` bits, where they are in a key
  unsigned found;
  unsigned above;           // keys whose upper bits are larger
  unsigned all;             // whether all keys of these upper bits are chosen: no more of them are needed
  unsigned arrived;         // blocks of the row that have counted
};

// How keys are compared with a bound: by upper bits alone.
struct Prefix {
  Key bits, mask;
};

__device__ __forceinline__ Prefix prefix_of(const Bound& bound) {
  return {Key(bound.bits), bound.found ? ONES << (KEY_BITS - bound.found) & ONES : Key(0)};
}

// Of a share: keys that begin larger than the prefix, and with it.
struct Tally {
  unsigned above, equal;
};

__device__ __forceinline__ unsigned digit_width(const Bound& bound) { return min(DIGIT_BITS, KEY_BITS - bound.found); }

// Count the next digit of the keys of a share that begin as the prefix. `nearest`, where it is not null, has the complement
// of the lowest column of each digit.
__device__ __forceinline__ void count_share(const Share& share, Order order, const Bound& bound, unsigned* bins,
                                            unsigned* nearest) {
  const unsigned shift = KEY_BITS - bound.found - digit_width(bound), mask = (1u << digit_width(bound)) - 1;
  const Prefix prefix = prefix_of(bound);
  unsigned seen = ~0u;  // the last digit: of equal ones in a row this thread's first column is the lowest
  read_share(share, [&](uint4 bits, unsigned column, unsigned valid) {
#pragma unroll
    for (int e = 0; e < VECTOR; e++) {
      Key key = key_of(element(bits, e), order);
      if (!(valid >> e & 1) || (key & prefix.mask) != prefix.bits) continue;
      const unsigned digit = unsigned(key >> shift) & mask;
      atomicAdd(&bins[digit * COPIES + lane_of() % COPIES], 1u);
      if (nearest && digit != seen) atomicMax(&nearest[digit], ~(column + e)), seen = digit;
    }
  });
}

// The lane with the `rank`-th (from 1) of what lanes have `count` of, from the lowest on; `rank` becomes its rank there.
__device__ __forceinline__ unsigned find_lane(unsigned count, unsigned& rank) {
  unsigned upto = scan_lanes(count);
  unsigned owner = __ffs(__ballot_sync(~0u, upto >= rank)) - 1;
  rank -= __shfl_sync(~0u, upto - count, owner);
  return owner;
}

// Take the digit of the `k`-th key into the bound, and return it. `bins` are the sums of all blocks; `groups` is room for
// 32 sums. All threads of a block come; ends with a barrier.
__device__ __forceinline__ unsigned take_digit(Bound& bound, const unsigned* bins, unsigned* groups, unsigned k) {
  constexpr unsigned GROUP = BINS / 32;
  for (unsigned group = warp_of(); group < 32; group += WARPS) {
    unsigned sum = __reduce_add_sync(~0u, bins[group * GROUP + lane_of()] + bins[group * GROUP + 32 + lane_of()]);
    if (lane_of() == 0) groups[group] = sum;
  }
  __syncthreads();
  if (warp_of() == 0) {
    const unsigned wanted = k - bound.above;
    unsigned rank = wanted, group = 31 - find_lane(groups[31 - lane_of()], rank);
    unsigned top = group * GROUP + GROUP - 1 - 2 * lane_of(), high = bins[top], low = bins[top - 1];
    unsigned owner = find_lane(high + low, rank);
    high = __shfl_sync(~0u, high, owner), low = __shfl_sync(~0u, low, owner);
    unsigned digit = group * GROUP + GROUP - 1 - 2 * owner, count = high;
    if (rank > high) rank -= high, digit--, count = low;
    __syncwarp();
    if (lane_of() == 0) {
      const unsigned width = digit_width(bound);
      bound.found += width;
      bound.bits |= (unsigned long long)digit << (KEY_BITS - bound.found);
      bound.above += wanted - rank;
      bound.all = count == rank || bound.found == KEY_BITS;
      bound.arrived = 0;
      groups[0] = digit;
    }
  }
  __syncthreads();
  return groups[0];
}

// Bits of the elements of a load that begin larger than the prefix, and with it.
__device__ __forceinline__ Tally compare(uint4 bits, unsigned valid, Order order, Prefix prefix) {
  Tally votes = {0, 0};
#pragma unroll
  for (int e = 0; e < VECTOR; e++) {
    Key upper = key_of(element(bits, e), order) & prefix.mask;
    votes.above |= unsigned(upper > prefix.bits) << e;
    votes.equal |= unsigned(upper == prefix.bits) << e;
  }
  return {votes.above & valid, votes.equal & valid};
}

// The same for all lanes.
__device__ __forceinline__ Tally tally_share(const Share& share, Order order, const Bound& bound) {
  const Prefix prefix = prefix_of(bound);
  Tally sum = {0, 0};
  read_share(share, [&](uint4 bits, unsigned, unsigned valid) {
    Tally votes = compare(bits, valid, order, prefix);
    sum.above += __popc(votes.above), sum.equal += __popc(votes.equal);
  });
  return {__reduce_add_sync(~0u, sum.above), __reduce_add_sync(~0u, sum.equal)};
}

// Which of the elements of a load are chosen, a bit each: those above, and of equal ones as many as there is `room` for behind the
// `before` of lower lanes; `all` are the warp's.
__device__ __forceinline__ unsigned chosen_of(Tally votes, unsigned before, unsigned all, unsigned room) {
  if (all <= room) return votes.above | votes.equal;
  unsigned chosen = votes.above, same = votes.equal;
#pragma unroll 1
  for (unsigned left = room - min(before, room); same && left; left--) chosen |= same & (~same + 1), same &= same - 1;
  return chosen;
}

// Call `put(place, bits, column)` for every chosen element of a share, `before` which there are so many in the row. Of
// those that begin as the prefix, the first `k - bound.above` are chosen. Places are in the order of columns, or else of elements of
// loads, so that those of neighbouring lanes lie side by side.
template <class Put>
__device__ __forceinline__ void place_share(const Share& share, Order order, const Bound& bound, Tally before,
                                            unsigned k, bool by_columns, Put put) {
  constexpr int UNROLLED = VECTOR < 8 ? VECTOR : 8;
  const Prefix prefix = prefix_of(bound);
  const unsigned room = k - bound.above, lower = (1u << lane_of()) - 1;
  read_share(share, [&](uint4 bits, unsigned column, unsigned valid) {
    const Tally votes = compare(bits, valid, order, prefix);
    if (!__any_sync(~0u, votes.above | votes.equal)) return;
    const unsigned counts = __popc(votes.above) << 16 | __popc(votes.equal);  // at most 512 of each in a warp
    const unsigned upto = scan_lanes(counts), own = upto - counts, all = __shfl_sync(~0u, upto, 31);
    const unsigned left = room - min(before.equal, room);
    const unsigned chosen = chosen_of(votes, own & 0xFFFF, all & 0xFFFF, left);
    unsigned place = before.above + room - left;
    if (by_columns) {
      place += (own >> 16) + min(own & 0xFFFF, left);
#pragma unroll 2
      for (int e = 0; e < VECTOR; e++)
        if (chosen >> e & 1) put(place++, element(bits, e), column + e);
    } else {
#pragma unroll UNROLLED
      for (int e = 0; e < VECTOR; e++) {
        const unsigned lanes = __ballot_sync(~0u, chosen >> e & 1);
        if (chosen >> e & 1) put(place + __popc(lanes & lower), element(bits, e), column + e);
        place += __popc(lanes);
      }
    }
    before.above += all >> 16, before.equal += all & 0xFFFF;
  });
}
