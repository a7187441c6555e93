// The race detector: who touched each word of shared memory last, and whether that is ordered before an access.
//
// A time is a number that grows with every synchronisation. An access is stamped with the time when it happens. An
// older one is ordered before it if the two threads have synchronised since.
#pragma once
#include <algorithm>

#include "schedule.h"

namespace simt {

// What an access does, as bits.
enum Kind : unsigned {
  READS = 1,
  WRITES = 2,
  ATOMIC = 4,
  UPDATES = READS | WRITES | ATOMIC,
  SIGNAL = 8,  // what is done to a signal as such
};

struct Record {
  uint32_t time = 0;
  uint32_t thread = 0;  // in the group, times 16, plus the bytes of the word
  uint32_t code = 0;
  uint32_t signal = 0;  // the number of the one that counts what is sent, or 0

  unsigned bytes() const { return thread & 15; }
  Thread& owner() const { return state.threads[thread >> 4]; }
};

// What is remembered of a word. Of many readers those in different warps and blocks, so that whoever writes later finds
// one that is not of its own warp or block.
struct Word {
  Record writes[2];   // the last, and the last to other bytes
  Record atomics[2];  // the last, and the last of another warp
  Record reads[2];    // likewise, by the block itself
  Record remotes[2];  // the last read by another block, and by one more
};

inline uint32_t tick() { return state.now++; }

// Whether what `thread` did at `time` comes before a meeting of its warp at `meeting`: a thread that arrives without
// waiting goes on, perhaps before others of its warp arrive.
inline bool before_meeting(const Thread& thread, uint32_t time, uint32_t meeting) {
  if (time > meeting) return false;
  uint32_t own = 0;
  for (uint32_t met : thread.meet_times)
    if (met <= meeting) own = std::max(own, met);
  return own ? time <= own : thread.meets > 4;  // forgotten, which is no reason to report a race
}

// Everything that `thread` did up to `time` comes before what `self` does next.
inline bool ordered(const Thread& thread, uint32_t time, const Thread& self) {
  if (&thread == &self || time <= self.grid_time) return true;
  const Block& block = *thread.block;
  if (block.cluster != self.block->cluster) return false;
  if (self.clusters_waited && time <= thread.arrive_times[(self.clusters_waited - 1) % 4]) return true;
  if (&block != self.block) return false;
  if (time <= self.block_time || before_meeting(thread, time, self.warp_times[thread.warp])) return true;
  return thread.warp == self.warp && time <= std::max(self.warp_time, self.lane_times[thread.lane]);
}

// Whether what was sent has arrived before what `self` does next: it has waited for that, or somebody that it met since.
inline bool received(const Record& record, const Thread& self) {
  const Signal& signal = state.signals[record.signal - 1];
  if (!signal.passed) return false;
  if (self.block == signal.block && signal.passed_times[self.number]) return true;
  for (unsigned i = 0; i < signal.passed_times.size(); i++)
    if (signal.passed_times[i] && ordered(signal.block->threads[i], signal.passed_times[i], self)) return true;
  return false;
}

inline const Record* unordered(const Record (&records)[2], unsigned bytes, const Thread& self) {
  for (const Record& record : records)
    if (record.time >= state.group_start && record.bytes() & bytes &&
        !(record.signal ? received(record, self) : ordered(record.owner(), record.time, self)))
      return &record;
  return nullptr;
}

inline void keep(Record (&records)[2], const Record& record, bool by_block) {
  const Thread& thread = record.owner();
  if (records[0].time >= state.group_start) {
    const Thread& other = records[0].owner();
    bool elsewhere = other.block != thread.block || (!by_block && other.warp != thread.warp);
    if (elsewhere) records[1] = records[0];
  }
  records[0] = record;
}

// The older access that this one races with, or null; remembers this one. Two accesses race if one of them writes and
// one of them is not atomic. An atomic load is not remembered.
inline const Record* race(Word& word, Kind kind, unsigned bytes, bool remote, uint32_t code, Kind& older) {
  Thread& self = *state.current;
  older = WRITES;
  if (const Record* found = unordered(word.writes, bytes, self)) return found;
  if (!(kind & ATOMIC)) {
    older = UPDATES;
    if (const Record* found = unordered(word.atomics, bytes, self)) return found;
  }
  if (kind & WRITES) {
    older = READS;
    if (const Record* found = unordered(word.reads, bytes, self)) return found;
    if (const Record* found = unordered(word.remotes, bytes, self)) return found;
  }
  Record record{state.now, self.id << 4 | bytes, code, self.sending};
  if (kind == READS) {
    keep(remote ? word.remotes : word.reads, record, remote);
  } else if (!(kind & ATOMIC)) {
    if (word.writes[0].bytes() & ~bytes) word.writes[1] = word.writes[0];
    word.writes[0] = record;
  } else if (kind & WRITES) {
    keep(word.atomics, record, false);
  }
  return nullptr;
}

}  // namespace simt
