/* The CUDA driver as far as loading and launching need it, found at run time: no CUDA headers. */
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>

namespace autotopk {

enum { kCooperative = 2, kClusterDimension = 4, kProgrammaticStreamSerialization = 6 };  // CUlaunchAttributeID
enum { kStaticSharedBytes = 1, kMaxDynamicSharedBytes = 8, kNonPortableCluster = 14 };   // CUfunction_attribute
enum { kCapabilityMajor = 75, kCapabilityMinor = 76 };                                   // CUdevice_attribute
enum { kCaptureRelaxed = 2, kInvalidContext = 201 };

struct LaunchAttribute {  // CUlaunchAttribute
  int id;
  char padding[4];
  union {
    char bytes[64];
    unsigned cluster[3];
    int flag;
  } value;
};

struct LaunchConfig {  // CUlaunchConfig
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  const LaunchAttribute* attributes;
  unsigned attribute_count;
};

/* The functions by their names in the driver; null where there is none. */
struct Driver {
  int (*cuDeviceGet)(int* device, int ordinal);
  int (*cuDeviceGetAttribute)(int* value, int attribute, int device);
  int (*cuDevicePrimaryCtxRetain)(void** context, int device);
  int (*cuCtxPushCurrent_v2)(void* context);
  int (*cuCtxPopCurrent_v2)(void** context);
  int (*cuCtxSetCurrent)(void* context);
  int (*cuModuleLoadData)(void** module, const void* image);
  int (*cuModuleGetFunction)(void** function, void* module, const char* name);
  int (*cuFuncGetAttribute)(int* value, int attribute, void* function);
  int (*cuFuncSetAttribute)(void* function, int attribute, int value);
  int (*cuLaunchKernelEx)(const LaunchConfig* config, void* function, void** parameters, void** extra);
  int (*cuMemsetD8Async)(uint64_t address, unsigned char value, size_t bytes, void* stream);
  int (*cuStreamIsCapturing)(void* stream, int* status);
  int (*cuThreadExchangeStreamCaptureMode)(int* mode);
  bool complete = true;

  static const Driver* get() {
    static const Driver driver;
    return driver.complete ? &driver : nullptr;
  }

 private:
  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
#define AUTOTOPK_FIND(name) complete = find(library, #name, name) && complete
    AUTOTOPK_FIND(cuDeviceGet);
    AUTOTOPK_FIND(cuDeviceGetAttribute);
    AUTOTOPK_FIND(cuDevicePrimaryCtxRetain);
    AUTOTOPK_FIND(cuCtxPushCurrent_v2);
    AUTOTOPK_FIND(cuCtxPopCurrent_v2);
    AUTOTOPK_FIND(cuCtxSetCurrent);
    AUTOTOPK_FIND(cuModuleLoadData);
    AUTOTOPK_FIND(cuModuleGetFunction);
    AUTOTOPK_FIND(cuFuncGetAttribute);
    AUTOTOPK_FIND(cuFuncSetAttribute);
    AUTOTOPK_FIND(cuLaunchKernelEx);
    AUTOTOPK_FIND(cuMemsetD8Async);
    AUTOTOPK_FIND(cuStreamIsCapturing);
    AUTOTOPK_FIND(cuThreadExchangeStreamCaptureMode);
#undef AUTOTOPK_FIND
  }

  template <typename Function>
  static bool find(void* library, const char* name, Function& function) {
    function = library ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
    return function != nullptr;
  }
};

}  // namespace autotopk
