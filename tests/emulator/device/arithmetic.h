// CUDA's functions on numbers and bits, and its flavours of loads and stores.
#pragma once
#include "half.h"

using std::isinf;
using std::isnan;
using std::signbit;
namespace cuda::std {
using namespace ::std;
}  // namespace cuda::std

SIMT_DEVICE int __popc(unsigned x) { return __builtin_popcount(x); }
SIMT_DEVICE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
SIMT_DEVICE int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
SIMT_DEVICE int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
SIMT_DEVICE int __ffs(int x) { return __builtin_ffs(x); }
SIMT_DEVICE int __ffsll(long long x) { return __builtin_ffsll(x); }
SIMT_DEVICE unsigned __brev(unsigned x) {
  x = (x & 0x55555555u) << 1 | (x >> 1 & 0x55555555u);
  x = (x & 0x33333333u) << 2 | (x >> 2 & 0x33333333u);
  x = (x & 0x0F0F0F0Fu) << 4 | (x >> 4 & 0x0F0F0F0Fu);
  return __builtin_bswap32(x);
}
SIMT_DEVICE unsigned long long simt_joined(unsigned high, unsigned low) {
  return static_cast<unsigned long long>(high) << 32 | low;
}
SIMT_DEVICE unsigned long long __brevll(unsigned long long x) {
  return simt_joined(__brev(static_cast<unsigned>(x)), __brev(static_cast<unsigned>(x >> 32)));
}
SIMT_DEVICE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(simt_joined(high, low) << (shift & 31) >> 32);
}
SIMT_DEVICE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(simt_joined(high, low) >> (shift & 31));
}
SIMT_DEVICE unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
SIMT_DEVICE unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
// PTX prmt.b32
SIMT_DEVICE unsigned simt_permuted(unsigned x, unsigned y, unsigned selector) {
  unsigned long long bytes = simt_joined(y, x);
  unsigned result = 0;
  for (int i = 0; i < 4; i++) {
    unsigned chosen = selector >> (4 * i) & 15, byte = static_cast<unsigned>(bytes >> (8 * (chosen & 7))) & 255;
    if (chosen & 8) byte = byte & 128 ? 255 : 0;  // the sign of the byte
    result |= byte << (8 * i);
  }
  return result;
}
SIMT_DEVICE unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) { return simt_permuted(x, y, selector & 0x7777); }
SIMT_DEVICE unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}
SIMT_DEVICE int __mulhi(int x, int y) { return static_cast<int>(static_cast<long long>(x) * y >> 32); }
SIMT_DEVICE unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
SIMT_DEVICE unsigned __umul24(unsigned x, unsigned y) { return (x & 0xFFFFFF) * (y & 0xFFFFFF); }

template <class A, class B>
  requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
SIMT_DEVICE std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return std::fmax(T(a), T(b));
  return T(a) < T(b) ? T(b) : T(a);
}
template <class A, class B>
  requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
SIMT_DEVICE std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return std::fmin(T(a), T(b));
  return T(b) < T(a) ? T(b) : T(a);
}

SIMT_DEVICE unsigned __float_as_uint(float x) { return simt_value<unsigned>(simt_bits(x)); }
SIMT_DEVICE int __float_as_int(float x) { return simt_value<int>(simt_bits(x)); }
SIMT_DEVICE float __uint_as_float(unsigned x) { return simt_value<float>(x); }
SIMT_DEVICE float __int_as_float(int x) { return simt_value<float>(static_cast<unsigned>(x)); }
SIMT_DEVICE long long __double_as_longlong(double x) { return simt_value<long long>(simt_bits(x)); }
SIMT_DEVICE double __longlong_as_double(long long x) { return simt_value<double>(static_cast<uint64_t>(x)); }
SIMT_DEVICE int __float2int_rn(float x) { return static_cast<int>(std::nearbyintf(x)); }
SIMT_DEVICE int __float2int_rz(float x) { return static_cast<int>(x); }
SIMT_DEVICE unsigned __float2uint_rz(float x) { return static_cast<unsigned>(x); }
SIMT_DEVICE float __int2float_rn(int x) { return static_cast<float>(x); }
SIMT_DEVICE float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
SIMT_DEVICE float __uint2float_rz(unsigned x) {
  const float nearest = static_cast<float>(x);
  return nearest > static_cast<double>(x) ? std::nextafterf(nearest, 0.0f) : nearest;
}
SIMT_DEVICE float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
SIMT_DEVICE float __fmaf_rz(float a, float b, float c) {
  const int mode = std::fegetround();
  volatile float factor = a;  // else the sum may be moved to where numbers are rounded otherwise
  std::fesetround(FE_TOWARDZERO);
  volatile float sum = std::fmaf(factor, b, c);
  std::fesetround(mode);
  return sum;
}
SIMT_DEVICE float __saturatef(float x) { return std::fmin(std::fmax(x, 0.0f), 1.0f); }
SIMT_DEVICE float __fdividef(float a, float b) { return a / b; }
SIMT_DEVICE float rsqrtf(float x) { return 1 / std::sqrt(x); }

#define CUDART_INF_F std::numeric_limits<float>::infinity()
#define CUDART_NAN_F std::numeric_limits<float>::quiet_NaN()
#define CUDART_INF std::numeric_limits<double>::infinity()
#define CUDART_NAN std::numeric_limits<double>::quiet_NaN()

#define SIMT_LOAD_AS(NAME) \
  template <class T>       \
  SIMT_DEVICE T NAME(const T* address) { return *address; }
SIMT_LOAD_AS(__ldg)
SIMT_LOAD_AS(__ldca)
SIMT_LOAD_AS(__ldcg)
SIMT_LOAD_AS(__ldcs)
SIMT_LOAD_AS(__ldlu)
SIMT_LOAD_AS(__ldcv)
template <class T>
SIMT_DEVICE void simt_load_words(unsigned& x, unsigned& y, unsigned& z, unsigned& w, const T* address) {
  const T words = *address;
  x = words.x, y = words.y, z = words.z, w = words.w;
}
#define SIMT_STORE_AS(NAME) \
  template <class T>        \
  SIMT_DEVICE void NAME(T* address, std::type_identity_t<T> value) { *address = value; }
SIMT_STORE_AS(__stwb)
SIMT_STORE_AS(__stcg)
SIMT_STORE_AS(__stcs)
SIMT_STORE_AS(__stwt)

template <class T>
SIMT_DEVICE void __builtin_assume_true(T) {}
#define __builtin_assume(condition) __builtin_assume_true(0)
#define __assume(condition) __builtin_assume_true(0)
