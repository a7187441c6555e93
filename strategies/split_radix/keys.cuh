// Elements as keys: unsigned integers in torch's order, the better the larger. For the largest NaN has the largest key,
// for the smallest all keys are turned, so that NaN has the least. -0 and +0 have adjacent keys.
//
// Compile-time: ELEMENT_BYTES, FLOAT_INF (bits of infinity; 0 for integers), SIGNED (integers).
#pragma once
#include <cuda_fp16.h>

template <int BYTES> struct Unsigned;
template <> struct Unsigned<1> { typedef unsigned char type; };
template <> struct Unsigned<2> { typedef unsigned short type; };
template <> struct Unsigned<4> { typedef unsigned type; };
template <> struct Unsigned<8> { typedef unsigned long long type; };

typedef Unsigned<ELEMENT_BYTES>::type Element;                      // the bits of an element
typedef Unsigned<ELEMENT_BYTES == 8 ? 8 : 4>::type Key;
constexpr Key SIGN = Key(1) << (8 * ELEMENT_BYTES - 1);
constexpr Key ONES = SIGN | (SIGN - 1);
constexpr int VECTOR = 16 / ELEMENT_BYTES;                          // elements of one load

// What turns elements and keys for the smallest; zeros for the largest.
struct Order {
  Key turn;       // of a key
  unsigned flip;  // of four bytes of elements, so that they compare the other way round as numbers
};

__device__ __forceinline__ Order order_of(bool smallest) {
  constexpr Key number = FLOAT_INF ? SIGN : ONES;
  constexpr unsigned word = ELEMENT_BYTES == 1   ? unsigned(number) * 0x01010101u
                            : ELEMENT_BYTES == 2 ? unsigned(number) * 0x00010001u
                                                 : unsigned(number >> (8 * sizeof(Key) - 32));
  return {smallest ? ONES : Key(0), smallest ? word : 0u};
}

__device__ __forceinline__ Key key_of(Element bits, Order order) {
  Key key = bits;
  if (FLOAT_INF) {
    bool nan = (key & (SIGN - 1)) > Key(FLOAT_INF);
    key = nan ? ONES : key ^ (key & SIGN ? ONES : SIGN);
  } else if (SIGNED) {
    key ^= SIGN;
  }
  return key ^ order.turn;
}

// Numbers that compare as elements do.
#if FLOAT_INF && ELEMENT_BYTES == 8
typedef double Number;
__device__ __forceinline__ Number number_of(Element bits) { return __longlong_as_double(bits); }
#elif FLOAT_INF == 0x7C00
typedef float Number;
__device__ __forceinline__ Number number_of(Element bits) { return __half2float(__ushort_as_half(bits)); }
#elif FLOAT_INF
typedef float Number;
__device__ __forceinline__ Number number_of(Element bits) {
  return __uint_as_float(unsigned(bits) << (32 - 8 * ELEMENT_BYTES));  // bfloat16 is the upper half of float32
}
#elif SIGNED && ELEMENT_BYTES == 8
typedef long long Number;
__device__ __forceinline__ Number number_of(Element bits) { return Number(bits); }
#elif SIGNED
typedef int Number;
__device__ __forceinline__ Number number_of(Element bits) {
  return int(unsigned(bits) << (32 - 8 * ELEMENT_BYTES)) >> (32 - 8 * ELEMENT_BYTES);
}
#else
typedef Key Number;
__device__ __forceinline__ Number number_of(Element bits) { return bits; }
#endif

// A number below which, among flipped elements, all have smaller keys than this one. Where it is NaN, none is below.
__device__ __forceinline__ Number bound_of(Key key, Order order) {
  Key bits = key ^ order.turn;
  if (FLOAT_INF) bits ^= bits & SIGN ? SIGN : ONES;
  else if (SIGNED) bits ^= SIGN;
  return number_of(Element(bits ^ (order.turn & (FLOAT_INF ? SIGN : ONES))));
}

// Element `at` of a load; free where `at` is known at compile time, a few instructions where not.
__device__ __forceinline__ Element element(uint4 bits, int at) {
#if ELEMENT_BYTES == 8
  return at ? Element(bits.w) << 32 | bits.z : Element(bits.y) << 32 | bits.x;
#else
  int word = at / (4 / ELEMENT_BYTES);
  unsigned four = word & 2 ? (word & 1 ? bits.w : bits.z) : (word & 1 ? bits.y : bits.x);
  return Element(four >> (8 * ELEMENT_BYTES * (at % (4 / ELEMENT_BYTES))));
#endif
}

// A load with its elements flipped; of 8-byte floats only the upper words hold a sign.
__device__ __forceinline__ uint4 flipped(uint4 bits, Order order) {
  unsigned low = ELEMENT_BYTES == 8 && FLOAT_INF ? 0u : order.flip;
  return make_uint4(bits.x ^ low, bits.y ^ order.flip, bits.z ^ low, bits.w ^ order.flip);
}
