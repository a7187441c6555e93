// CUDA's device language, as far as selection kernels use it, for g++: included before a translated kernel.
//
// Nothing here loads or stores anything that threads share: that is done by the kernel (whose loads and stores GCC
// reports to the runtime) or by the runtime.
#pragma once
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "runtime.h"

#define __global__ static
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) alignas(n)
#define __grid_constant__
#define __CUDA_ARCH__ 900
#define threadIdx (simt::thread_index())
#define blockIdx (simt::block_index())
#define blockDim (simt::block_size())
#define gridDim (simt::grid_size())
#define warpSize 32
#define CUDART_INF_F std::numeric_limits<float>::infinity()
#define CUDART_INF std::numeric_limits<double>::infinity()
#define CUDART_NAN_F std::numeric_limits<float>::quiet_NaN()

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
using std::max, std::min, std::isnan, std::isinf;

// ---- vectors

#define VECTOR(T, NAME)                                                                       \
  struct NAME##1 { T x; };                                                                    \
  struct alignas(2 * sizeof(T)) NAME##2 { T x, y; };                                          \
  struct NAME##3 { T x, y, z; };                                                              \
  struct alignas(sizeof(T) < 4 ? 4 * sizeof(T) : 16) NAME##4 { T x, y, z, w; };               \
  constexpr NAME##1 make_##NAME##1(T x) { return {x}; }                                       \
  constexpr NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                               \
  constexpr NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }                       \
  constexpr NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTOR(signed char, char) VECTOR(unsigned char, uchar) VECTOR(short, short) VECTOR(unsigned short, ushort)
VECTOR(int, int) VECTOR(unsigned, uint) VECTOR(long, long) VECTOR(unsigned long, ulong)
VECTOR(long long, longlong) VECTOR(unsigned long long, ulonglong) VECTOR(float, float) VECTOR(double, double)
#undef VECTOR
using int4_t = int4;

// ---- 16-bit reals: containers of bits that compute as float and round once

namespace simt {
template <class To, class From>
constexpr To bits_as(From from) {
  return std::bit_cast<To>(from);
}
inline float bfloat_to_float(uint16_t bits) { return bits_as<float>(uint32_t(bits) << 16); }

template <float (*decode)(uint16_t), uint16_t (*encode)(float)>
struct Real16 {
  uint16_t storage;
  Real16() = default;
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  explicit Real16(T value) : storage(encode(float(value))) {}
  template <float (*d)(uint16_t), uint16_t (*e)(float)>
  explicit Real16(Real16<d, e> other) : storage(encode(float(other))) {}
  static Real16 bitcast(uint16_t bits) { return std::bit_cast<Real16>(bits); }
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  explicit operator T() const { return T(decode(storage)); }
  uint16_t raw() const { return storage; }
  Real16 to_half() const { return *this; }
  Real16 to_nv_bfloat16() const { return *this; }
  Real16 operator-() const { return bitcast(storage ^ 0x8000); }
#define OPERATOR(OP) \
  friend Real16 operator OP(Real16 a, Real16 b) { return Real16(decode(a.storage) OP decode(b.storage)); }
  OPERATOR(+) OPERATOR(-) OPERATOR(*) OPERATOR(/)
#undef OPERATOR
#define OPERATOR(OP) \
  friend bool operator OP(Real16 a, Real16 b) { return decode(a.storage) OP decode(b.storage); }
  OPERATOR(<) OPERATOR(<=) OPERATOR(>) OPERATOR(>=) OPERATOR(==) OPERATOR(!=)
#undef OPERATOR
  friend Real16 __hmax(Real16 a, Real16 b) { return a != a || a < b ? b : a; }
  friend Real16 __hmin(Real16 a, Real16 b) { return a != a || b < a ? b : a; }
  friend Real16 __hmax_nan(Real16 a, Real16 b) { return a != a ? a : b != b ? b : __hmax(a, b); }
  friend Real16 __hmin_nan(Real16 a, Real16 b) { return a != a ? a : b != b ? b : __hmin(a, b); }
  friend Real16 __habs(Real16 a) { return bitcast(a.storage & 0x7fff); }
  friend bool __hisnan(Real16 a) { return a != a; }
};
}  // namespace simt
using half_t = simt::Real16<simt::half_to_float, simt::float_to_half>;
using bfloat16_t = simt::Real16<simt::bfloat_to_float, simt::float_to_bfloat>;
using half = half_t;
using __half = half_t;
using __nv_bfloat16 = bfloat16_t;
struct alignas(4) __half2 { __half x, y; };
struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
inline float __half2float(half_t v) { return float(v); }
inline half_t __float2half(float v) { return half_t(v); }
inline half_t __float2half_rn(float v) { return half_t(v); }
inline float __bfloat162float(bfloat16_t v) { return float(v); }
inline bfloat16_t __float2bfloat16(float v) { return bfloat16_t(v); }
inline bfloat16_t __float2bfloat16_rn(float v) { return bfloat16_t(v); }
inline ushort __half_as_ushort(half_t v) { return v.storage; }
inline short __half_as_short(half_t v) { return short(v.storage); }
inline half_t __ushort_as_half(ushort v) { return half_t::bitcast(v); }
inline half_t __short_as_half(short v) { return half_t::bitcast(ushort(v)); }
inline ushort __bfloat16_as_ushort(bfloat16_t v) { return v.storage; }
inline short __bfloat16_as_short(bfloat16_t v) { return short(v.storage); }
inline bfloat16_t __ushort_as_bfloat16(ushort v) { return bfloat16_t::bitcast(v); }
inline bfloat16_t __short_as_bfloat16(short v) { return bfloat16_t::bitcast(ushort(v)); }

