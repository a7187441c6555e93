// CUDA's keywords, built-in variables and vector types.
#pragma once
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "../simt.h"

// Inlined always, so that a report names the line of the kernel.
#define SIMT_DEVICE __attribute__((always_inline)) inline

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ __attribute__((always_inline)) inline
#define __noinline__ __attribute__((noinline))
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __block_size__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define TL_DEVICE __forceinline__ __device__
#define TL_DEVICE_NOINLINE __noinline__ __device__

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  SIMT_DEVICE dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  SIMT_DEVICE dim3(simt_index index) : x(index.x), y(index.y), z(index.z) {}
};

#define threadIdx (simt_thread_index())
#define blockIdx (simt_block_index())
#define blockDim (simt_block_size())
#define gridDim (simt_grid_size())
constexpr int warpSize = 32;

// Alignments are CUDA's: a vector of 16 bytes must lie at a multiple of 16.
#define SIMT_VECTORS(NAME, TYPE, ALIGN2, ALIGN4)                                                        \
  struct NAME##1 { TYPE x; };                                                                           \
  struct alignas(ALIGN2) NAME##2 { TYPE x, y; };                                                        \
  struct NAME##3 { TYPE x, y, z; };                                                                     \
  struct alignas(ALIGN4) NAME##4 { TYPE x, y, z, w; };                                                  \
  SIMT_DEVICE NAME##1 make_##NAME##1(TYPE x) { return {x}; }                                            \
  SIMT_DEVICE NAME##2 make_##NAME##2(TYPE x, TYPE y) { return {x, y}; }                                 \
  SIMT_DEVICE NAME##3 make_##NAME##3(TYPE x, TYPE y, TYPE z) { return {x, y, z}; }                      \
  SIMT_DEVICE NAME##4 make_##NAME##4(TYPE x, TYPE y, TYPE z, TYPE w) { return {x, y, z, w}; }
SIMT_VECTORS(char, signed char, 2, 4)
SIMT_VECTORS(uchar, unsigned char, 2, 4)
SIMT_VECTORS(short, short, 4, 8)
SIMT_VECTORS(ushort, unsigned short, 4, 8)
SIMT_VECTORS(int, int, 8, 16)
SIMT_VECTORS(uint, unsigned, 8, 16)
SIMT_VECTORS(long, long, 16, 16)
SIMT_VECTORS(ulong, unsigned long, 16, 16)
SIMT_VECTORS(longlong, long long, 16, 16)
SIMT_VECTORS(ulonglong, unsigned long long, 16, 16)
SIMT_VECTORS(float, float, 8, 16)
SIMT_VECTORS(double, double, 16, 16)

// The bits of a value of up to 8 bytes, and back.
template <class T>
SIMT_DEVICE uint64_t simt_bits(T value) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
SIMT_DEVICE T simt_value(uint64_t bits) {
  T value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

// Calls a kernel with arguments from slots, which are no memory of the kernel's.
template <class... Parameters, size_t... at>
__attribute__((noinline, no_sanitize("thread"))) void simt_call(void (*kernel)(Parameters...), void* const* slots,
                                                               std::index_sequence<at...>) {
  kernel(*static_cast<std::remove_cv_t<Parameters>*>(slots[at])...);
}
template <class... Parameters>
__attribute__((noinline, no_sanitize("thread"))) void simt_call(void (*kernel)(Parameters...), void* const* slots) {
  simt_call(kernel, slots, std::index_sequence_for<Parameters...>());
}

#ifndef assert
#define assert(condition) ((condition) ? void() : simt_trap("assertion failed: " #condition, __LINE__))
#endif
#define __trap() simt_trap("__trap", __LINE__)
SIMT_DEVICE void __nanosleep(unsigned) { simt_yield(); }
SIMT_DEVICE long long clock64() { return 0; }
