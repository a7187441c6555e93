#include "plans.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace autotopk {
namespace {

constexpr const char* kScalarNames[kScalars] = {"rows", "cols", "k", "row_stride", "col_stride", "inner", "smallest",
                                                "sorted", "signed", "infinity", "indices_only", "null"};
constexpr const char* kOperandNames[kOperands] = {"x", "values", "indices"};
constexpr int64_t kMost = int64_t{1} << 40;  // of any number in a file
constexpr size_t kMaxBytes = 256 << 20;

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error(what); }

/* CRC-32, as zlib's. */
uint32_t digest(const char* data, size_t size) {
  uint32_t hash = ~0u;
  for (size_t i = 0; i < size; i++) {
    hash ^= static_cast<unsigned char>(data[i]);
    for (int bit = 0; bit < 8; bit++) hash = hash >> 1 ^ (hash & 1 ? 0xEDB88320 : 0);
  }
  return ~hash;
}

/* Words and numbers of the text. */
struct Words {
  std::istringstream text;

  std::string word() {
    std::string found;
    if (!(text >> found)) refuse("it ends too soon");
    return found;
  }
  void expect(const char* word_) {
    if (word() != word_) refuse(std::string("there is no ") + word_ + " where one should be");
  }
  int64_t number(int64_t least = 0, int64_t most = kMost) {
    int64_t found;
    if (!(text >> found) || found < least || found > most) refuse("a number is missing or out of range");
    return found;
  }
  size_t count(size_t most = 1 << 16) { return static_cast<size_t>(number(0, static_cast<int64_t>(most))); }

  template <size_t size>
  int one_of(const char* const (&names)[size], const std::string& name) {
    for (size_t i = 0; i < size; i++)
      if (name == names[i]) return static_cast<int>(i);
    return -1;
  }
  Extent extent() {
    Extent found{number(0), {}};
    for (size_t left = count(8); left; left--) {
      int scalar = one_of(kScalarNames, word());
      if (scalar < 0) refuse("an extent is of something unknown");
      found.per.emplace_back(scalar, number(1));
    }
    return found;
  }
};

Kernel kernel(Words& words, const std::string& cubins, size_t& at) {
  words.expect("kernel");
  Kernel found{words.word(), "", 0, 0, 0, false, false};
  found.threads = static_cast<unsigned>(words.number(1, 1024));
  found.shared_bytes = static_cast<unsigned>(words.number(0, 1 << 20));
  found.cluster = static_cast<unsigned>(words.number(1, 16));
  found.cooperative = words.number(0, 1);
  found.programmatic = words.number(0, 1);
  size_t bytes = words.count(kMaxBytes);
  if (bytes > cubins.size() - at) refuse("a cubin is cut");
  found.code = cubins.substr(at, bytes);
  at += bytes;
  return found;
}

Program program(Words& words, const std::vector<Kernel>& kernels) {
  words.expect("program");
  Program found;
  std::vector<std::string> names;
  for (size_t left = words.count(16); left; left--) {
    names.push_back(words.word());
    bool zeroed = words.number(0, 1);
    found.scratch.push_back({zeroed, words.extent()});
  }
  for (size_t left = words.count(16); left; left--) {
    size_t which = words.count();
    if (which >= kernels.size()) refuse("a launch is of no kernel");
    Launch launch{&kernels[which], {}, {}};
    for (Extent& extent : launch.grid) extent = words.extent();
    for (size_t parameters = words.count(kMaxParameters); parameters; parameters--) {
      std::string name = words.word();
      if (int operand = words.one_of(kOperandNames, name); operand >= 0) {
        launch.parameters.push_back({Parameter::kOperand, operand});
      } else if (int scalar = words.one_of(kScalarNames, name); scalar >= 0) {
        launch.parameters.push_back({Parameter::kNumber, scalar});
      } else {
        size_t scratch = 0;
        while (scratch < names.size() && names[scratch] != name) scratch++;
        if (scratch == names.size()) refuse("a kernel asks for " + name + ", which nobody provides");
        launch.parameters.push_back({Parameter::kScratch, static_cast<int>(scratch)});
      }
    }
    found.launches.push_back(std::move(launch));
  }
  return found;
}

Plan plan(Words& words, const std::vector<Program>& programs) {
  words.expect("plan");
  Plan found{};
  std::string dtype = words.word();
  found.dtype = -1;
  for (size_t i = 0; i < std::size(kDtypes); i++)
    if (dtype == kDtypes[i].name) found.dtype = static_cast<int>(i);
  if (found.dtype < 0) refuse("a plan is for " + dtype);
  found.largest = words.number(0, 1);
  found.sorted = words.number(0, 1);
  found.side_by_side = words.number(0, 1);
  found.aligned = words.number(0, 1);
  found.vector = words.number(1, 16);
  found.k = words.number(1);
  for (int64_t* range : {found.rows, found.cols})
    for (int end : {0, 1}) range[end] = words.number(1);
  size_t which = words.count();
  if (which >= programs.size()) refuse("a plan has no program");
  found.program = &programs[which];
  return found;
}

/* Kernels are code: they are taken from files alone that nobody else can write. */
std::string content(const std::string& path) {
  struct stat about;
  if (stat(path.c_str(), &about)) refuse(std::strerror(errno));
  if (!S_ISREG(about.st_mode) || static_cast<size_t>(about.st_size) > kMaxBytes) refuse("it is no file, or too large");
  if ((about.st_uid && about.st_uid != geteuid()) || (about.st_mode & (S_IWGRP | S_IWOTH)))
    refuse("others can write to it: it must be this user's or root's, and chmod go-w");
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

void Table::read(const std::string& path) {
  std::string all = content(path);
  size_t line = all.find('\n'), end = all.find("\nend\n");
  if (line == std::string::npos || end == std::string::npos) refuse("it is no file of plans");
  Words first{std::istringstream(all.substr(0, line))};
  first.expect("autotopk");
  first.expect("plans");
  if (first.number() != 1) refuse("it is of another version");
  char expected[9];
  snprintf(expected, sizeof expected, "%08x", digest(all.data() + line + 1, all.size() - line - 1));
  if (first.word() != expected) refuse("it is damaged: its digest does not match");

  Words words{std::istringstream(all.substr(line, end + 5 - line))};
  std::string cubins = all.substr(end + 5);
  size_t at = 0;
  words.expect("capability");
  capability = static_cast<int>(words.number(0, 999));
  kernels.resize(words.count());
  for (Kernel& one : kernels) one = kernel(words, cubins, at);
  programs.resize(words.count());
  for (Program& one : programs) one = program(words, kernels);
  plans.resize(words.count());
  for (Plan& one : plans) one = plan(words, programs);
  words.expect("end");
}

}  // namespace autotopk
