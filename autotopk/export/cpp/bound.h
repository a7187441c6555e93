/* A program with all that a problem fixes, on a device: a call brings addresses and a stream. */
#pragma once

#include <memory>
#include <vector>

#include "driver.h"
#include "plans.h"

namespace autotopk {

/* The compute capability of a CUDA device, 90 for 9.0; 0 where it cannot be told. */
int capability(int device);

class Bound {
 public:
  /* Loads what is not loaded. Throws std::runtime_error. */
  Bound(const Program& program, const Scalars& scalars, int device);
  Bound(const Bound&) = delete;

  size_t garbage_bytes() const { return bytes_[0]; }  // scratch that may hold anything
  size_t zeroed_bytes() const { return bytes_[1]; }   // scratch that is zero before and after

  /* Addresses: x, values, indices, garbage, zeros. Returns the CUresult of the first launch that is refused, else 0. */
  int launch(void* stream, const uint64_t (&addresses)[kOperands + 2]) const;

 private:
  struct Prepared {
    void* function;
    LaunchConfig config;
    LaunchAttribute attributes[3];
    std::vector<uint64_t> values;  // a number, or bytes behind an address
    std::vector<int> addresses;    // which address of a call, -1: a number
  };
  size_t bytes_[2] = {0, 0};
  int device_;
  std::vector<std::unique_ptr<Prepared>> launches_;
};

}  // namespace autotopk
