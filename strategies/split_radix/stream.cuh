// The best of a row that blocks read once, a part each: what passes a cut that a sample of the row tells, the same for all
// parts, is listed; the last block to come has it all.
#pragma once
#include "filter.cuh"
#include "sample.cuh"

constexpr unsigned ELSEWHERE = ~0u;  // another block has the list

// Lists the best `want` of a row, at least one, and few more; at most ITEMS * THREADS. Returns how many, or ELSEWHERE.
// `join(count, cut)` brings together what the parts list, `count` here: it returns how many are listed then, ELSEWHERE if
// another block has them, and fewer than wanted if the parts listed too few, or more than there is room for.
template <class Join>
__device__ __forceinline__ unsigned list_best(List& list, Span& span, const WholeRow& row, unsigned number, unsigned parts,
                                              unsigned want, Join join) {
  if (threadIdx.x == 0) row.find_part(span, number, parts);
  const Sampling sampling = sampling_of(row, want);  // while that thread does
  clear_list(list);                                  // with a barrier
  RowPart part = {span, row.order};
  const Cut cut = sampled_cut(list, part, sampling, parts);
  filter(list, part, cut);
  __syncthreads();
  unsigned count = list.counters->count;
#pragma unroll 1
  for (bool whole = false;; whole = true) {
    if (whole || count > CAPACITY) {  // the sample misled, or most of what it lets pass is in this part: read once more
      empty_list(list);
      if (whole && threadIdx.x == 0) row.find_part(span, 0, 1);
      __syncthreads();
      count = best(list, part, want, whole ? Cut{0, 0} : cut);
    }
    if (!whole && parts > 1 && (count = join(count, cut)) == ELSEWHERE) return ELSEWHERE;
    if (count >= want) break;
  }
  if (CAPACITY > ITEMS * THREADS && count > ITEMS * THREADS) tighten(list, count, want), count = want;
  return count;
}
