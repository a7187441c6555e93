/* autotopk::aot_topk for processes without Python, over torch's stable ABI: one build for torch 2.10 and later.

   A call looks up what it launches by its sizes, strides and arguments; the first call of a kind finds it among the
   plans. What no plan serves, and everything that is not on a CUDA device, is aten::topk's. */
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <unordered_map>

#include "bound.h"

namespace autotopk {
namespace {

using torch::stable::Tensor;
using torch::stable::detail::from;
using torch::stable::detail::to;

constexpr int kMostDims = 8;
constexpr size_t kMostAnswers = 4096;  // of a thread; when shapes come without end, all are dropped

void check(AOTITorchError code) { STD_TORCH_CHECK(code == AOTI_TORCH_SUCCESS, "torch refused a call"); }

// Plans

struct Tables {
  std::mutex turn;
  std::vector<std::unique_ptr<Table>> all;
  std::atomic<int> edition{0};
};

bool add_plans(Tables& tables, const std::string& path) {
  auto table = std::make_unique<Table>();
  try {
    table->read(path);
  } catch (const std::exception& error) {
    fprintf(stderr, "autotopk: %s is not used: %s\n", path.c_str(), error.what());
    return false;
  }
  std::lock_guard<std::mutex> lock(tables.turn);
  tables.all.push_back(std::move(table));
  tables.edition++;
  return true;
}

/* Those of the files that AUTOTOPK_PLANS names, between colons, and those that were added. They stay for good. */
Tables& tables() {
  static Tables* const found = [] {
    auto* made = new Tables;
    const char* paths = std::getenv("AUTOTOPK_PLANS");
    std::istringstream list(paths ? paths : "");
    for (std::string path; std::getline(list, path, ':');)
      if (!path.empty()) add_plans(*made, path);
    return made;
  }();
  return *found;
}

// What a call is, as far as its answer depends on it

struct Input {
  int64_t dims;
  const int64_t *sizes, *strides;
  int32_t dtype, device;
  uint64_t address;
};

struct Key {
  int64_t words[4 + 2 * kMostDims] = {};

