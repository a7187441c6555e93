#include "bound.h"

#include <map>
#include <mutex>
#include <stdexcept>

namespace autotopk {
namespace {

constexpr size_t kAlignment = 256, kMaxScratchBytes = 64 << 20;
constexpr int kAlwaysSharedBytes = 48 << 10;

void check(int code, const std::string& action) {
  if (code) throw std::runtime_error(action + " failed: CUresult " + std::to_string(code));
}

/* The context that torch uses on a device. */
void* context(int ordinal) {
  static std::mutex turn;
  static std::map<int, void*> contexts;
  std::lock_guard<std::mutex> lock(turn);
  void*& found = contexts[ordinal];
  if (!found) {
    const Driver* driver = Driver::get();
    int device;
    check(driver->cuDeviceGet(&device, ordinal), "cuDeviceGet");
    check(driver->cuDevicePrimaryCtxRetain(&found, device), "cuDevicePrimaryCtxRetain");
  }
  return found;
}

/* Loading is allowed while a stream of this thread is captured. */
struct Loading {
  const Driver* driver = Driver::get();
  int mode = kCaptureRelaxed;

  explicit Loading(int device) {
    check(driver->cuCtxPushCurrent_v2(context(device)), "cuCtxPushCurrent");
    driver->cuThreadExchangeStreamCaptureMode(&mode);
  }
  ~Loading() {
    void* popped;
    driver->cuThreadExchangeStreamCaptureMode(&mode);
    driver->cuCtxPopCurrent_v2(&popped);
  }
};

/* A kernel on a device, loaded once in the life of the process. */
void* function(const Kernel& kernel, int device) {
  static std::mutex turn;
  static std::map<std::pair<const Kernel*, int>, void*> functions;
  std::lock_guard<std::mutex> lock(turn);
  void*& found = functions[{&kernel, device}];
  if (found) return found;
  Loading loading(device);
  const Driver* driver = loading.driver;
  void *module, *loaded;
  int shared, bytes = static_cast<int>(kernel.shared_bytes);
  check(driver->cuModuleLoadData(&module, kernel.code.data()), "loading " + kernel.symbol);
  check(driver->cuModuleGetFunction(&loaded, module, kernel.symbol.c_str()), "finding " + kernel.symbol);
  check(driver->cuFuncGetAttribute(&shared, kStaticSharedBytes, loaded), "asking for shared memory");
  if (shared + bytes > kAlwaysSharedBytes)
    check(driver->cuFuncSetAttribute(loaded, kMaxDynamicSharedBytes, bytes), "reserving shared memory");
  if (kernel.cluster > 8) check(driver->cuFuncSetAttribute(loaded, kNonPortableCluster, 1), "allowing the cluster");
  return found = loaded;
}

LaunchAttribute& add(LaunchConfig& config, LaunchAttribute* attributes, int id) {
  LaunchAttribute& one = attributes[config.attribute_count++];
  one.id = id;
  one.value.flag = 1;
  return one;
}

}  // namespace

int capability(int ordinal) {
  const Driver* driver = Driver::get();
  int device, major, minor;
  if (!driver || driver->cuDeviceGet(&device, ordinal) ||
      driver->cuDeviceGetAttribute(&major, kCapabilityMajor, device) ||
      driver->cuDeviceGetAttribute(&minor, kCapabilityMinor, device))
    return 0;
  return 10 * major + minor;
}

Bound::Bound(const Program& program, const Scalars& scalars, int device) : device_(device) {
  std::vector<std::pair<int, uint64_t>> places;  // of scratch: which address, bytes behind it
  for (const Scratch& one : program.scratch) {
    size_t size = static_cast<size_t>(one.bytes.of(scalars)), &end = bytes_[one.zeroed];
    places.emplace_back(size ? kOperands + one.zeroed : -1, size ? end : 0);
    end += (size + kAlignment - 1) / kAlignment * kAlignment;
    if (end > kMaxScratchBytes) throw std::runtime_error("it needs too much scratch");
  }
  for (const Launch& launch : program.launches) {
    const Kernel& kernel = *launch.kernel;
    auto prepared = std::make_unique<Prepared>();
    prepared->function = function(kernel, device);
    LaunchConfig& config = prepared->config = {{1, 1, 1}, {kernel.threads, 1, 1}, kernel.shared_bytes, nullptr,
                                               prepared->attributes, 0};
    for (int axis = 0; axis < 3; axis++) {
      int64_t blocks = launch.grid[axis].of(scalars);
      if (blocks < 1 || blocks > (axis ? 0xFFFF : 0x7FFFFFFF)) throw std::runtime_error("a grid is too large");
      config.grid[axis] = static_cast<unsigned>(blocks);
    }
    if (kernel.cluster > 1) {
      LaunchAttribute& one = add(config, prepared->attributes, kClusterDimension);
      one.value.cluster[0] = kernel.cluster;
      one.value.cluster[1] = one.value.cluster[2] = 1;
    }
    if (kernel.cooperative) add(config, prepared->attributes, kCooperative);
    if (kernel.programmatic) add(config, prepared->attributes, kProgrammaticStreamSerialization);
    for (auto [kind, which] : launch.parameters) {
      bool number = kind == Parameter::kNumber, scratch = kind == Parameter::kScratch;
      prepared->addresses.push_back(number ? -1 : scratch ? places[which].first : which);
      prepared->values.push_back(number ? static_cast<uint64_t>(scalars[which]) : scratch ? places[which].second : 0);
    }
    launches_.push_back(std::move(prepared));
  }
}

int Bound::launch(void* stream, const uint64_t (&addresses)[kOperands + 2]) const {
  const Driver* driver = Driver::get();
  int code = 0;
  for (const auto& one : launches_) {
    uint64_t values[kMaxParameters];
    void* parameters[kMaxParameters];
    for (size_t i = 0; i < one->values.size(); i++) {
      values[i] = one->values[i] + (one->addresses[i] < 0 ? 0 : addresses[one->addresses[i]]);
      parameters[i] = &values[i];
    }
    LaunchConfig config = one->config;
    config.stream = stream;
    code = driver->cuLaunchKernelEx(&config, one->function, parameters, nullptr);
    if (code == kInvalidContext && !driver->cuCtxSetCurrent(context(device_)))  // this thread's first use of the device
      code = driver->cuLaunchKernelEx(&config, one->function, parameters, nullptr);
    if (code) break;
  }
  return code;
}

}  // namespace autotopk