// ---- bits and arithmetic

inline int __float_as_int(float v) { return simt::bits_as<int>(v); }
inline uint __float_as_uint(float v) { return simt::bits_as<uint>(v); }
inline float __int_as_float(int v) { return simt::bits_as<float>(v); }
inline float __uint_as_float(uint v) { return simt::bits_as<float>(v); }
inline long long __double_as_longlong(double v) { return simt::bits_as<long long>(v); }
inline double __longlong_as_double(long long v) { return simt::bits_as<double>(v); }
inline int __popc(uint v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __clz(int v) { return v ? __builtin_clz(uint(v)) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll(static_cast<unsigned long long>(v)) : 64; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline uint __brev(uint v) {
  v = (v >> 1 & 0x55555555) | (v & 0x55555555) << 1;
  v = (v >> 2 & 0x33333333) | (v & 0x33333333) << 2;
  v = (v >> 4 & 0x0f0f0f0f) | (v & 0x0f0f0f0f) << 4;
  return __builtin_bswap32(v);
}
inline unsigned long long __brevll(unsigned long long v) { return uint64_t(__brev(uint(v))) << 32 | __brev(uint(v >> 32)); }
inline uint __fns(uint mask, uint base, int offset) {  // of CUDA's find the n-th set bit, upwards and downwards
  if (offset == 0) return mask >> base & 1 ? base : ~0u;
  const int step = offset > 0 ? 1 : -1;
  for (int bit = int(base); bit >= 0 && bit < 32; bit += step)
    if (mask >> bit & 1 && (offset -= step) == 0) return uint(bit);
  return ~0u;
}
inline uint __umulhi(uint a, uint b) { return uint(uint64_t(a) * b >> 32); }
inline uint __funnelshift_l(uint lo, uint hi, uint n) { return uint((uint64_t(hi) << 32 | lo) << (n & 31) >> 32); }
inline uint __funnelshift_r(uint lo, uint hi, uint n) { return uint((uint64_t(hi) << 32 | lo) >> (n & 31)); }
inline uint __byte_perm(uint a, uint b, uint selector) {
  const uint64_t bytes = uint64_t(b) << 32 | a;
  uint result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint pick = selector >> 4 * i & 15, byte = uint(bytes >> 8 * (pick & 7)) & 255;
    result |= (pick & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
  }
  return result;
}
template <class A, class B, class = std::enable_if_t<!std::is_same_v<A, B> && std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
auto max(A a, B b) {
  using C = std::common_type_t<A, B>;
  return C(a) < C(b) ? C(b) : C(a);
}
template <class A, class B, class = std::enable_if_t<!std::is_same_v<A, B> && std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
auto min(A a, B b) {
  using C = std::common_type_t<A, B>;
  return C(b) < C(a) ? C(b) : C(a);
}
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }

// ---- loads and stores that name a cache

template <class T> T __ldg(const T* p) { return *p; }
template <class T> T __ldca(const T* p) { return *p; }
template <class T> T __ldcg(const T* p) { return *p; }
template <class T> T __ldcs(const T* p) { return *p; }
template <class T> T __ldlu(const T* p) { return *p; }
template <class T> T __ldcv(const T* p) { return *p; }
template <class T> void __stcg(T* p, T v) { *p = v; }
template <class T> void __stcs(T* p, T v) { *p = v; }
template <class T> void __stwb(T* p, T v) { *p = v; }
template <class T> void __stwt(T* p, T v) { *p = v; }

// ---- barriers, fences, warps

inline void __syncthreads(int line = __builtin_LINE()) { simt::block_barrier(0, line); }
inline int __syncthreads_count(int p, int line = __builtin_LINE()) { return simt::block_barrier(p, line).count; }
inline int __syncthreads_and(int p, int line = __builtin_LINE()) { return simt::block_barrier(p, line).all; }
inline int __syncthreads_or(int p, int line = __builtin_LINE()) { return simt::block_barrier(p, line).any; }
inline void __threadfence() { simt::fence(); }
inline void __threadfence_block() { simt::fence(); }
inline void __threadfence_system() { simt::fence(); }
inline void __nanosleep(uint) { simt::pause(); }
inline void __trap() { simt::trap("__trap()"); }
inline void __syncwarp(unsigned mask = ~0u) { simt::warp_exchange(simt::Warp::sync, mask, 0, 0); }
inline unsigned __activemask() { return simt::live_lanes(); }  // as if no lane had diverged

namespace simt {
template <class T>
uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  if constexpr (sizeof(T) == 1) return std::bit_cast<uint8_t>(value);
  else if constexpr (sizeof(T) == 2) return std::bit_cast<uint16_t>(value);
  else if constexpr (sizeof(T) == 4) return std::bit_cast<uint32_t>(value);
  else return std::bit_cast<uint64_t>(value);
}
template <class T>
T from_bits(uint64_t bits) {
  if constexpr (sizeof(T) == 1) return std::bit_cast<T>(uint8_t(bits));
  else if constexpr (sizeof(T) == 2) return std::bit_cast<T>(uint16_t(bits));
  else if constexpr (sizeof(T) == 4) return std::bit_cast<T>(uint32_t(bits));
  else return std::bit_cast<T>(bits);
}
// source is outside the segment: the lane keeps its value
template <class T>
__forceinline__ T shuffle(unsigned mask, T value, int source, int segment) {
  const int own = lane(), first = own & ~(segment - 1);
  return from_bits<T>(warp_exchange(Warp::shuffle, mask, to_bits(value), source < first || source >= first + segment ? own : source));
}
template <class T>
__forceinline__ T reduce(Warp operation, unsigned mask, T value) {
  return T(warp_exchange(operation, mask, uint64_t(value), 0));
}
}  // namespace simt

