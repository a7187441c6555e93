// Signals tell a block of a cluster that what others sent has arrived: no sender waits, as it would at a barrier, until its writes
// are done.
#pragma once
#include "guess.cuh"

// Of a block's shared memory: counts bytes that are sent to it. For one use.
struct Signal {
  unsigned long long word;
};

// By one thread; before a barrier of the cluster, after which others may send.
__device__ __forceinline__ void begin_signal(Signal* signal) {
  asm volatile("{.reg .u64 at; cvta.to.shared.u64 at, %0; mbarrier.init.shared::cta.b64 [at], 1;}" ::"l"(signal) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// How many bytes are sent in all; by one thread, once.
__device__ __forceinline__ void expect(Signal* signal, unsigned bytes) {
  asm volatile("{.reg .u64 at; cvta.to.shared.u64 at, %0; mbarrier.arrive.expect_tx.shared::cta.b64 _, [at], %1;}" ::"l"(signal),
               "r"(bytes)
               : "memory");
}

// Write a number to where another block has what this block has at an address, and count its bytes there.
__device__ __forceinline__ void send(unsigned* place, unsigned number, Signal* signal, unsigned block) {
  asm volatile(
      "{.reg .u64 at, by; cvta.to.shared.u64 at, %0; cvta.to.shared.u64 by, %1; mapa.shared::cluster.u64 at, at, %3; "
      "mapa.shared::cluster.u64 by, by, %3; st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [at], %2, [by];}" ::"l"(place),
      "l"(signal), "r"(number), "r"(block)
      : "memory");
}
__device__ __forceinline__ void send(unsigned long long* place, unsigned long long number, Signal* signal, unsigned block) {
  asm volatile(
      "{.reg .u64 at, by; cvta.to.shared.u64 at, %0; cvta.to.shared.u64 by, %1; mapa.shared::cluster.u64 at, at, %3; "
      "mapa.shared::cluster.u64 by, by, %3; st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [at], %2, [by];}" ::"l"(place),
      "l"(signal), "l"(number), "r"(block)
      : "memory");
}

__device__ __forceinline__ void send(uint4* place, uint4 numbers, Signal* signal, unsigned block) {
  asm volatile(
      "{.reg .u64 at, by; cvta.to.shared.u64 at, %0; cvta.to.shared.u64 by, %1; mapa.shared::cluster.u64 at, at, %6; "
      "mapa.shared::cluster.u64 by, by, %6; st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [at], {%2, %3, %4, %5}, [by];}" ::
          "l"(place),
      "l"(signal), "r"(numbers.x), "r"(numbers.y), "r"(numbers.z), "r"(numbers.w), "r"(block)
      : "memory");
}

// Until all that was expected has arrived.
__device__ __forceinline__ void wait_for(Signal* signal) {
  asm volatile(
      "{.reg .u64 at; .reg .pred done; cvta.to.shared.u64 at, %0; AGAIN: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [at], 0; "
      "@!done bra AGAIN;}" ::"l"(signal)
      : "memory");
}

// By threads that have written what is copied, before a barrier.
__device__ __forceinline__ void before_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Copy `bytes` of this block's shared memory, whole lines of 16, to where another block has what this block has at an address.
__device__ __forceinline__ void send_copy(void* place, const void* from, unsigned bytes, Signal* signal, unsigned block) {
  asm volatile(
      "{.reg .u64 at, here, by; cvta.to.shared.u64 at, %0; cvta.to.shared.u64 here, %1; cvta.to.shared.u64 by, %3; "
      "mapa.shared::cluster.u64 at, at, %4; mapa.shared::cluster.u64 by, by, %4; "
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [at], [here], %2, [by];}" ::"l"(place),
      "l"(from), "r"(bytes), "l"(signal), "r"(block)
      : "memory");
}

// Arrive at the barrier of the cluster without waiting for loads and writes to be done: behind it signals are seen to be begun, nothing else.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  if (BLOCKS > 1) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
