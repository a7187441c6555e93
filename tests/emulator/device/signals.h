// What is sent to a block of the cluster goes to where the sender has a place and a signal.
#pragma once
#include "atomics.h"

template <class T, class S>
SIMT_DEVICE void simt_send(T* place, T number, S* signal, unsigned block) {
  int rank = static_cast<int>(block);
  simt_send(simt_map_shared(place, rank), simt_bits(number), sizeof(T), simt_map_shared(signal, rank));
}
template <class T, class S>
SIMT_DEVICE void simt_send(T* place, unsigned x, unsigned y, unsigned z, unsigned w, S* signal, unsigned block) {
  unsigned* words = reinterpret_cast<unsigned*>(place);
  simt_send(words, x, signal, block), simt_send(words + 1, y, signal, block);
  simt_send(words + 2, z, signal, block), simt_send(words + 3, w, signal, block);
}
SIMT_DEVICE void simt_send_copy(void* place, const void* from, unsigned bytes, void* signal, unsigned block) {
  int rank = static_cast<int>(block);
  simt_send_bytes(simt_map_shared(place, rank), from, bytes, simt_map_shared(signal, rank));
}
SIMT_DEVICE void simt_wait_for(const void* signal) {
  while (!simt_passed(signal)) simt_yield();
}
