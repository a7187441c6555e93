// Rows that the registers of a block hold, for selectors of families that are made for longer ones.
#pragma once
#include "buckets.cuh"

constexpr int FEW = HELD < 2 ? HELD : 2;  // lines of a thread

// What `_lines/selector.cuh` asks for ahead.
struct Ahead {
  static constexpr bool ALONE = true;
  static constexpr int ROWS = 256;  // so few that memory has time for all of them
  First<FEW> first;

  __device__ __forceinline__ void ask(const Row& row) { first.ask(row, blockIdx.x % BLOCKS == 0); }
};

// As `select_held`, of any row that a block holds, in no order: of short rows without code for lines that they do not have.
template <class Answers>
__device__ __forceinline__ void select_short(const Row& row, const Ahead& ahead, unsigned k, bool smallest, const Room& room,
                                             const Answers& answers) {
  if (FEW < HELD && row.end - row.begin > THREADS * FEW) select_held<false, HELD>(row, ahead.first, k, smallest, room, answers);
  else select_held<false, FEW>(row, ahead.first, k, smallest, room, answers);
}
