// What too many elements that are alike are answered by: the first of them by columns.
#pragma once
#include "guess.cuh"

// Write those that have a key, the first `want` by columns, behind the `above` best. Has a barrier.
template <class Answers>
__device__ __forceinline__ void write_ties(const Row& row, Exchange& exchange, Key tie, unsigned want, unsigned above,
                                           const Answers& answers) {
  const unsigned total = row.all_lines(), each = (total + WARPS - 1) / WARPS;
  const unsigned begin = min(warp_of() * each, total), end = min(begin + each, total);
  unsigned rank = 0;
#pragma unroll 1
  for (bool writes = false;; writes = true) {
#pragma unroll 1
    for (unsigned line = begin + lane_of(); line - lane_of() < end && rank < want; line += 32) {
      unsigned inside = 0;
      uint4 bits = make_uint4(0, 0, 0, 0);
      if (line < end) bits = row.whole(line) ? __ldg(row.lines + line) : row.part(line, inside);
      if (line < end && row.whole(line)) inside = EVERY;
      unsigned ties = elements_reaching(bits, inside, tie, row.order);
      if (tie < ONES) ties &= ~elements_reaching(bits, inside, tie + 1, row.order);
      unsigned all, its = rank + scan_lanes(__popc(ties), all) - __popc(ties);
      rank += all;
      for (; writes && ties && its < want; ties &= ties - 1) answers.put(above + its++, tie, row.column(line, __ffs(ties) - 1));
    }
    if (writes) return;
    if (lane_of() == 0) exchange.ties[warp_of()] = rank;
    __syncthreads();
    unsigned all, own = lane_of() < WARPS ? exchange.ties[lane_of() % WARPS] : 0, upto = scan_lanes(own, all);
    rank = __shfl_sync(~0u, upto - own, warp_of());
  }
}
