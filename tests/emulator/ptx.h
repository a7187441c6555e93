// The PTX instructions that kernels embed, one function an instruction: `a.b::c.d` becomes simt::ptx::a_b__c_d.
#pragma once
#include "simt.h"

namespace simt::ptx {

#define IGNORED(NAME) template <class... T> void NAME(const T&...) {}
IGNORED(griddepcontrol_wait) IGNORED(griddepcontrol_launch_dependents) IGNORED(cp_async_commit_group)
IGNORED(cp_async_wait_all) IGNORED(cp_async_wait_group) IGNORED(fence_proxy_async) IGNORED(prefetch_global_L2)
#undef IGNORED

#define FENCE(NAME) inline void NAME() { fence(); }
FENCE(fence_acq_rel_gpu) FENCE(fence_acq_rel_cta) FENCE(fence_acq_rel_cluster) FENCE(fence_sc_gpu) FENCE(fence_sc_cta)
FENCE(fence_sc_cluster) FENCE(membar_gl) FENCE(membar_cta) FENCE(membar_sys)
#undef FENCE

inline void bar_sync(int id, int threads) { named_barrier(id, threads, true); }
inline void bar_arrive(int id, int threads) { named_barrier(id, threads, false); }
inline void bar_sync(int id, int line = __builtin_LINE()) {
  if (id == 0) block_barrier(0, line);
  else named_barrier(id, int((block_size().x * block_size().y * block_size().z + 31) / 32 * 32), true);
}
inline void barrier_sync(int id, int threads) { bar_sync(id, threads); }
inline void barrier_sync_aligned(int id, int threads) { bar_sync(id, threads); }
inline void barrier_arrive(int id, int threads) { bar_arrive(id, threads); }
inline void bar_warp_sync(unsigned mask) { __syncwarp(mask); }

#define ARRIVE(NAME, RELEASE) inline void NAME() { group_arrive(Group::cluster, RELEASE); }
ARRIVE(barrier_cluster_arrive, true) ARRIVE(barrier_cluster_arrive_aligned, true)
ARRIVE(barrier_cluster_arrive_release, true) ARRIVE(barrier_cluster_arrive_release_aligned, true)
ARRIVE(barrier_cluster_arrive_relaxed, false) ARRIVE(barrier_cluster_arrive_relaxed_aligned, false)
#undef ARRIVE
#define WAIT(NAME) inline void NAME() { group_wait(Group::cluster); }
WAIT(barrier_cluster_wait) WAIT(barrier_cluster_wait_aligned) WAIT(barrier_cluster_wait_acquire)
WAIT(barrier_cluster_wait_acquire_aligned)
#undef WAIT

// special registers, as in mov.u32 %0, %%laneid
#define SPECIAL(NAME, VALUE) inline uint NAME() { return uint(VALUE); }
SPECIAL(laneid, lane()) SPECIAL(cluster_ctarank, cluster_rank()) SPECIAL(cluster_nctarank, cluster_blocks())
SPECIAL(lanemask_lt, (1u << lane()) - 1) SPECIAL(lanemask_le, (2u << lane()) - 1) SPECIAL(lanemask_eq, 1u << lane())
SPECIAL(lanemask_gt, ~((2u << lane()) - 1)) SPECIAL(lanemask_ge, ~((1u << lane()) - 1))
#undef SPECIAL
template <class T> void mov_u32(T& to, uint from) { to = T(from); }

inline void mapa_shared__cluster_u32(uint& to, uint window, uint rank) { to = shared_window(of_block(generic(window), int(rank))); }

// shared memory by its window address, of this block or of another in the cluster
#define SHARED(TYPE, T)                                                                                          \
  template <class D> void ld_shared_##TYPE(D& to, uint from) { to = D(*static_cast<T*>(generic(from))); }        \
  template <class D> void ld_shared__cluster_##TYPE(D& to, uint from) { to = D(*static_cast<T*>(generic(from))); } \
  template <class S> void st_shared_##TYPE(uint to, S v) { *static_cast<T*>(generic(to)) = T(v); }               \
  template <class S> void st_shared__cluster_##TYPE(uint to, S v) { *static_cast<T*>(generic(to)) = T(v); }      \
  template <class D, class S> void atom_shared_add_##TYPE(D& old, uint at, S v) { old = D(atomicAdd(static_cast<T*>(generic(at)), T(v))); } \
  template <class D, class S> void atom_shared__cluster_add_##TYPE(D& old, uint at, S v) { old = D(atomicAdd(static_cast<T*>(generic(at)), T(v))); } \
  template <class D, class S> void atom_relaxed_cluster_shared__cluster_add_##TYPE(D& old, uint at, S v) { old = D(atomicAdd(static_cast<T*>(generic(at)), T(v))); } \
  template <class S> void red_shared_add_##TYPE(uint at, S v) { atomicAdd(static_cast<T*>(generic(at)), T(v)); } \
  template <class S> void red_shared__cluster_add_##TYPE(uint at, S v) { atomicAdd(static_cast<T*>(generic(at)), T(v)); } \
  template <class S> void red_relaxed_cluster_shared__cluster_add_##TYPE(uint at, S v) { atomicAdd(static_cast<T*>(generic(at)), T(v)); }
SHARED(u32, uint) SHARED(s32, int) SHARED(u64, uint64_t) SHARED(f32, float)
#undef SHARED

// global memory: acquire and release are a fence beside a relaxed access
#define GLOBAL(TYPE, T)                                                                                          \
  template <class D, class P> void ld_global_nc_##TYPE(D& to, P from) { to = D(*reinterpret_cast<const T*>(from)); } \
  template <class D, class P> void ld_global_##TYPE(D& to, P from) { to = D(*reinterpret_cast<const T*>(from)); } \
  template <class D, class P> void ld_acquire_gpu_global_##TYPE(D& to, P from) { to = D(simt::atomic(Atomic::load, (T*)(from), T{})); } \
  template <class P, class S> void st_release_gpu_global_##TYPE(P to, S v) { fence(), simt::atomic(Atomic::store, (T*)(to), T(v)); } \
  template <class D, class P, class S> void atom_acq_rel_gpu_global_add_##TYPE(D& old, P at, S v) { fence(), old = D(atomicAdd((T*)(at), T(v))); } \
  template <class D, class P, class S> void atom_global_add_##TYPE(D& old, P at, S v) { old = D(atomicAdd((T*)(at), T(v))); } \
  template <class P, class S> void red_release_gpu_global_add_##TYPE(P at, S v) { fence(), atomicAdd((T*)(at), T(v)); }
GLOBAL(u32, uint) GLOBAL(s32, int) GLOBAL(u64, uint64_t) GLOBAL(f32, float)
#undef GLOBAL

#define ASYNC(NAME)                                                                                              \
  template <class P> void NAME(uint to, P from, int bytes) { copy(generic(to), (const void*)(from), size_t(bytes)); } \
  template <class P> void NAME(uint to, P from, int bytes, int given) {                                          \
    char* shared = static_cast<char*>(generic(to));                                                              \
    if (given) copy(shared, (const void*)(from), size_t(given));                                                 \
    for (int i = given; i < bytes; ++i) shared[i] = 0;                                                           \
  }
ASYNC(cp_async_ca_shared_global) ASYNC(cp_async_cg_shared_global)
#undef ASYNC

}  // namespace simt::ptx