template <class T> __forceinline__ T __shfl_sync(unsigned mask, T v, int source, int width = 32) {
  return simt::shuffle(mask, v, (simt::lane() & ~(width - 1)) | (source & (width - 1)), width);
}
template <class T> __forceinline__ T __shfl_xor_sync(unsigned mask, T v, int other, int width = 32) {
  return simt::shuffle(mask, v, simt::lane() ^ other, width);
}
template <class T> __forceinline__ T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32) {
  return simt::shuffle(mask, v, simt::lane() - int(delta), width);
}
template <class T> __forceinline__ T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32) {
  return simt::shuffle(mask, v, simt::lane() + int(delta), width);
}
__forceinline__ unsigned __ballot_sync(unsigned mask, int p) {
  return unsigned(simt::warp_exchange(simt::Warp::ballot, mask, p != 0, 0));
}
__forceinline__ int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
__forceinline__ int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, !p) == 0; }
template <class T> __forceinline__ unsigned __match_any_sync(unsigned mask, T v) {
  return unsigned(simt::warp_exchange(simt::Warp::match_any, mask, simt::to_bits(v), 0));
}
template <class T> __forceinline__ unsigned __match_all_sync(unsigned mask, T v, int* all) {
  const auto matching = unsigned(simt::warp_exchange(simt::Warp::match_all, mask, simt::to_bits(v), 0));
  *all = matching != 0;
  return matching;
}
#define REDUCE(NAME, T, OPERATION) \
  __forceinline__ T __reduce_##NAME##_sync(unsigned mask, T v) { return simt::reduce(simt::Warp::OPERATION, mask, v); }
REDUCE(add, unsigned, add) REDUCE(min, unsigned, min) REDUCE(max, unsigned, max) REDUCE(and, unsigned, bit_and)
REDUCE(or, unsigned, bit_or) REDUCE(xor, unsigned, bit_xor) REDUCE(add, int, add) REDUCE(min, int, min_signed)
REDUCE(max, int, max_signed)
#undef REDUCE

