// CUDA's atomic functions.
#pragma once
#include "block.h"

template <class T>
constexpr simt_type simt_type_of() {
  if constexpr (std::is_same_v<T, float>) return SIMT_F32;
  else if constexpr (std::is_same_v<T, double>) return SIMT_F64;
  else if constexpr (sizeof(T) == 2) return SIMT_U16;
  else if constexpr (sizeof(T) == 4) return std::is_signed_v<T> ? SIMT_I32 : SIMT_U32;
  else {
    static_assert(sizeof(T) == 8 && std::is_integral_v<T>, "no atomic functions for this type");
    return std::is_signed_v<T> ? SIMT_I64 : SIMT_U64;
  }
}

template <class T>
SIMT_DEVICE T simt_update(simt_atomic operation, T* address, T operand, T compare = T()) {
  auto old = simt_atomic_access(operation, simt_type_of<T>(), address, simt_bits(operand), simt_bits(compare));
  return simt_value<T>(old);
}

// Also those that name a scope: _block and _system.
#define SIMT_ATOMIC(NAME, OPERATION)                                                                                 \
  template <class T>                                                                                                 \
  SIMT_DEVICE T NAME(T* address, std::type_identity_t<T> value) { return simt_update<T>(OPERATION, address, value); }
#define SIMT_ATOMICS(NAME, OPERATION)   \
  SIMT_ATOMIC(NAME, OPERATION)          \
  SIMT_ATOMIC(NAME##_block, OPERATION)  \
  SIMT_ATOMIC(NAME##_system, OPERATION)
SIMT_ATOMICS(atomicAdd, SIMT_ADD)
SIMT_ATOMICS(atomicMin, SIMT_MIN)
SIMT_ATOMICS(atomicMax, SIMT_MAX)
SIMT_ATOMICS(atomicExch, SIMT_EXCH)
SIMT_ATOMICS(atomicAnd, SIMT_BITAND)
SIMT_ATOMICS(atomicOr, SIMT_BITOR)
SIMT_ATOMICS(atomicXor, SIMT_BITXOR)
SIMT_ATOMICS(atomicInc, SIMT_INC)
SIMT_ATOMICS(atomicDec, SIMT_DEC)

template <class T>
SIMT_DEVICE T atomicSub(T* address, std::type_identity_t<T> value) {
  return simt_update<T>(SIMT_ADD, address, static_cast<T>(T() - value));
}
template <class T>
SIMT_DEVICE T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  return simt_update<T>(SIMT_CAS, address, value, compare);
}
