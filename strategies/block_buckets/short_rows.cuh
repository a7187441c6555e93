// Rows that the registers of a block hold, for selectors of families that are made for longer ones.
#pragma once
#include "held.cuh"

constexpr int FEW = HELD < 2 ? HELD : 2;  // lines of a thread

__device__ __forceinline__ bool is_held(const Row& row) {
  const unsigned lines = ELEMENT_BYTES == 2 ? row.all_lines() : row.end - row.begin;  // words of 16-bit floats tell columns
  return lines <= THREADS * HELD;
}

// What `_lines/selector.cuh` asks for ahead.
struct Ahead {
  static constexpr bool ALONE = true, HELPED = true;
  static constexpr int ROWS = 256;  // so few that memory has time for all of them
  First<FEW> first;

  __device__ __forceinline__ void ask(const Row& row) { first.ask(row, blockIdx.x % BLOCKS < 2); }
};

// As `select_held`, of any row that a block holds, in no order: of short rows without code for lines that they do not have. Of these
// a second block of the cluster may put what is compared.
template <class Answers>
__device__ __forceinline__ void select_short(const Row& row, const Ahead& ahead, unsigned k, bool smallest, const Room& room,
                                             const Answers& answers, Part part = WHOLE) {
  if (FEW < HELD && row.end - row.begin > THREADS * FEW) {
    if (part.above) select_held<false, HELD>(row, ahead.first, k, smallest, room, answers);
  } else {
    select_held<false, FEW>(row, ahead.first, k, smallest, room, answers, part);
  }
}
