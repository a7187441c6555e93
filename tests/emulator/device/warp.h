// Warp functions. Lines of the kernel are taken where a function is called, for reports.
#pragma once
#include "arithmetic.h"

SIMT_DEVICE unsigned simt_lane() { return simt_thread_index().x & 31; }
// Which lanes run together is not promised; alone is a right answer that no kernel may rely on being wider.
SIMT_DEVICE unsigned __activemask() { return 1u << simt_lane(); }

SIMT_DEVICE void __syncwarp(unsigned mask = ~0u, int line = __builtin_LINE()) {
  simt_warp(SIMT_SYNCWARP, mask, 0, 0, 32, line);
}

#define SIMT_SHUFFLE(NAME, OPERATION)                                                                           \
  template <class T>                                                                                            \
  SIMT_DEVICE T NAME(unsigned mask, T value, int argument, int width = 32, int line = __builtin_LINE()) {       \
    return simt_value<T>(simt_warp(OPERATION, mask, simt_bits(value), argument, width, line));                  \
  }
SIMT_SHUFFLE(__shfl_sync, SIMT_SHFL)
SIMT_SHUFFLE(__shfl_up_sync, SIMT_SHFL_UP)
SIMT_SHUFFLE(__shfl_down_sync, SIMT_SHFL_DOWN)
SIMT_SHUFFLE(__shfl_xor_sync, SIMT_SHFL_XOR)

SIMT_DEVICE unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return static_cast<unsigned>(simt_warp(SIMT_BALLOT, mask, predicate != 0, 0, 32, line));
}
SIMT_DEVICE int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return static_cast<int>(simt_warp(SIMT_ANY, mask, predicate != 0, 0, 32, line));
}
SIMT_DEVICE int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return static_cast<int>(simt_warp(SIMT_ALL, mask, predicate != 0, 0, 32, line));
}
template <class T>
SIMT_DEVICE unsigned __match_any_sync(unsigned mask, T value, int line = __builtin_LINE()) {
  return static_cast<unsigned>(simt_warp(SIMT_MATCH_ANY, mask, simt_bits(value), 0, 32, line));
}
template <class T>
SIMT_DEVICE unsigned __match_all_sync(unsigned mask, T value, int* same, int line = __builtin_LINE()) {
  auto result = static_cast<unsigned>(simt_warp(SIMT_MATCH_ALL, mask, simt_bits(value), 0, 32, line));
  *same = result != 0;
  return result;
}

#define SIMT_REDUCE(NAME, TYPE, OPERATION)                                                       \
  SIMT_DEVICE TYPE NAME(unsigned mask, TYPE value, int line = __builtin_LINE()) {                \
    return static_cast<TYPE>(simt_warp(OPERATION, mask, static_cast<unsigned>(value), 0, 32, line)); \
  }
SIMT_REDUCE(__reduce_add_sync, unsigned, SIMT_REDUCE_ADD)
SIMT_REDUCE(__reduce_add_sync, int, SIMT_REDUCE_ADD)
SIMT_REDUCE(__reduce_min_sync, unsigned, SIMT_REDUCE_MIN)
SIMT_REDUCE(__reduce_min_sync, int, SIMT_REDUCE_MIN_SIGNED)
SIMT_REDUCE(__reduce_max_sync, unsigned, SIMT_REDUCE_MAX)
SIMT_REDUCE(__reduce_max_sync, int, SIMT_REDUCE_MAX_SIGNED)
SIMT_REDUCE(__reduce_and_sync, unsigned, SIMT_REDUCE_AND)
SIMT_REDUCE(__reduce_or_sync, unsigned, SIMT_REDUCE_OR)
SIMT_REDUCE(__reduce_xor_sync, unsigned, SIMT_REDUCE_XOR)
