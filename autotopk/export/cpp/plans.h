/* Which launches serve which top-k, as Python wrote them when the model was exported: words in a text, then cubins.

   Nothing here knows a strategy: a plan says for which problems it holds, its program what is launched for them, in
   numbers that follow from the problem. The format is described in autotopk/export/plans.py. */
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace autotopk {

enum Scalar { kRows, kCols, kK, kRowStride, kColStride, kInner, kSmallest, kSorted, kSigned, kInfinity, kIndicesOnly,
              kNull, kScalars };
using Scalars = std::array<int64_t, kScalars>;

constexpr size_t kMaxParameters = 24;  // of a kernel

enum Operand { kX, kValues, kIndices, kOperands };

/* times * ceil(scalar / share) * ... */
struct Extent {
  int64_t times = 1;
  std::vector<std::pair<int, int64_t>> per;

  int64_t of(const Scalars& scalars) const {
    int64_t number = times;
    for (auto [scalar, share] : per) number *= (scalars[scalar] + share - 1) / share;
    return number;
  }
};

/* What a kernel's parameter is: a tensor of the operation, a piece of scratch, or a number. */
struct Parameter {
  enum Kind { kOperand, kScratch, kNumber } kind;
  int which;
};

struct Kernel {
  std::string symbol, code;
  unsigned threads, shared_bytes, cluster;
  bool cooperative, programmatic;
};

struct Scratch {
  bool zeroed;
  Extent bytes;
};

struct Launch {
  const Kernel* kernel;
  Extent grid[3];
  std::vector<Parameter> parameters;
};

struct Program {
  std::vector<Scratch> scratch;
  std::vector<Launch> launches;
};

struct Plan {
  int dtype;  // place in kDtypes
  bool largest, sorted, side_by_side, aligned;
  int64_t k, rows[2], cols[2];  // the least and the most
  int64_t vector;               // elements of a load, which is to be aligned everywhere
  const Program* program;

  bool serves(const Plan& asked) const {
    return dtype == asked.dtype && k == asked.k && largest == asked.largest && sorted == asked.sorted &&
           side_by_side == asked.side_by_side && (!aligned || asked.aligned) && asked.vector % vector == 0 &&
           rows[0] <= asked.rows[0] && asked.rows[0] <= rows[1] && cols[0] <= asked.cols[0] && asked.cols[0] <= cols[1];
  }
};

struct Dtype {
  const char* name;
  int64_t bytes;
  int64_t infinity;  // bits of floats up to 32 bits
  bool is_signed;    // integers with a sign
};

inline constexpr Dtype kDtypes[] = {
    {"float64", 8, 0, false}, {"float32", 4, 0x7F800000, false}, {"float16", 2, 0x7C00, false},
    {"bfloat16", 2, 0x7F80, false}, {"int64", 8, 0, true}, {"int32", 4, 0, true},
    {"int16", 2, 0, true}, {"int8", 1, 0, true}, {"uint8", 1, 0, false},
};

/* The plans of one file; never changed once read. */
struct Table {
  int capability = 0;  // 90 for 9.0; 0 where there are no plans
  std::vector<Kernel> kernels;
  std::vector<Program> programs;
  std::vector<Plan> plans;

  Table() = default;
  Table(const Table&) = delete;

  /* Read a file. Throws std::runtime_error that says what is wrong with it. */
  void read(const std::string& path);
};

}  // namespace autotopk
