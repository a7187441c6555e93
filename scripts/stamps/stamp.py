"""In a copy of the tree: put clock stamps in."""
import re, sys
from pathlib import Path
S = Path("strategies/split_radix"); G = Path("strategies/held_rows")
def sub(path, *pairs):
    s = path.read_text()
    for a, b in pairs:
        assert a in s, (path, a)
        s = s.replace(a, b, 1)
    path.write_text(s)
sub(S/"list.cuh", ("constexpr int WARPS = THREADS / 32;", """constexpr int WARPS = THREADS / 32;
__shared__ unsigned stamps[32];
#define STAMP(i) do { if (threadIdx.x == 0) stamps[i] = clock(); } while (0)
"""))
out = """
  __syncthreads(); STAMP(15); __syncthreads();
  if (%s == 0 && threadIdx.x < 16 && values) { __threadfence(); reinterpret_cast<unsigned*>(values)[threadIdx.x] = stamps[threadIdx.x] - stamps[0]; }
"""
sub(S/"split.cu", ("  __shared__ __align__(16) Span span;\n", "  __shared__ __align__(16) Span span; if (threadIdx.x<32) stamps[threadIdx.x]=0; __syncthreads(); STAMP(0);\n"),
 ("  part.start();", "  STAMP(1); part.start(); STAMP(2);"), ("  filter(list, part, cut);\n  __syncthreads();", "  STAMP(3); filter(list, part, cut);\n STAMP(4); __syncthreads(); STAMP(5);"),
 ("  if (!comes_last(list, found)) return;", "STAMP(6); if (!comes_last(list, found)) return; STAMP(7);"),
 ("  write_answer(list, count, k, row, data.data, data.order, {values, indices});", "STAMP(8); stamps[14]=stamps[0]+count;  write_answer(list, count, k, row, data.data, data.order, {values, indices});" + out % "row"))
sub(S/"order.cuh", ("  if (even.shift < 0) even = even_intervals(list, held, count);", "  STAMP(9);   if (even.shift < 0) even = even_intervals(list, held, count); STAMP(10);"),
 ("    rank_intervals(list, held, count, want, even, put);\n", "  STAMP(11);  rank_intervals(list, held, count, want, even, put);\n STAMP(13);"),
 ("  __syncthreads();\n#pragma unroll 1\n  for (unsigned at = threadIdx.x; at < count", "  __syncthreads(); STAMP(12);\n#pragma unroll 1\n  for (unsigned at = threadIdx.x; at < count"))

sub(G/"held.cu", ("  cluster_arrive();  // waited", "if (threadIdx.x<32) stamps[threadIdx.x]=0; __syncthreads(); STAMP(0); cluster_arrive();  // waited"),
 ("  List list = make_list(memory, &counters);", "STAMP(1);  List list = make_list(memory, &counters);"),
 ("  row.take(order);", "STAMP(2);   row.take(order);"),
 ("  const Guess guess = guess", "STAMP(3);  const Guess guess = guess"),
 ("  Range range = {0", "STAMP(4);  Range range = {0"),
 ("    chosen = reaching(row, cut);\n", "    chosen = reaching(row, cut);\n STAMP(5);"),
 ("round % 2);\n    if (sums.all", "round % 2);\n STAMP(6);   if (sums.all"),
 ("  if (block_of() > 0) return;", "STAMP(8);\n stamps[14]=stamps[0]+sums.all; if (block_of() > 0) return;"), ("  write_answer(list, sums.all, k, number, data, order, {values, indices}, even);","  write_answer(list, sums.all, k, number, data, order, {values, indices}, even);" + (out % "number")))
