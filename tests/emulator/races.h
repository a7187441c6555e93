// Happens-before between warps: a vector clock a warp, a shadow a word (as FastTrack, Flanagan and Freund 2009).
//
// Two accesses race if they touch a byte in common, one writes, not both are atomic, and no barrier (or fence and
// atomic) orders them. Lanes of one warp are ordered by __syncwarp and by barriers, not by shuffles or votes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace simt {

using Clock = uint32_t;

struct Access {
  Clock clock = 0;  // of the accessing warp; 0: never accessed
  uint32_t pc = 0;
  uint16_t warp = 0;
  uint8_t lane = 0;   // SEVERAL: more than one lane of the warp
  uint8_t bytes = 0;  // of the word, one bit each; ATOMIC is added
};
constexpr uint8_t SEVERAL = 32, BYTES = 0x0f, ATOMIC = 0x10;

struct Shadow {
  Access write, read, other_read;  // the last write; the last reads of two different warps since
};

enum class Touch { read, write, atomic };

class Clocks {
 public:
  // A group of blocks starts: everything before it is ordered before it, so no shadow needs to be wiped.
  void start(int warps) {
    Clock past = 0;
    for (int warp = 0; warp < warps_; ++warp) past = std::max(past, own(warp));
    warps_ = warps;
    latest_ = std::max(latest_, past);
    known_.assign(size_t(warps) * warps, latest_);
    for (int warp = 0; warp < warps; ++warp) tick(warp);
    fenced_.assign(warps, {});
    published_.clear();
  }
  using Vector = std::vector<Clock>;
  Clock own(int warp) const { return known_[size_t(warp) * warps_ + warp]; }
  void tick(int warp) { ++known_[size_t(warp) * warps_ + warp]; }
  void publish(int warp, Vector& to) const {
    to.resize(warps_);
    join(to.data(), row(warp));
  }
  void learn(int warp, const Vector& from) {
    if (!from.empty()) join(&known_[size_t(warp) * warps_], from.data());
  }
  void fence(int warp) {
    publish(warp, fenced_[warp]);
    tick(warp);
  }
  // An atomic or volatile access: what was fenced before it is known to whoever finds it later.
  void meet(int warp, const void* address, bool acquire, bool release) {
    auto found = published_.find(address);
    if (acquire && found != published_.end()) learn(warp, found->second);
    if (release && !fenced_[warp].empty()) {
      auto& to = published_[address];
      to.resize(warps_);
      join(to.data(), fenced_[warp].data());
    }
  }

  // The earlier access that this one races with, or null; remembers this one.
  const Access* touch(Shadow& shadow, Touch touch, int warp, int lane, uint8_t bytes, uint32_t pc) {
    const bool atomic = touch == Touch::atomic;
    const Access* rival = nullptr;
    if (races(shadow.write, warp, lane, bytes, atomic)) rival = &shadow.write;
    const Access now{own(warp), pc, uint16_t(warp), uint8_t(lane), uint8_t(bytes | (atomic ? ATOMIC : 0))};
    if (touch == Touch::read) {
      if (!rival) remember_read(shadow, now);
      return rival;
    }
    for (Access* read : {&shadow.read, &shadow.other_read})
      if (!rival && races(*read, warp, lane, bytes, false)) rival = read;
    if (rival) return rival;
    const Access before = shadow.write;
    shadow = {};
    shadow.write = now;
    if (before.warp == now.warp && before.lane == now.lane && before.clock == now.clock)
      shadow.write.bytes |= before.bytes & BYTES;  // one thread filling a word in pieces
    else if (before.clock && !(before.bytes & bytes & BYTES) && !ordered(before, warp, lane))
      shadow.other_read = before;  // neighbours in a word: keep both, the earlier one as if it had read
    return nullptr;
  }

 private:
  bool ordered(const Access& before, int warp, int lane) const {
    if (before.clock <= latest_) return true;  // of an earlier group
    if (before.warp == warp) return before.lane == lane || before.clock < own(warp);
    return before.clock <= row(warp)[before.warp];
  }
  bool races(const Access& before, int warp, int lane, uint8_t bytes, bool atomic) const {
    if (!before.clock || !(before.bytes & bytes & BYTES) || (atomic && (before.bytes & ATOMIC))) return false;
    return !ordered(before, warp, lane);
  }
  static void remember_read(Shadow& shadow, const Access& now) {
    Access& last = shadow.read;
    if (last.warp == now.warp && last.clock == now.clock) {
      if (last.lane != now.lane) last.lane = SEVERAL;
      last.bytes |= now.bytes;
      return;
    }
    if (last.clock && last.warp != now.warp) shadow.other_read = last;
    last = now;
  }
  const Clock* row(int warp) const { return &known_[size_t(warp) * warps_]; }
  void join(Clock* to, const Clock* from) const {
    for (int i = 0; i < warps_; ++i) to[i] = std::max(to[i], from[i]);
  }

  int warps_ = 0;
  Clock latest_ = 0;  // of any warp of the groups before
  Vector known_;                // (warps, warps): what each has seen of each
  std::vector<Vector> fenced_;  // a warp's knowledge at its last fence
  std::unordered_map<const void*, Vector> published_;
};

}  // namespace simt
