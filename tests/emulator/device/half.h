// 16-bit floating point: storage and conversion; arithmetic is done in float and rounded once, as the GPU does.
#pragma once
#include <bit>

#include "language.h"

template <class Format>
struct simt_narrow {
  uint16_t storage;

  simt_narrow() = default;
  SIMT_DEVICE explicit simt_narrow(float value) : storage(Format::rounded(value)) {}
  SIMT_DEVICE explicit simt_narrow(double value) : simt_narrow(static_cast<float>(value)) {}
  SIMT_DEVICE explicit simt_narrow(int value) : simt_narrow(static_cast<float>(value)) {}
  SIMT_DEVICE explicit simt_narrow(unsigned value) : simt_narrow(static_cast<float>(value)) {}
  SIMT_DEVICE static simt_narrow bitcast(uint16_t bits) { simt_narrow value; value.storage = bits; return value; }
  SIMT_DEVICE uint16_t raw() const { return storage; }
  SIMT_DEVICE operator float() const { return Format::widened(storage); }

  // each format has the one that is named for it
  SIMT_DEVICE simt_narrow to_half() const requires Format::is_half { return *this; }
  SIMT_DEVICE simt_narrow to_nv_bfloat16() const requires(!Format::is_half) { return *this; }
};

struct simt_half {
  static constexpr bool is_half = true;

  SIMT_DEVICE static float widened(uint16_t storage) {
    uint32_t sign = (storage & 0x8000u) << 16, rest = storage & 0x7FFFu;
    if (rest >= 0x7C00) return simt_value<float>(sign | 0x7F800000u | (rest & 0x3FF) << 13);
    // Scaling by 2^112 moves the exponent's bias from 15 to 127, for subnormal numbers too.
    return simt_value<float>(static_cast<uint32_t>(simt_bits(simt_value<float>(rest << 13) * 0x1p112f)) | sign);
  }

  static uint16_t rounded(float value) {
    auto bits = static_cast<uint32_t>(simt_bits(value));
    uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u) return 0x7FFF;
    if (size >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
    if (size < 0x38800000u)  // subnormal: adding 0.5 leaves the rounded bits at the bottom
      return static_cast<uint16_t>(sign | (simt_bits(simt_value<float>(size) + 0.5f) - 0x3F000000u));
    return static_cast<uint16_t>(sign | (size - 0x38000000u + 0xFFFu + (size >> 13 & 1)) >> 13);
  }
};

struct simt_bfloat16 {
  static constexpr bool is_half = false;

  SIMT_DEVICE static float widened(uint16_t storage) { return simt_value<float>(uint64_t{storage} << 16); }

  static uint16_t rounded(float value) {
    auto bits = static_cast<uint32_t>(simt_bits(value));
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;
    return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
  }
};

using half_t = simt_narrow<simt_half>;
using bfloat16_t = simt_narrow<simt_bfloat16>;
using half = half_t;
using __half = half_t;
using __nv_bfloat16 = bfloat16_t;
namespace cutlass {
using ::bfloat16_t;
using ::half_t;
}  // namespace cutlass

