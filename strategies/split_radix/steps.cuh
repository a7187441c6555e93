// Distances in steps that are the wider the farther: as many to a power of two, and so few in all that each has a counter.
#pragma once
#include "keys.cuh"

constexpr int STEP_BITS = ELEMENT_BYTES == 8 ? 2 : 3;  // steps are as many to a power of two
constexpr unsigned MOST_STEPS = 256;                   // of keys, and of columns

__device__ __forceinline__ int top_bit_of(unsigned word) { return 31 - __clz(word); }
__device__ __forceinline__ int top_bit_of(unsigned long long word) { return 63 - __clzll(word); }

// Which step a distance is in; step 0 is 0 alone.
template <class Word> __device__ __forceinline__ unsigned step_of(Word distance) {
  const int shift = max(top_bit_of(distance) - STEP_BITS, 0);
  return (unsigned(shift) << STEP_BITS) + unsigned(distance >> shift);
}

// The least distance of a step.
template <class Word> __device__ __forceinline__ Word least_of(unsigned step) {
  constexpr unsigned EACH_POWER = 1u << STEP_BITS;
  return step < 2 * EACH_POWER ? Word(step) : Word(step % EACH_POWER + EACH_POWER) << (step / EACH_POWER - 1);
}

// How many distances, to a power of two.
__device__ __forceinline__ int bits_of_step(unsigned step) { return max(int(step >> STEP_BITS) - 1, 0); }
