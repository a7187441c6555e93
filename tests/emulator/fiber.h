// A stack and a place on it: switching from one to another without asking the operating system.
#pragma once
#include <cstddef>
#include <cstdint>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace simt {

#if defined(__x86_64__)
extern "C" void simt_switch(void** save, void* load);
asm(R"(
  .text
  .hidden simt_switch
  .globl simt_switch
  .type simt_switch, @function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size simt_switch, . - simt_switch
)");

class Fiber {
 public:
  // entry never returns; the stack grows down from top.
  void start(char*, char* top, void (*entry)()) {
    auto** slot = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{15});
    *--slot = nullptr;  // where entry would return to; keeps its frame aligned as after a call
    *--slot = reinterpret_cast<void*>(entry);
    for (int saved = 0; saved < 6; ++saved) *--slot = nullptr;
    place_ = slot;
  }
  void switch_to(Fiber& other) { simt_switch(&place_, other.place_); }

 private:
  void* place_ = nullptr;
};
#else
class Fiber {
 public:
  void start(char* bottom, char* top, void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = bottom;
    context_.uc_stack.ss_size = static_cast<size_t>(top - bottom);
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
  }
  void switch_to(Fiber& other) { swapcontext(&context_, &other.context_); }

 private:
  ucontext_t context_;
};
#endif

}  // namespace simt
