// Everything a launch consists of: threads, blocks, clusters, and the group of blocks that live at the same time.
#pragma once
#include <cstdint>
#include <deque>
#include <vector>

#include "../simt.h"

namespace simt {

constexpr uint64_t STACK_BYTES = 128 << 10;
constexpr uint64_t STACK_RESERVE = 32 << 10;  // left for the runtime when a kernel calls it
constexpr unsigned MAX_CLUSTER = 16;

// A barrier or a warp operation that a thread waits at.
struct Wait {
  const char* what = nullptr;  // null while it runs
  int id = 0;                  // of a named barrier
  unsigned mask = 0;           // of a warp operation
  int line = 0;
};

struct Copy {
  char* shared;
  const char* global;
  unsigned bytes;
  bool zeros;
  uint32_t code;
};

struct Block;

struct Thread {
  void* stack_pointer;
  char* stack;
  Block* block;
  simt_index index;
  unsigned number, lane, warp;  // in the block
  unsigned id;                  // in the group
  bool done = false;
  bool dependency_met = false;  // waited for the preceding launch
  Wait wait;

  simt_operation operation;
  uint64_t value, result;
  int argument, width;

  // What is ordered before this thread's next access, as times (see shadow.h).
  uint32_t grid_time = 0, block_time = 0, warp_time = 0;
  uint32_t lane_times[32] = {};  // of lanes of the own warp
  uint32_t warp_times[32] = {};  // of warps of the own block
  uint32_t meet_times[4] = {}, meets = 0;  // of the last meetings at named barriers, by their number modulo 4
  uint32_t clusters_arrived = 0, clusters_waited = 0;
  uint32_t arrive_times[4] = {};  // of the last arrivals at the cluster barrier, by their number modulo 4
  uint32_t sending = 0;           // the number of the signal that counts what is accessed now, from 1, or 0
  uint32_t remote_times[MAX_CLUSTER] = {};  // of the last access to each peer's shared memory
  uint32_t remote_code[MAX_CLUSTER] = {};

  std::vector<Copy> copies;
  std::vector<unsigned> copy_groups;  // how many of `copies` each committed group holds
};

// bar.sync: who has come so far.
struct Barrier {
  unsigned arrived = 0, needed = 0;
  int line = 0;  // where the first one came
  std::vector<Thread*> waiting;
  uint32_t arrive_times[32];  // of the last thread of each warp; the largest where one waits
  uint32_t warps = 0;         // that arrived
};

// A warp operation that is not complete.
struct Meeting {
  simt_operation operation;
  unsigned mask, arrived;
};

struct Warp {
  unsigned exists = 0, alive = 0;
  bool partial = false;  // some __syncwarp had fewer lanes than the warp
  std::vector<Meeting> meetings;
};

struct Cluster {
  unsigned missing = 0;  // living threads that did not arrive at the barrier in this phase
  unsigned alive = 0;
  uint32_t phase = 0;
};

struct Block {
  simt_index index;
  unsigned place;  // in the group
  int rank;        // in the cluster
  Cluster* cluster;
  Thread* threads;
  unsigned alive;
  bool partial = false;  // some named barrier had fewer threads than the block
  Barrier barriers[16];
  simt_vote vote;
  int votes;
  std::vector<Warp> warps;
};

// Bytes that were sent and did not arrive yet: those of a number, or copied from shared memory when they arrive.
struct Delivery {
  char* to;
  const char* from;  // null for a number's
  uint64_t bits;
  unsigned bytes;
};

// An mbarrier, for one phase. Its memory holds its number.
struct Signal {
  Block* block;
  const Thread* beginner;
  uint32_t begun_time, begun_phase;              // when that was, and after how many of its arrivals at the cluster barrier
  bool told = false;                             // what it expects
  uint64_t expected = 0, sent = 0, arrived = 0;  // bytes
  std::vector<Delivery> on_the_way;
  bool passed = false;                 // somebody has waited until all had arrived
  std::vector<uint32_t> passed_times;  // when threads of the block had; 0 of those that did not wait
  uint32_t passed_phase = ~0u;         // after which arrivals at the cluster barrier one had, the least
  const Thread* sender = nullptr;      // the last
  uint32_t code = 0;                   // where that sends
  uint32_t sources = 0;                // blocks of the cluster whose memory is copied
};

// A buffer in shared memory, at the same offset in every block.
struct Shared {
  const char* name;
  const void* key;
  uint64_t offset, bytes;
};

}  // namespace simt

extern "C" {

// A tensor that the kernel may touch.
struct simt_tensor {
  uint64_t address, bytes;
  int32_t writable;
  const char* name;
};

struct simt_launch {
  uint32_t grid[3];
  uint32_t threads;
  uint32_t cluster;
  uint32_t cooperative;
  uint32_t programmatic;  // must wait for the preceding launch before it touches tensors
  uint32_t preempt;       // switch threads about every so many shared accesses; 0 is never
  uint32_t check_races;
  uint32_t check_uninitialised;
  uint64_t shared_bytes;
  uint64_t seed;
  uint64_t step_limit;  // basic blocks of all threads together
  uint32_t tensor_count;
  const simt_tensor* tensors;
  void* const* arguments;
  void (*entry)(void* const*);
  char* message;
  uint64_t message_bytes;
  // Filled in.
  uint64_t steps, switches, barriers, programmatic_syncs, programmatic_triggers;
};

}  // extern "C"

namespace simt {

// The one launch that runs. Callers hold a lock.
struct State {
  simt_launch* launch = nullptr;
  uint64_t image_begin = 0, image_end = 0;  // the kernel's own code and data
  Thread* current = nullptr;
  void* main_stack_pointer = nullptr;
  bool failed = false;

  std::vector<Thread> threads;
  std::vector<Block> blocks;
  std::vector<Cluster> clusters;
  std::vector<Thread*> ready;
  size_t ready_head = 0;
  unsigned alive = 0;
  unsigned grid_missing = 0;

  std::deque<Signal> signals;
  uint64_t on_the_way = 0;  // deliveries of all signals

  uint64_t random = 1;
  uint32_t until_preempt = 0;
  uint32_t quantum = 0;  // basic blocks until the thread must let another one run

  uint32_t now = 1;          // grows with every synchronisation, over all launches
  uint32_t group_start = 1;  // older times are of other blocks
};

inline State state;

}  // namespace simt
