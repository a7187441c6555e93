// Who runs next, and what is said when nobody can.
#pragma once
#include <map>
#include <string>
#include <tuple>

#include "report.h"

namespace simt {

constexpr uint32_t QUANTUM = 1 << 14;

inline uint64_t draw() {  // xorshift64*
  uint64_t& x = state.random;
  x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
  return x * 0x2545F4914F6CDD1Dull >> 16;
}

inline void make_ready(Thread* thread) {
  thread->wait.what = nullptr;
  state.ready.push_back(thread);
}

inline Thread* pick() {
  auto& ready = state.ready;
  if (state.ready_head == ready.size()) return nullptr;
  if (state.launch->preempt) {
    size_t chosen = state.ready_head + draw() % (ready.size() - state.ready_head);
    std::swap(ready[chosen], ready.back());
    Thread* thread = ready.back();
    ready.pop_back();
    return thread;
  }
  Thread* thread = ready[state.ready_head++];
  if (state.ready_head > 4096 && state.ready_head * 2 > ready.size()) {
    ready.erase(ready.begin(), ready.begin() + static_cast<std::ptrdiff_t>(state.ready_head));
    state.ready_head = 0;
  }
  return thread;
}

inline void record_deadlock() {
  std::map<std::tuple<unsigned, std::string, int>, unsigned> waiting;
  std::map<unsigned, unsigned> exited;
  for (const Thread& thread : state.threads) {
    if (thread.done) {
      exited[thread.block->place]++;
      continue;
    }
    char what[80];
    if (thread.wait.mask)
      snprintf(what, sizeof what, "%s of warp %u with mask 0x%x", thread.wait.what, thread.warp, thread.wait.mask);
    else if (thread.wait.id > 0)
      snprintf(what, sizeof what, "%s %d", thread.wait.what, thread.wait.id);
    else
      snprintf(what, sizeof what, "%s", thread.wait.what);
    waiting[{thread.block->place, what, thread.wait.line}]++;
  }
  std::string text;
  auto threads_of = [](unsigned count, unsigned block) {
    return std::to_string(count) + " threads of block " + std::to_string(state.blocks[block].index.x);
  };
  int items = 0;
  for (auto& [where, count] : waiting) {
    if (++items > 8) {
      text += ", and others elsewhere";
      break;
    }
    auto& [block, what, line] = where;
    if (!text.empty()) text += ", ";
    text += threads_of(count, block) + " at " + what + " (line " + std::to_string(line) + ")";
  }
  for (auto& [block, count] : exited)
    if (state.blocks[block].alive) text += ", " + threads_of(count, block) + " have exited";
  record_failure("deadlock: %s", text.c_str());
}

inline void resume(Thread* thread) {
  state.current = thread;
  state.quantum = QUANTUM;
  state.launch->switches++;
}

// Leave the running fiber, which is ready, waits or is done.
inline void switch_away() {
  Thread* self = state.current;
  Thread* next = pick();
  if (next == self) return;
  if (!next) {
    if (state.alive) record_deadlock();
    state.current = nullptr;
    simt_switch(&self->stack_pointer, state.main_stack_pointer);
    return;
  }
  resume(next);
  simt_switch(&self->stack_pointer, next->stack_pointer);
}

inline void yield() {
  state.ready.push_back(state.current);
  switch_away();
}

// Until another thread calls make_ready.
inline void wait_at(const char* what, int line, int id = 0, unsigned mask = 0) {
  state.current->wait = {what, id, mask, line};
  switch_away();
}

inline void maybe_preempt() {
  if (!state.launch->preempt || --state.until_preempt) return;
  state.until_preempt = 1 + static_cast<uint32_t>(draw() % (2 * uint64_t{state.launch->preempt}));
  yield();
}

}  // namespace simt