#define SIMT_NARROW(TYPE)                                                                                    \
  SIMT_DEVICE TYPE operator+(TYPE a, TYPE b) { return TYPE(float(a) + float(b)); }                           \
  SIMT_DEVICE TYPE operator-(TYPE a, TYPE b) { return TYPE(float(a) - float(b)); }                           \
  SIMT_DEVICE TYPE operator*(TYPE a, TYPE b) { return TYPE(float(a) * float(b)); }                           \
  SIMT_DEVICE TYPE operator/(TYPE a, TYPE b) { return TYPE(float(a) / float(b)); }                           \
  SIMT_DEVICE TYPE operator-(TYPE a) { return TYPE::bitcast(static_cast<uint16_t>(a.raw() ^ 0x8000u)); }     \
  SIMT_DEVICE bool operator<(TYPE a, TYPE b) { return float(a) < float(b); }                                 \
  SIMT_DEVICE bool operator>(TYPE a, TYPE b) { return float(a) > float(b); }                                 \
  SIMT_DEVICE bool operator<=(TYPE a, TYPE b) { return float(a) <= float(b); }                               \
  SIMT_DEVICE bool operator>=(TYPE a, TYPE b) { return float(a) >= float(b); }                               \
  SIMT_DEVICE bool operator==(TYPE a, TYPE b) { return float(a) == float(b); }                               \
  SIMT_DEVICE bool operator!=(TYPE a, TYPE b) { return float(a) != float(b); }                               \
  SIMT_DEVICE TYPE __hmax(TYPE a, TYPE b) { return TYPE(fmaxf(a, b)); }                                      \
  SIMT_DEVICE TYPE __hmin(TYPE a, TYPE b) { return TYPE(fminf(a, b)); }                                      \
  SIMT_DEVICE TYPE __habs(TYPE a) { return TYPE::bitcast(static_cast<uint16_t>(a.raw() & 0x7FFFu)); }        \
  SIMT_DEVICE bool __hisnan(TYPE a) { return float(a) != float(a); }                                         \
  SIMT_DEVICE bool isnan(TYPE a) { return float(a) != float(a); }
SIMT_NARROW(half_t)
SIMT_NARROW(bfloat16_t)

SIMT_DEVICE unsigned short __half_as_ushort(half_t value) { return value.raw(); }
SIMT_DEVICE half_t __ushort_as_half(unsigned short bits) { return half_t::bitcast(bits); }
SIMT_DEVICE unsigned short __bfloat16_as_ushort(bfloat16_t value) { return value.raw(); }
SIMT_DEVICE bfloat16_t __ushort_as_bfloat16(unsigned short bits) { return bfloat16_t::bitcast(bits); }
SIMT_DEVICE float __half2float(half_t value) { return value; }
SIMT_DEVICE half_t __float2half(float value) { return half_t(value); }
SIMT_DEVICE float __bfloat162float(bfloat16_t value) { return value; }
SIMT_DEVICE bfloat16_t __float2bfloat16(float value) { return bfloat16_t(value); }
template <class T>
  requires std::is_same_v<T, half_t> || std::is_same_v<T, bfloat16_t>
SIMT_DEVICE unsigned __pack_half2(T low, T high) { return unsigned{high.raw()} << 16 | low.raw(); }

// PTX max.NaN and min of pairs, of which -0 is less than +0; min is NaN, the one of these bits, where both are.
template <class T>
SIMT_DEVICE bool simt_less(T x, T y) {
  return x < y || (x == y && std::signbit(float(x)) && !std::signbit(float(y)));
}
template <class T>
SIMT_DEVICE T simt_larger(unsigned a, unsigned b) {
  T x = T::bitcast(static_cast<uint16_t>(a)), y = T::bitcast(static_cast<uint16_t>(b));
  return isnan(x) || isnan(y) ? T::bitcast(0x7FFF) : simt_less(x, y) ? y : x;
}
SIMT_DEVICE float simt_larger_f32(float a, float b) {
  return a != a || b != b ? std::numeric_limits<float>::quiet_NaN() : simt_less(a, b) ? b : a;
}
SIMT_DEVICE unsigned simt_larger_f16(unsigned a, unsigned b) {
  return __pack_half2(simt_larger<half_t>(a, b), simt_larger<half_t>(a >> 16, b >> 16));
}
SIMT_DEVICE unsigned simt_larger_bf16(unsigned a, unsigned b) {
  return __pack_half2(simt_larger<bfloat16_t>(a, b), simt_larger<bfloat16_t>(a >> 16, b >> 16));
}
template <class T>
SIMT_DEVICE T simt_smaller(unsigned a, unsigned b) {
  T x = T::bitcast(static_cast<uint16_t>(a)), y = T::bitcast(static_cast<uint16_t>(b));
  if (isnan(x) && isnan(y)) return T::bitcast(0x7FFF);
  return isnan(x) || simt_less(y, x) ? y : x;
}
SIMT_DEVICE float simt_smaller_f32(float a, float b) { return a != a || simt_less(b, a) ? b : a; }
SIMT_DEVICE unsigned simt_smaller_f16(unsigned a, unsigned b) {
  return __pack_half2(simt_smaller<half_t>(a, b), simt_smaller<half_t>(a >> 16, b >> 16));
}
SIMT_DEVICE unsigned simt_smaller_bf16(unsigned a, unsigned b) {
  return __pack_half2(simt_smaller<bfloat16_t>(a, b), simt_smaller<bfloat16_t>(a >> 16, b >> 16));
}

