/* Loads AOTInductor packages, runs them on inputs from files or seeds, writes what they answer, and times them.

   run_model [--library FILE] [--device cuda|cpu] [--rounds N] MODEL INPUTS OUTPUT [MODEL INPUTS OUTPUT ...]

   MODEL   a package, model.pt2
   INPUTS  joined by commas: files of torch.save, or DTYPE:ROWSxCOLSx...:SEED for normally distributed numbers
   OUTPUT  results go to OUTPUT.0.pt, OUTPUT.1.pt, ..., for torch.load; "-" writes none

   Prints one line of JSON a model. With --rounds N, all models are timed in turn, N times; medians, in microseconds:
   call_us  from the call to the end of its work on the device
   host_us  of a call among many that nobody waits for
   gpu_us   of a call replayed in a CUDA graph, between events; its data are in the L2 where they fit */
#include <ATen/Functions.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>
#include <stdexcept>

#include <dlfcn.h>
#include <execinfo.h>

namespace {

using Clock = std::chrono::steady_clock;
using Tensors = std::vector<at::Tensor>;

constexpr int kCalls = 100, kInGraph = 20;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

double microseconds(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples.empty() ? 0 : samples[samples.size() / 2];
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

int64_t number(const std::string& text, const char* what) {
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string::npos)
    fail(std::string(what) + " \"" + text + "\" is no whole number");
  return std::stoll(text);
}

// Tensors in and out

at::Tensor random(const std::vector<std::string>& parts) {
  static const std::pair<const char*, at::ScalarType> dtypes[] = {
      {"float32", at::kFloat}, {"float64", at::kDouble}, {"float16", at::kHalf}, {"bfloat16", at::kBFloat16}};
  for (auto [name, dtype] : dtypes)
    if (parts[0] == name) {
      std::vector<int64_t> sizes;
      for (const std::string& size : split(parts[1], 'x')) sizes.push_back(number(size, "size"));
      at::manual_seed(static_cast<uint64_t>(number(parts[2], "seed")));
      return at::randn(sizes).to(dtype);
    }
  fail(parts[0] + " is none of float32, float64, float16, bfloat16");
}

at::Tensor input(const std::string& text, at::Device device) {
  auto parts = split(text, ':');
  if (parts.size() == 3) return random(parts).to(device);
  std::ifstream file(text, std::ios::binary);
  if (!file) fail("cannot read " + text);
  std::vector<char> data((std::istreambuf_iterator<char>(file)), {});
  return torch::jit::pickle_load(data).toTensor().to(device);
}

void write(const Tensors& outputs, const std::string& prefix) {
  for (size_t i = 0; i < outputs.size() && prefix != "-"; i++) {
    auto data = torch::jit::pickle_save(outputs[i].cpu());
    std::string path = prefix + "." + std::to_string(i) + ".pt";
    if (!std::ofstream(path, std::ios::binary).write(data.data(), static_cast<std::streamsize>(data.size())))
      fail("cannot write " + path);
  }
}

// The device: a stream of our own, which can be captured, events, graphs

struct Cuda {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  void* stream = nullptr;

  explicit Cuda(bool used) {
    if (!used) return;
    at::empty({1}, at::device(at::kCUDA));  // makes torch's context, and the thread's
    call("cuStreamCreate", &stream, 1u);
  }
  template <typename... Arguments>
  void call(const char* name, Arguments... arguments) const {
    auto function = reinterpret_cast<int (*)(Arguments...)>(library ? dlsym(library, name) : nullptr);
    int code = function ? function(arguments...) : -1;
    if (code) fail(std::string(name) + " failed: " + std::to_string(code));
  }
  void wait() const {
    if (stream) call("cuStreamSynchronize", stream);
  }
};

struct Graph {
  const Cuda& cuda;
  void *graph = nullptr, *executable = nullptr, *events[2];

