// A CUDA driver that loads and launches nothing, and prints what it is asked to; and what else the operator asks of a
// GPU, so that it takes tensors on the CPU for tensors on one.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>

struct Config {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  const void* attributes;
  unsigned attribute_count;
};

static std::map<void*, int> numbers;  // of a kernel's parameters, those that are told

extern "C" {
int cuDeviceGet(int* device, int) { return *device = 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) { return *value = attribute == 75 ? 9 : 0, 0; }
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = reinterpret_cast<void*>(1), 0; }
int cuCtxPushCurrent_v2(void*) { return 0; }
int cuCtxPopCurrent_v2(void**) { return 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuModuleLoadData(void** module, const void* image) { return *module = const_cast<void*>(image), memcmp(image, "\177ELF", 4); }
int cuModuleGetFunction(void** function, void* module, const char* name) {
  printf("load %s\n", name);
  numbers[module] = strstr(name, "load_maxima") || strstr(name, "cluster_lists") ? 9 : 10;
  return *function = module, 0;
}
int cuFuncGetAttribute(int* value, int, void*) { return *value = 0; }
int cuFuncSetAttribute(void*, int attribute, int value) { return printf("set %d %d\n", attribute, value), 0; }
int cuLaunchKernelEx(const Config* config, void* function, void** parameters, void**) {
  printf("launch %u %u %u %u %u %u", config->grid[0], config->grid[1], config->grid[2], config->block[0],
         config->shared_bytes, config->attribute_count);
  for (int i = 0; i < numbers[function]; i++) printf(" %ld", *static_cast<long*>(parameters[i]));
  puts("");
  return 0;
}
int cuMemsetD8Async(uint64_t address, unsigned char value, size_t bytes, void*) {
  memset(reinterpret_cast<void*>(address), value, bytes);
  return printf("zero %zu\n", bytes), 0;
}
int cuStreamIsCapturing(void*, int* status) { return *status = 0; }
int cuThreadExchangeStreamCaptureMode(int*) { return 0; }

int aoti_torch_get_current_cuda_stream(int32_t, void** stream) { return *stream = nullptr, 0; }
int fake_current_device(int32_t* index) { return *index = 0; }
int fake_device_of(void*, int32_t* index) { return *index = 0; }
}