  Key(const Input& x, int64_t k, int64_t dim, bool largest, bool sorted) {
    words[0] = x.dims | x.dtype << 8 | x.device << 16 | largest << 24 | sorted << 25;
    words[1] = static_cast<int64_t>(x.address & 15);
    words[2] = k;
    words[3] = dim;
    std::memcpy(words + 4, x.sizes, static_cast<size_t>(x.dims) * sizeof(int64_t));
    std::memcpy(words + 4 + kMostDims, x.strides, static_cast<size_t>(x.dims) * sizeof(int64_t));
  }
  bool operator==(const Key& other) const { return !std::memcmp(words, other.words, sizeof words); }
};

struct Hash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0;
    for (int64_t word : key.words) hash = (hash ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15, hash ^= hash >> 29;
    return hash;
  }
};

struct Answer {
  std::shared_ptr<const Bound> bound;  // null: it is torch's
  int64_t sizes[kMostDims], strides[kMostDims];
};

const Dtype* dtype_of(int32_t code) {
  static const int32_t codes[] = {aoti_torch_dtype_float64(), aoti_torch_dtype_float32(), aoti_torch_dtype_float16(),
                                  aoti_torch_dtype_bfloat16(), aoti_torch_dtype_int64(), aoti_torch_dtype_int32(),
                                  aoti_torch_dtype_int16(), aoti_torch_dtype_int8(), aoti_torch_dtype_uint8()};
  for (size_t i = 0; i < std::size(kDtypes); i++)
    if (codes[i] == code) return &kDtypes[i];
  return nullptr;
}

/* The step of dimensions begin..end where they step evenly as one, else -1; `alone` where they hold one element. */
int64_t even_stride(const Input& x, int64_t begin, int64_t end, int64_t alone) {
  int64_t found = -1, next = 0;  // of the innermost; what the next one out must be
  for (int64_t i = end - 1; i >= begin; i--) {
    if (x.sizes[i] == 1) continue;
    if (found < 0) found = x.strides[i];
    else if (x.strides[i] != next) return -1;
    next = x.strides[i] * x.sizes[i];
  }
  return found < 0 ? alone : found;
}

int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

/* The problem that the tensor's rows are, where kernels can read them; plan.k is 0 elsewhere. */
Plan asked(const Input& x, int64_t k, int64_t dim, bool largest, bool sorted, const Dtype& dtype, Scalars& scalars) {
  Plan found{};
  int64_t cols = x.sizes[dim], rows = 1, inner = 1;
  for (int64_t i = 0; i < x.dims; i++) rows *= i == dim ? 1 : x.sizes[i];
  for (int64_t i = dim + 1; i < x.dims; i++) inner *= x.sizes[i];
  found.dtype = static_cast<int>(&dtype - kDtypes);
  found.largest = largest;
  found.sorted = sorted;
  found.rows[0] = rows;
  found.cols[0] = cols;
  found.vector = 1;
  found.side_by_side = inner > 1;
  int64_t row_stride = even_stride(x, 0, dim, found.side_by_side ? 0 : cols), col_stride = 1;
  bool readable;
  if (found.side_by_side) {
    col_stride = x.strides[dim];
    int64_t extent = (rows / inner - 1) * row_stride + (cols - 1) * col_stride + inner;
    readable = even_stride(x, dim + 1, x.dims, 1) == 1 && extent < INT64_C(1) << 31 && rows * k < INT64_C(1) << 31;
  } else {
    int64_t widest = 16 / dtype.bytes;
    readable = cols == 1 || x.strides[dim] == 1;
    int64_t apart = common_divisor(common_divisor(row_stride, cols), widest);
    found.vector = common_divisor(static_cast<int64_t>(x.address % 16) / dtype.bytes, apart);
    found.aligned = x.address % 16 == 0;
    inner = 1;
  }
  found.k = readable && row_stride >= 0 ? k : 0;
  scalars = {rows, cols, k, row_stride, col_stride, inner, !largest, sorted, dtype.is_signed, dtype.infinity, 0, 0};
  return found;
}

/* The first plan that serves, bound; nothing where none does or what it needs cannot be loaded. */
std::shared_ptr<const Bound> bound(const Plan& asked, const Scalars& scalars, int device) {
  Tables& known = tables();
  int here = Driver::get() ? capability(device) : 0;
  std::lock_guard<std::mutex> lock(known.turn);
  for (const auto& table : known.all)
    for (const Plan& plan : table->plans)
      if (table->capability == here && plan.serves(asked)) {
        try {
          return std::make_shared<Bound>(*plan.program, scalars, device);
        } catch (const std::exception& error) {
          fprintf(stderr, "autotopk: torch.topk answers instead: %s\n", error.what());
          return nullptr;
        }
      }
  return nullptr;
}

Answer answer(const Input& x, int64_t k, int64_t dim, bool largest, bool sorted) {
  Answer found{};
  const Dtype* dtype = dtype_of(x.dtype);
  if (dim < 0) dim += x.dims;
  if (!dtype || dim < 0 || dim >= x.dims || k < 1 || k > x.sizes[dim]) return found;
  for (int64_t i = 0; i < x.dims; i++)
    if (!x.sizes[i]) return found;
  Scalars scalars;
  Plan problem = asked(x, k, dim, largest, sorted, *dtype, scalars);
  if (problem.k) found.bound = bound(problem, scalars, x.device);
  int64_t stride = 1;
  for (int64_t i = x.dims - 1; i >= 0; i--) {
    found.sizes[i] = i == dim ? k : x.sizes[i];
    found.strides[i] = stride;
    stride *= found.sizes[i];
  }
  return found;
}

// Launching

Tensor empty(int64_t dims, const int64_t* sizes, const int64_t* strides, int32_t dtype, int32_t device) {
  static const int32_t cuda = aoti_torch_device_type_cuda();
  AtenTensorHandle made;
  check(aoti_torch_empty_strided(dims, sizes, strides, dtype, cuda, device, &made));
  return Tensor(made);
}

Tensor bytes(size_t count, int32_t device) {
  static const int32_t uint8 = aoti_torch_dtype_uint8();
  const int64_t size = static_cast<int64_t>(count), stride = 1;
  return empty(1, &size, &stride, uint8, device);
}

uint64_t address_of(const Tensor& x) { return reinterpret_cast<uint64_t>(x.data_ptr()); }

/* torch's current stream; libtorch_cuda is in the process where there is a CUDA tensor, and linked to by nothing here. */
void* current_stream(int32_t device) {
  using Function = AOTITorchError (*)(int32_t, void**);
  static const Function function = [] {
    void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return reinterpret_cast<Function>(dlsym(library ? library : RTLD_DEFAULT, "aoti_torch_get_current_cuda_stream"));
  }();
  STD_TORCH_CHECK(function, "libtorch_cuda does not tell the current stream");
  void* stream;
  check(function(device, &stream));
  return stream;
}

struct Zeros {
  Tensor memory;
  size_t count;
};
using Kept = std::map<std::pair<int32_t, void*>, Zeros>;

Zeros zeros(size_t count, int32_t device, void* stream) {
  Zeros made{bytes(count, device), count};
  int code = Driver::get()->cuMemsetD8Async(address_of(made.memory), 0, count, stream);
  STD_TORCH_CHECK(!code, "scratch cannot be zeroed: CUresult ", code);
  return made;
}

/* Scratch that programs leave zero: one a stream and thread; a captured call gets its own, zeroed in the graph. */
Tensor zeroed(Kept& kept, size_t count, int32_t device, void* stream) {
  int capturing = 0;
  Driver::get()->cuStreamIsCapturing(stream, &capturing);
  if (capturing) return zeros(count, device, stream).memory;
  auto found = kept.find({device, stream});
  if (found == kept.end() || found->second.count < count)
    found = kept.insert_or_assign({device, stream}, zeros(count, device, stream)).first;
  return found->second.memory;
}

/* Whether values and indices were launched into; the driver's code where it refuses. */
int run(const Bound& bound, const Input& x, const Tensor& values, const Tensor& indices) {
  thread_local Kept kept;
  std::optional<torch::stable::accelerator::DeviceGuard> guard;
  if (torch::stable::accelerator::getCurrentDeviceIndex() != x.device) guard.emplace(x.device);
  void* stream = current_stream(x.device);
  std::optional<Tensor> garbage, zero;
  if (bound.garbage_bytes()) garbage = bytes(bound.garbage_bytes(), x.device);
  if (bound.zeroed_bytes()) zero = zeroed(kept, bound.zeroed_bytes(), x.device, stream);
  int code = bound.launch(stream, {x.address, address_of(values), address_of(indices), garbage ? address_of(*garbage) : 0,
                                   zero ? address_of(*zero) : 0});
  if (code && zero) kept.erase({x.device, stream});
  return code;
}

/* The operator: two new tensors. */
std::pair<Tensor, Tensor> topk(const Tensor& input, int64_t k, int64_t dim, bool largest, bool sorted) {
  static const int32_t cuda = aoti_torch_device_type_cuda(), int64 = aoti_torch_dtype_int64();
  int32_t device_type;
  Input x;
  AtenTensorHandle handle = input.get();
  check(aoti_torch_get_device_type(handle, &device_type));
  check(aoti_torch_get_dim(handle, &x.dims));
  if (device_type == cuda && x.dims && x.dims <= kMostDims) {
    int64_t *sizes, *strides;
    check(aoti_torch_get_sizes(handle, &sizes));
    check(aoti_torch_get_strides(handle, &strides));
    check(aoti_torch_get_dtype(handle, &x.dtype));
    check(aoti_torch_get_device_index(handle, &x.device));
    x.sizes = sizes;
    x.strides = strides;
    x.address = address_of(input);
    thread_local std::unordered_map<Key, Answer, Hash> answers;
    thread_local int edition = 0;
    if (int now = tables().edition; edition != now || answers.size() > kMostAnswers) answers.clear(), edition = now;
    const Key key(x, k, dim, largest, sorted);
    auto found = answers.find(key);
    if (found == answers.end()) found = answers.emplace(key, answer(x, k, dim, largest, sorted)).first;
    if (found->second.bound) {
      const Answer& known = found->second;
      Tensor values = empty(x.dims, known.sizes, known.strides, x.dtype, x.device);
      Tensor indices = empty(x.dims, known.sizes, known.strides, int64, x.device);
      int code = run(*known.bound, x, values, indices);
      if (!code) return {std::move(values), std::move(indices)};
      fprintf(stderr, "autotopk: torch.topk answers instead: a launch failed, CUresult %d\n", code);
      found->second.bound = nullptr;
    }
  }
  StableIValue stack[] = {from(input), from(k), from(dim), from(largest), from(sorted)};
  check(torch_call_dispatcher("aten::topk", "", stack, TORCH_ABI_VERSION));
  return {to<Tensor>(stack[0]), to<Tensor>(stack[1])};
}

/* Another handle of the same tensor, its receiver's to delete. */
AtenTensorHandle shared(AtenTensorHandle x) {
  AtenTensorHandle handle;
  check(aoti_torch_new_tensor_handle(x, &handle));
  return handle;
}

std::tuple<Tensor, Tensor> boxed(const Tensor& input, int64_t k, int64_t dim, bool largest, bool sorted) {
  return topk(input, k, dim, largest, sorted);
}

/* Compiled models call this way without torch's dispatcher. */
AOTITorchError direct(AtenTensorHandle input, int64_t k, int64_t dim, int32_t largest, int32_t sorted,
                      AtenTensorHandle* values, AtenTensorHandle* indices) {
  try {
    auto found = topk(Tensor(shared(input)), k, dim, largest, sorted);
    *values = shared(found.first.get());
    *indices = shared(found.second.get());
    return AOTI_TORCH_SUCCESS;
  } catch (const std::exception& error) {
    fprintf(stderr, "autotopk::aot_topk: %s\n", error.what());
    return AOTI_TORCH_FAILURE;
  }
}

}  // namespace
}  // namespace autotopk

