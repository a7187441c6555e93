// Switching between fibers: a fiber is a stack and the stack pointer that it was left with.
#pragma once
#include <cstdint>

#if defined(__x86_64__)

// Saves the registers that a call must keep, stores the stack pointer at *from and goes on at `to`.
extern "C" void simt_switch(void** from, void* to);
asm(R"(
.text
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
.size simt_switch, .-simt_switch
)");

namespace simt {
// The stack pointer of a fiber that starts in `entry`, which must not return.
inline void* fresh_fiber(char* stack, uint64_t size, void (*entry)()) {
  auto* top = reinterpret_cast<uint64_t*>((reinterpret_cast<uintptr_t>(stack) + size) & ~uintptr_t{15});
  *--top = 0;  // the return address that `entry` does not have; also aligns its frame
  *--top = reinterpret_cast<uint64_t>(entry);
  for (int i = 0; i < 6; i++) *--top = 0;
  return top;
}
}  // namespace simt

#elif defined(__aarch64__)

extern "C" void simt_switch(void** from, void* to);
asm(R"(
.text
.type simt_switch, %function
simt_switch:
  sub sp, sp, #176
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #176
  ret
.size simt_switch, .-simt_switch
)");

namespace simt {
inline void* fresh_fiber(char* stack, uint64_t size, void (*entry)()) {
  auto* top = reinterpret_cast<uint64_t*>((reinterpret_cast<uintptr_t>(stack) + size) & ~uintptr_t{15}) - 22;
  for (int i = 0; i < 22; i++) top[i] = 0;
  top[11] = reinterpret_cast<uint64_t>(entry);  // x30
  return top;
}
}  // namespace simt

#else
#error "the emulator knows how to switch fibers on x86-64 and aarch64 only"
#endif
