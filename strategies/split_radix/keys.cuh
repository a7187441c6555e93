// Elements as keys: unsigned integers in torch's order, the better the larger. For the largest NaN has the largest key,
// for the smallest all keys are turned, so that NaN has the least. -0 and +0 have adjacent keys.
//
// Compile-time: ELEMENT_BYTES, FLOAT (floats, else integers).
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
constexpr unsigned EVERY = (1u << VECTOR) - 1;                     // all of them, a bit each
constexpr int HALF_INF = 0x7C00;                                    // infinity of float16; of bfloat16 0x7F80

// What is known of the elements at run time: the direction, whether integers have a sign, which floats of 16 bits.
struct Order {
  Key turn;       // what turns a key, for the smallest; of integers also an element into its key
  unsigned flip;  // of four bytes of elements, the upper ones of eight: flipped elements compare as numbers
  int infinity;   // of floats of 16 bits: tells their format

  __device__ __forceinline__ bool half() const { return infinity == HALF_INF; }
};

__device__ __forceinline__ Order order_of(bool smallest, bool is_signed, int infinity) {
  const Key turn = (smallest ? ONES : Key(0)) ^ (!FLOAT && is_signed ? SIGN : Key(0));
  const Key flip = FLOAT ? turn & SIGN : turn;
  const unsigned word = ELEMENT_BYTES == 1   ? unsigned(flip) * 0x01010101u
                        : ELEMENT_BYTES == 2 ? unsigned(flip) * 0x00010001u
                                             : unsigned(flip >> (8 * sizeof(Key) - 32));
  return {turn, word, infinity};
}

__device__ __forceinline__ Key infinity_of(Order order) {
  if (ELEMENT_BYTES == 2) return order.infinity;
  return ELEMENT_BYTES == 8 ? Key(0x7FF0000000000000) : Key(0x7F800000);
}

__device__ __forceinline__ Key key_of(Element bits, Order order) {
  Key key = bits;
  if (FLOAT) {
    bool nan = (key & (SIGN - 1)) > infinity_of(order);
    key = nan ? ONES : key ^ (key & SIGN ? ONES : SIGN);
  }
  return key ^ order.turn;
}

// The key of an element, where -0 and +0 are equal: that of the better one.
__device__ __forceinline__ Key equal_key(Element bits, Order order) {
  const Key key = key_of(bits, order);
  return FLOAT ? key + (key == SIGN - 1) : key;
}

// The element of a key; of NaN, whose key tells nothing of its bits, some NaN.
__device__ __forceinline__ Element element_of(Key key, Order order) {
  key ^= order.turn;
  return Element(FLOAT ? key ^ (key & SIGN ? SIGN : ONES) : key);
}

// Keys of infinity and of NaN, where they are the best, are no less; no others are, but of integers the largest.
__device__ __forceinline__ Key least_special(Order order) { return FLOAT ? SIGN | infinity_of(order) : ONES; }

__device__ __forceinline__ bool is_nan(Key key, Order order) { return FLOAT && (key ^ order.turn) == ONES; }

// Whether a key tells the bits of its element: all NaN have one, and zeros where -0 counts as +0.
__device__ __forceinline__ bool tells_bits(Key key, Order order) { return !FLOAT || !(is_nan(key, order) || key == SIGN); }

// Numbers that compare as flipped elements do.
#if FLOAT && ELEMENT_BYTES == 8
typedef double Number;
__device__ __forceinline__ Number number_of(Element bits, Order) { return __longlong_as_double(bits); }
#elif FLOAT
typedef float Number;
__device__ __forceinline__ Number number_of(Element bits, Order order) {
  if (ELEMENT_BYTES == 2 && order.half()) return __half2float(__ushort_as_half(bits));
  return __uint_as_float(unsigned(bits) << (32 - 8 * ELEMENT_BYTES));  // bfloat16 is the upper half of float32
}
#else
typedef Key Number;
__device__ __forceinline__ Number number_of(Element bits, Order) { return bits; }
#endif

// An element, flipped, that is below all of this key and of larger ones, as a number, and above few others.
__device__ __forceinline__ Element bound_bits(Key key, Order order) {
#if FLOAT
  Key below = key - 1;                                         // of 0 it is NaN, which all pass
  if (below == SIGN - 1) below--;                              // -0, which +0 is no larger than
  const Key most = SIGN | infinity_of(order);
  if (key && below > most) below = most;                       // only NaN is beyond infinity
  return Element(below & SIGN ? below ^ SIGN : below ^ ONES);
#else
  return Element(key);
#endif
}

// A bound that numbers of this key and of larger ones pass, and few others.
__device__ __forceinline__ Number bound_of(Key key, Order order) { return number_of(bound_bits(key, order), order); }

__device__ __forceinline__ bool passes(Number number, Number bound) { return FLOAT ? !(number <= bound) : number >= bound; }

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
  unsigned low = ELEMENT_BYTES < 8 ? order.flip : FLOAT ? 0u : unsigned(order.turn);
  return make_uint4(bits.x ^ low, bits.y ^ order.flip, bits.z ^ low, bits.w ^ order.flip);
}

// The larger of two floats of 16 bits, twice; NaN where either is.
__device__ __forceinline__ unsigned larger_halves(unsigned a, unsigned b) {
  unsigned larger;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}

__device__ __forceinline__ unsigned larger_bfloats(unsigned a, unsigned b) {
  unsigned larger;
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}

// The best of two floats, or twice two: for the largest NaN if there is any, for the smallest only if there is nothing else.
#if FLOAT && ELEMENT_BYTES == 4
template <bool SMALLEST, bool> __device__ __forceinline__ unsigned better_bits(unsigned a, unsigned b) {
  const float x = __uint_as_float(a), y = __uint_as_float(b);
  float best;
  if (SMALLEST) asm("min.f32 %0, %1, %2;" : "=f"(best) : "f"(x), "f"(y));
  else asm("max.NaN.f32 %0, %1, %2;" : "=f"(best) : "f"(x), "f"(y));
  return __float_as_uint(best);
}
#elif FLOAT && ELEMENT_BYTES == 2
template <bool SMALLEST, bool HALF> __device__ __forceinline__ unsigned better_bits(unsigned a, unsigned b) {
  if (!SMALLEST) return HALF ? larger_halves(a, b) : larger_bfloats(a, b);
  unsigned best;
  if (HALF) asm("min.f16x2 %0, %1, %2;" : "=r"(best) : "r"(a), "r"(b));
  else asm("min.bf16x2 %0, %1, %2;" : "=r"(best) : "r"(a), "r"(b));
  return best;
}
#endif

// Whether any of a load's elements, flipped, passes the bound.
__device__ __forceinline__ bool reaches(uint4 bits, Number bound, Order order) {
  bool any = false;
#if FLOAT && ELEMENT_BYTES == 2
  bits.x = order.half() ? larger_halves(larger_halves(bits.x, bits.y), larger_halves(bits.z, bits.w))
                      : larger_bfloats(larger_bfloats(bits.x, bits.y), larger_bfloats(bits.z, bits.w));
  constexpr int LEFT = 2;
#else
  constexpr int LEFT = VECTOR;
#endif
#pragma unroll
  for (int e = 0; e < LEFT; e++) any |= passes(number_of(element(bits, e), order), bound);
  return any;
}
