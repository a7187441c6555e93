// Atomic operations on shared memory, also of other blocks, and on tensors; and cp.async.
#pragma once
#include "warp.h"

namespace simt {

template <class T>
T combine(simt_atomic operation, T old, T operand, T compare) {
  switch (operation) {
    case SIMT_ADD: return static_cast<T>(old + operand);
    case SIMT_MIN: return std::min(old, operand);
    case SIMT_MAX: return std::max(old, operand);
    case SIMT_EXCH: return operand;
    case SIMT_CAS: return memcmp(&old, &compare, sizeof(T)) == 0 ? operand : old;
    default: return old;
  }
}

template <class T>
T combine_bits(simt_atomic operation, T old, T operand, T compare) {
  switch (operation) {
    case SIMT_BITAND: return old & operand;
    case SIMT_BITOR: return old | operand;
    case SIMT_BITXOR: return old ^ operand;
    case SIMT_INC: return old >= operand ? T{0} : static_cast<T>(old + 1);
    case SIMT_DEC: return old == 0 || old > operand ? operand : static_cast<T>(old - 1);
    default: return combine(operation, old, operand, compare);
  }
}

template <class T>
T from_bits(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
uint64_t update(simt_atomic operation, void* address, uint64_t operand, uint64_t compare, uint32_t code) {
  Kind kind = operation == SIMT_EXCH ? Kind(WRITES | ATOMIC) : operation == SIMT_LOAD ? Kind(READS | ATOMIC) : UPDATES;
  check_alignment(address, sizeof(T), kind, code);
  access(address, sizeof(T), kind, code);
  T old = *static_cast<T*>(address), next;
  if constexpr (std::is_integral_v<T>)
    next = combine_bits<T>(operation, old, from_bits<T>(operand), from_bits<T>(compare));
  else
    next = combine<T>(operation, old, from_bits<T>(operand), from_bits<T>(compare));
  if (operation != SIMT_LOAD) *static_cast<T*>(address) = next;
  uint64_t bits = 0;
  memcpy(&bits, &old, sizeof old);
  return bits;
}

inline uint64_t atomic_access(simt_atomic operation, simt_type type, void* address, uint64_t operand, uint64_t compare,
                              uint32_t code) {
  switch (type) {
    case SIMT_I32: return update<int32_t>(operation, address, operand, compare, code);
    case SIMT_U32: return update<uint32_t>(operation, address, operand, compare, code);
    case SIMT_I64: return update<int64_t>(operation, address, operand, compare, code);
    case SIMT_U64: return update<uint64_t>(operation, address, operand, compare, code);
    case SIMT_F32: return update<float>(operation, address, operand, compare, code);
    case SIMT_F64: return update<double>(operation, address, operand, compare, code);
    default: return update<uint16_t>(operation, address, operand, compare, code);
  }
}

// Copies are made as late as the program allows: when it waits for them.
inline void finish_copies(size_t count) {
  auto& copies = state.current->copies;
  for (size_t i = 0; i < count; i++) {
    const Copy copy = copies[i];
    if (!copy.zeros) access(copy.global, copy.bytes, READS, copy.code);
    access(copy.shared, copy.bytes, WRITES, copy.code);
    if (copy.zeros)
      memset(copy.shared, 0, copy.bytes);
    else
      memcpy(copy.shared, copy.global, copy.bytes);
  }
  copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(count));
}

inline void commit_copies() {
  Thread& self = *state.current;
  size_t committed = 0;
  for (unsigned group : self.copy_groups) committed += group;
  self.copy_groups.push_back(static_cast<unsigned>(self.copies.size() - committed));
}

inline void wait_for_copies(unsigned groups_left) {
  Thread& self = *state.current;
  if (groups_left == 0) commit_copies();  // cp.async.wait_all waits for uncommitted ones as well
  size_t count = 0;
  while (self.copy_groups.size() > groups_left) {
    count += self.copy_groups.front();
    self.copy_groups.erase(self.copy_groups.begin());
  }
  finish_copies(count);
}

}  // namespace simt