// PTX set.le: all ones where it is, for each half of a pair.
SIMT_DEVICE unsigned simt_at_most_f32(float a, float b) { return a <= b ? ~0u : 0; }
template <class T>
SIMT_DEVICE unsigned simt_at_most(unsigned a, unsigned b) {
  return T::bitcast(static_cast<uint16_t>(a)) <= T::bitcast(static_cast<uint16_t>(b)) ? 0xFFFF : 0;
}
SIMT_DEVICE unsigned simt_at_most_f16(unsigned a, unsigned b) {
  return simt_at_most<half_t>(a >> 16, b >> 16) << 16 | simt_at_most<half_t>(a, b);
}
SIMT_DEVICE unsigned simt_at_most_bf16(unsigned a, unsigned b) {
  return simt_at_most<bfloat16_t>(a >> 16, b >> 16) << 16 | simt_at_most<bfloat16_t>(a, b);
}

// PTX add and fma, and fma of pairs; all NaN that they make are one.
SIMT_DEVICE float simt_sum_f32(float a, float b) {
  const float sum = a + b;
  return sum != sum ? std::bit_cast<float>(0x7FFFFFFF) : sum;
}
SIMT_DEVICE float simt_fused_f32(float a, float b, float c) {
  const float sum = std::fma(a, b, c);
  return sum != sum ? std::bit_cast<float>(0x7FFFFFFF) : sum;
}
template <class T>
SIMT_DEVICE T simt_fused(unsigned a, unsigned b, unsigned c) {
  const auto number = [](unsigned bits) { return float(T::bitcast(static_cast<uint16_t>(bits))); };
  return T(std::fma(number(a), number(b), number(c)));  // which makes one NaN of all
}
SIMT_DEVICE unsigned simt_sum_f16(unsigned a, unsigned b) {
  return __pack_half2(simt_fused<half_t>(a, 0x3C00, b), simt_fused<half_t>(a >> 16, 0x3C00, b >> 16));
}
SIMT_DEVICE unsigned simt_fused_bf16(unsigned a, unsigned b, unsigned c) {
  return __pack_half2(simt_fused<bfloat16_t>(a, b, c), simt_fused<bfloat16_t>(a >> 16, b >> 16, c >> 16));
}

template <>
struct std::numeric_limits<half_t> : std::numeric_limits<float> {
  static half_t infinity() { return half_t::bitcast(0x7C00); }
  static half_t quiet_NaN() { return half_t::bitcast(0x7FFF); }
  static half_t lowest() { return half_t::bitcast(0xFBFF); }
  static half_t max() { return half_t::bitcast(0x7BFF); }
};
template <>
struct std::numeric_limits<bfloat16_t> : std::numeric_limits<float> {
  static bfloat16_t infinity() { return bfloat16_t::bitcast(0x7F80); }
  static bfloat16_t quiet_NaN() { return bfloat16_t::bitcast(0x7FFF); }
  static bfloat16_t lowest() { return bfloat16_t::bitcast(0xFF7F); }
  static bfloat16_t max() { return bfloat16_t::bitcast(0x7F7F); }
};
