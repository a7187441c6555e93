// Signals: mbarriers that count bytes which are sent, by st.async or bulk copies, to the block that they are of.
#pragma once
#include "memory.h"

namespace simt {

// The number of the signal at an address, from 1.
inline uint32_t signal_at(const void* address, uint32_t code) {
  uint64_t offset = offset_of(address);
  if (offset >= state.blocks.size() * arena.stride || offset % 8 || !(arena.written[offset / 4] & HAS_SIGNAL))
    accuse(code, "uses a signal that nobody began");
  return static_cast<uint32_t>(*static_cast<const uint64_t*>(address));
}

inline void check_own(const void* address, uint32_t code) {
  if (offset_of(address) >> arena.shift != state.current->block->place)
    accuse(code, "takes for a signal what is not in shared memory of its own block");
}

inline void begin_signal(void* address, uint32_t code) {
  check_alignment(address, 8, WRITES, code);
  check_own(address, code);
  access(address, 8, Kind(WRITES | ATOMIC | SIGNAL), code);
  uint8_t* words = arena.written + offset_of(address) / 4;
  if (words[0] & HAS_SIGNAL) accuse(code, "begins a signal where one lies");
  words[0] |= HAS_SIGNAL, words[1] |= HAS_SIGNAL;
  const Thread& self = *state.current;
  Signal signal{self.block, &self, state.now, self.clusters_arrived};
  signal.passed_times.assign(state.launch->threads, 0);
  state.signals.push_back(std::move(signal));
  *static_cast<uint64_t*>(address) = state.signals.size();
}

// That a signal is begun is seen behind any barrier of the cluster, also where who began it arrives without making all writes seen
// (fence.mbarrier_init).
inline void check_begun(const Signal& signal, uint32_t code) {
  const Thread& self = *state.current;
  if (ordered(*signal.beginner, signal.begun_time, self)) return;
  if (self.clusters_waited > signal.begun_phase) return;
  Text who;
  accuse(code, "uses a signal that %s may not have begun: no barrier is between", describe(*signal.beginner, who));
}

inline void check_sum(const Signal& signal, uint32_t code) {
  if (signal.told && signal.sent > signal.expected)
    accuse(code, "makes it %lu bytes that are sent to a signal which expects %lu", signal.sent, signal.expected);
}

inline void expect(void* address, unsigned bytes, uint32_t code) {
  check_own(address, code);
  Signal& signal = state.signals[signal_at(address, code) - 1];
  check_begun(signal, code);
  access(address, 8, Kind(UPDATES | SIGNAL), code);
  if (signal.told) accuse(code, "tells a signal once more how much to expect");
  signal.told = true, signal.expected = bytes;
  check_sum(signal, code);
}

// Half of what is sent arrives later.
inline void send(const Delivery& its, void* address, uint32_t code) {
  Thread& self = *state.current;
  self.sending = signal_at(address, code);
  Signal& signal = state.signals[self.sending - 1];
  check_begun(signal, code);
  signal.sent += its.bytes, signal.sender = &self, signal.code = code;
  if (its.from) signal.sources |= 1u << self.block->rank;
  check_sum(signal, code);
  if (its.from) access(its.from, its.bytes, READS, code);
  access(its.to, its.bytes, WRITES, code);
  access(address, 8, Kind(UPDATES | SIGNAL), code);
  self.sending = 0;
  signal.on_the_way.push_back(its), state.on_the_way++;
  if (draw() % 2) deliver(signal, signal.on_the_way.size() - 1);
}

// Whether all has arrived; what is on the way does now.
inline bool passed(const void* address, uint32_t code) {
  Thread& self = *state.current;
  check_own(address, code);
  Signal& signal = state.signals[signal_at(address, code) - 1];
  check_begun(signal, code);
  access(address, 8, Kind(READS | ATOMIC | SIGNAL), code);
  while (!signal.on_the_way.empty()) deliver(signal, draw() % signal.on_the_way.size());
  if (!signal.told || signal.arrived < signal.expected) return false;
  signal.passed = true, signal.passed_times[self.number] = state.now;
  signal.passed_phase = std::min(signal.passed_phase, self.clusters_arrived);
  return true;
}

// Ways that a block leaves while something is sent to it, or copied from it. It has waited for so many cluster barriers.
inline void check_signals(const Block& block, uint32_t phase) {
  Text who;
  Place where;
  for (const Signal& signal : state.signals) {
    bool to_it = signal.block == &block, from_it = signal.block->cluster == block.cluster && signal.sources >> block.rank & 1;
    if (to_it && signal.sent && !signal.passed)
      fail("block %u exits before it has waited for what %s sends, %s", block.index.x, describe(*signal.sender, who),
           place(signal.code, where));
    if (!to_it && from_it && phase <= signal.passed_phase)
      fail("block %u may exit before what it sends is copied from its shared memory, %s: no cluster barrier after block %u has waited",
           block.index.x, place(signal.code, where), signal.block->index.x);
  }
}

}  // namespace simt