// ---- atomics

namespace simt {
template <class T>
constexpr Number number() {
  if constexpr (std::is_same_v<T, half_t>) return Number::f16;
  else if constexpr (std::is_same_v<T, bfloat16_t>) return Number::bf16;
  else if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 4 ? Number::f32 : Number::f64;
  else if constexpr (sizeof(T) == 2) return Number::u16;
  else if constexpr (sizeof(T) == 4) return std::is_signed_v<T> ? Number::i32 : Number::u32;
  else return std::is_signed_v<T> ? Number::i64 : Number::u64;
}
template <class T>
__forceinline__ T atomic(Atomic operation, T* address, std::type_identity_t<T> value, std::type_identity_t<T> comparand = {}) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
  return from_bits<T>(atomic(operation, number<T>(), address, to_bits(value), to_bits(comparand)));
}
}  // namespace simt
#define ATOMIC(NAME, OPERATION)                                                                     \
  template <class T> __forceinline__ T NAME(T* p, std::type_identity_t<T> v) {                      \
    return simt::atomic(simt::Atomic::OPERATION, p, v);                                             \
  }                                                                                                 \
  template <class T> __forceinline__ T NAME##_block(T* p, std::type_identity_t<T> v) { return NAME(p, v); }
ATOMIC(atomicAdd, add) ATOMIC(atomicMin, min) ATOMIC(atomicMax, max) ATOMIC(atomicAnd, bit_and) ATOMIC(atomicOr, bit_or)
ATOMIC(atomicXor, bit_xor) ATOMIC(atomicExch, exchange) ATOMIC(atomicInc, increment) ATOMIC(atomicDec, decrement)
#undef ATOMIC
template <class T> __forceinline__ T atomicSub(T* p, std::type_identity_t<T> v) { return atomicAdd(p, T(-v)); }
template <class T> __forceinline__ T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> v) {
  return simt::atomic(simt::Atomic::compare, p, v, expected);
}

// ---- clusters, cooperative launches, programmatic dependent launches

namespace cooperative_groups {
struct grid_group {
  void sync() const { simt::group_arrive(simt::Group::grid, true), simt::group_wait(simt::Group::grid); }
};
inline grid_group this_grid() { return {}; }
struct cluster_group {
  void sync() const { barrier_arrive(), barrier_wait(); }
  void barrier_arrive() const { simt::group_arrive(simt::Group::cluster, true); }
  void barrier_wait() const { simt::group_wait(simt::Group::cluster); }
  unsigned block_rank() const { return unsigned(simt::cluster_rank()); }
  unsigned num_blocks() const { return unsigned(simt::cluster_blocks()); }
  template <class T> T* map_shared_rank(T* p, int rank) const { return static_cast<T*>(simt::of_block(p, rank)); }
};
inline cluster_group this_cluster() { return {}; }
struct thread_block {
  void sync(int line = __builtin_LINE()) const { simt::block_barrier(0, line); }
};
inline thread_block this_thread_block() { return {}; }
}  // namespace cooperative_groups
inline void* __cluster_map_shared_rank(const void* p, unsigned rank) { return simt::of_block(p, int(rank)); }
inline unsigned __clusterRelativeBlockRank() { return unsigned(simt::cluster_rank()); }
inline unsigned __clusterSizeInBlocks() { return unsigned(simt::cluster_blocks()); }
inline void __cluster_barrier_arrive() { simt::group_arrive(simt::Group::cluster, true); }
inline void __cluster_barrier_arrive_relaxed() { simt::group_arrive(simt::Group::cluster, false); }
inline void __cluster_barrier_wait() { simt::group_wait(simt::Group::cluster); }
inline size_t __cvta_generic_to_shared(const void* p) { return simt::shared_window(p); }
inline void* __cvta_shared_to_generic(size_t window) { return simt::generic(uint32_t(window)); }
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}

// ---- what translated kernels say

namespace simt {
template <class T>
T argument(int number) {
  if constexpr (std::is_pointer_v<T>) return reinterpret_cast<T>(integer_argument(number));
  else if constexpr (std::is_integral_v<T>) return T(integer_argument(number));
  else return T(real_argument(number));
}
template <class... T, size_t... I>
void call_in_order(void (*kernel)(T...), std::index_sequence<I...>) {
  kernel(argument<T>(int(I))...);
}
template <class... T>
void call(void (*kernel)(T...)) {
  call_in_order(kernel, std::index_sequence_for<T...>{});
}
}  // namespace simt
