// Failing: one sentence for the caller, and the fiber is left for good.
#pragma once
#include <cstdarg>
#include <cstdio>

#include "fiber.h"
#include "state.h"

namespace simt {

using Text = char[160];

// "thread 5 of block 2". Blocks of a grid with more dimensions are (x, y, z).
inline const char* describe(const Thread& thread, Text& text) {
  const simt_index& block = thread.block->index;
  if (state.launch->grid[1] * state.launch->grid[2] == 1)
    snprintf(text, sizeof text, "thread %u of block %u", thread.number, block.x);
  else
    snprintf(text, sizeof text, "thread %u of block (%u, %u, %u)", thread.number, block.x, block.y, block.z);
  return text;
}

// An address in the kernel's code, short enough to be kept with every access.
inline uint32_t code_of(const void* address) {
  return static_cast<uint32_t>(reinterpret_cast<uint64_t>(address) - state.image_begin);
}

// Written into messages as @{...}, which the caller replaces by the line of source.
using Place = char[24];
inline const char* place(uint32_t code, Place& text) {
  snprintf(text, sizeof text, "@{%x}", code);
  return text;
}

// Keep the first message.
__attribute__((format(printf, 1, 2))) inline void record_failure(const char* format, ...) {
  if (state.failed) return;
  state.failed = true;
  va_list list;
  va_start(list, format);
  vsnprintf(state.launch->message, state.launch->message_bytes, format, list);
  va_end(list);
}

// Give up the launch. Nothing on the fiber's stack is destroyed; kernels hold nothing that needs it.
[[noreturn]] inline void leave() {
  void* unused;
  simt_switch(&unused, state.main_stack_pointer);
  __builtin_unreachable();
}

template <class... Values>
[[noreturn]] void fail(const char* format, Values... values) {
  record_failure(format, values...);
  leave();
}

// "thread 5 of block 2 WHAT, PLACE".
template <class... Values>
[[noreturn]] void accuse(uint32_t code, const char* what, Values... values) {
  char text[512];
  Text who;
  Place where;
  snprintf(text, sizeof text, what, values...);
  fail("%s %s, %s", describe(*state.current, who), text, place(code, where));
}

}  // namespace simt
