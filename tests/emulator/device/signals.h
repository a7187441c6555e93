// mbarriers that count the bytes of st.async, for one phase.
#pragma once
#include "atomics.h"

// Of an mbarrier: the bytes that have arrived, those that are expected from bit 32 on, and that none are told yet.
constexpr unsigned long long SIMT_UNTOLD = 1ull << 63;

template <class S>
SIMT_DEVICE void simt_begin_signal(S* signal) {
  *reinterpret_cast<unsigned long long*>(signal) = SIMT_UNTOLD;
}
template <class S>
SIMT_DEVICE void simt_expect(S* signal, unsigned bytes) {
  atomicAdd(reinterpret_cast<unsigned long long*>(signal), (static_cast<unsigned long long>(bytes) << 32) - SIMT_UNTOLD);
}
template <class T, class S>
SIMT_DEVICE void simt_send(T* place, T number, S* signal, unsigned block) {
  int rank = static_cast<int>(block);
  simt_send(simt_map_shared(place, rank), number, sizeof(T), simt_map_shared(signal, rank));
}
template <class T, class S>
SIMT_DEVICE void simt_send(T* place, unsigned x, unsigned y, unsigned z, unsigned w, S* signal, unsigned block) {
  unsigned* words = reinterpret_cast<unsigned*>(place);
  simt_send(words, x, signal, block), simt_send(words + 1, y, signal, block);
  simt_send(words + 2, z, signal, block), simt_send(words + 3, w, signal, block);
}
template <class T, class S>
SIMT_DEVICE void simt_send_copy(void* place, T* from, unsigned bytes, S* signal, unsigned block) {
  auto* words = static_cast<unsigned*>(place);
  auto* own = reinterpret_cast<const unsigned*>(from);
  for (unsigned i = 0; i < bytes / sizeof(unsigned); i++) simt_send(words + i, own[i], signal, block);
}
template <class S>
SIMT_DEVICE void simt_wait_for(S* signal) {
  for (;;) {
    auto word = simt_update<unsigned long long>(SIMT_LOAD, reinterpret_cast<unsigned long long*>(signal), 0);
    if (word >> 32 == (word & 0xFFFFFFFF)) break;
    simt_yield();
  }
  simt_passed(signal);
}