  template <typename Work>
  Graph(const Cuda& cuda_, Work work) : cuda(cuda_) {
    for (void*& event : events) cuda.call("cuEventCreate", &event, 0u);
    cuda.call("cuStreamBeginCapture_v2", cuda.stream, 2);  // relaxed: torch's allocator may ask for memory
    work();
    cuda.call("cuStreamEndCapture", cuda.stream, &graph);
    cuda.call("cuGraphInstantiateWithFlags", &executable, graph, 0ull);
  }
  double replayed() const {
    cuda.call("cuEventRecord", events[0], cuda.stream);
    cuda.call("cuGraphLaunch", executable, cuda.stream);
    cuda.call("cuEventRecord", events[1], cuda.stream);
    cuda.wait();
    float milliseconds;
    cuda.call("cuEventElapsedTime", &milliseconds, events[0], events[1]);
    return 1000.0 * milliseconds;
  }
};

// Models

struct Model {
  std::string path, output;
  Tensors inputs;
  const Cuda& cuda;
  torch::inductor::AOTIModelPackageLoader loader;
  std::unique_ptr<Graph> graph;
  std::vector<double> call_us, host_us, gpu_us;

  Model(const std::string& path_, const std::string& inputs_, const std::string& output_, const Cuda& cuda_)
      : path(path_), output(output_), cuda(cuda_), loader(path, "model", /*run_single_threaded=*/true) {
    for (const std::string& one : split(inputs_, ',')) inputs.push_back(input(one, cuda.stream ? at::kCUDA : at::kCPU));
    if (cuda.stream) cuda.call("cuCtxSynchronize");
  }
  Tensors run() { return loader.run(inputs, cuda.stream); }

  void answer() {
    Tensors outputs = run();
    cuda.wait();
    write(outputs, output);
  }
  void time() {
    for (int i = 0; i < kCalls; i++) {
      auto begun = Clock::now();
      Tensors outputs = run();
      cuda.wait();
      call_us.push_back(microseconds(Clock::now() - begun));
    }
    auto begun = Clock::now();
    for (int i = 0; i < kCalls; i++) run();
    host_us.push_back(microseconds(Clock::now() - begun) / kCalls);
    cuda.wait();
    if (!cuda.stream) return;
    if (!graph)
      graph = std::make_unique<Graph>(cuda, [this] {
        for (int i = 0; i < kInGraph; i++) run();
      });
    graph->replayed();
    for (int i = 0; i < kInGraph; i++) gpu_us.push_back(graph->replayed() / kInGraph);
  }
  void print() const {
    std::cout << "{\"model\": \"" << path << "\", \"call_us\": " << median(call_us) << ", \"host_us\": "
              << median(host_us) << ", \"gpu_us\": " << median(gpu_us) << "}" << std::endl;
  }
};

int run(std::vector<std::string> arguments) {
  std::string device = "cuda";
  int64_t rounds = 0;
  size_t at = 0;
  for (; at + 1 < arguments.size() && arguments[at].rfind("--", 0) == 0; at += 2) {
    const std::string &name = arguments[at], &value = arguments[at + 1];
    if (name == "--device") device = value;
    else if (name == "--rounds") rounds = number(value, "--rounds");
    else if (name != "--library") fail("unknown option " + name);
    else if (!dlopen(value.c_str(), RTLD_NOW)) fail(dlerror());  // models find it by its name
  }
  if (at == arguments.size() || (arguments.size() - at) % 3)
    fail("usage: run_model [--library FILE] [--device cuda|cpu] [--rounds N] MODEL INPUTS OUTPUT ...");
  if (device != "cuda" && device != "cpu") fail("--device " + device + " is neither cuda nor cpu");
  Cuda cuda(device == "cuda");
  std::vector<std::unique_ptr<Model>> models;
  for (; at < arguments.size(); at += 3) try {
      models.push_back(std::make_unique<Model>(arguments[at], arguments[at + 1], arguments[at + 2], cuda));
    } catch (const std::exception& error) {
      fail(arguments[at] + ": " + error.what());
    }
  for (auto& model : models) model->answer();
  for (int64_t round = 0; round < rounds; round++)
    for (auto& model : models) model->time();
  for (auto& model : models) model->print();
  return 0;
}

/* A crash in a model, torch or the driver says where. */
void tell_where(int number) {
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), 2);
  std::signal(number, SIG_DFL);
  std::raise(number);
}

}  // namespace

int main(int count, char** arguments) {
  for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) std::signal(number, tell_where);
  try {
    return run({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    std::cerr << "run_model: " << error.what() << std::endl;
    return 1;
  }
}