extern "C" {

AOTI_TORCH_EXPORT AOTITorchError aoti_torch_cuda_aot_topk(AtenTensorHandle input, int64_t k, int64_t dim,
                                                          int32_t largest, int32_t sorted, AtenTensorHandle* values,
                                                          AtenTensorHandle* indices) {
  return autotopk::direct(input, k, dim, largest, sorted, values, indices);
}

AOTI_TORCH_EXPORT AOTITorchError aoti_torch_cpu_aot_topk(AtenTensorHandle input, int64_t k, int64_t dim,
                                                         int32_t largest, int32_t sorted, AtenTensorHandle* values,
                                                         AtenTensorHandle* indices) {
  return autotopk::direct(input, k, dim, largest, sorted, values, indices);
}

/* Add a file of plans; 0 where it is used. */
AOTI_TORCH_EXPORT int autotopk_add_plans(const char* path) { return !autotopk::add_plans(autotopk::tables(), path); }
}

STABLE_TORCH_LIBRARY_FRAGMENT(autotopk, library) {
  library.def(
      "aot_topk(Tensor input, int k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)");
}

STABLE_TORCH_LIBRARY_IMPL(autotopk, CompositeExplicitAutograd, library) {
  library.impl("aot_topk", TORCH_BOX(&autotopk::boxed));
}
