/* Launches the kernels of a program, one after another on a stream, with as little host time as the driver allows:
   grids and all numbers are fixed when a launcher is prepared, a call brings only the stream and the addresses.
   Python's stable ABI only; no CUDA or torch headers; libcuda is found at run time. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

enum { MAX_PARAMETERS = 24, MAX_ADDRESSES = 16, MAX_ATTRIBUTES = 3 };
enum { COOPERATIVE = 2, CLUSTER_DIMENSION = 4, PROGRAMMATIC_STREAM_SERIALIZATION = 6 }; /* CUlaunchAttributeID */

typedef struct {                                                        /* CUlaunchAttribute */
  int id;
  char padding[4];
  union { char bytes[64]; struct { unsigned x, y, z; } cluster; int flag; } value;
} Attribute;

typedef struct {                                                        /* CUlaunchConfig */
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void *stream;
  const Attribute *attributes;
  unsigned attribute_count;
} LaunchConfig;

typedef int (*launch_function)(const LaunchConfig *, void *function, void **parameters, void **extra);

typedef struct {
  void *function;
  LaunchConfig config;
  Attribute attributes[MAX_ATTRIBUTES];
  uint64_t values[MAX_PARAMETERS];                                      /* a number, or bytes behind an address */
  int addresses[MAX_PARAMETERS];                                        /* which address of a call, -1: a number */
  int parameter_count;
} Launch;

typedef struct {
  int launch_count, address_count;
  Launch launches[];
} Launcher;

static launch_function launch_kernel;
static const char *CAPSULE = "autotopk.runtime._launcher.Launcher";

static int launch(const Launch *self, void *stream, const uint64_t *addresses) {
  uint64_t values[MAX_PARAMETERS];
  void *parameters[MAX_PARAMETERS];
  for (int i = 0; i < self->parameter_count; i++) {
    values[i] = self->values[i] + (self->addresses[i] < 0 ? 0 : addresses[self->addresses[i]]);
    parameters[i] = &values[i];
  }
  LaunchConfig config = self->config;
  config.stream = stream;
  return launch_kernel(&config, self->function, parameters, NULL);
}

/* launch(stream, address, ...) -> CUresult of the first launch that the driver refuses, else 0 */
static PyObject *call(PyObject *capsule, PyObject *const *arguments, Py_ssize_t count) {
  const Launcher *launcher = PyCapsule_GetPointer(capsule, CAPSULE);
  if (!launcher) return NULL;
  if (count != launcher->address_count + 1) {
    PyErr_Format(PyExc_TypeError, "a stream and %d addresses are needed, got %zd arguments", launcher->address_count,
                 count);
    return NULL;
  }
  uint64_t passed[MAX_ADDRESSES + 1];
  for (Py_ssize_t i = 0; i < count; i++) {
    passed[i] = PyLong_AsUnsignedLongLong(arguments[i]);
    if (passed[i] == (uint64_t)-1 && PyErr_Occurred()) return NULL;
  }
  int status = 0;
  Py_BEGIN_ALLOW_THREADS
  for (int i = 0; i < launcher->launch_count && !status; i++)
    status = launch(&launcher->launches[i], (void *)(uintptr_t)passed[0], passed + 1);
  Py_END_ALLOW_THREADS
  return PyLong_FromLong(status);
}

static PyMethodDef call_definition = {"launch", (PyCFunction)(void (*)(void))call, METH_FASTCALL,
                                      "launch(stream, *addresses) -> CUresult, 0 on success"};

static void destroy(PyObject *capsule) { PyMem_Free(PyCapsule_GetPointer(capsule, CAPSULE)); }

static Attribute *add_attribute(Launch *self, int id) {
  Attribute *attribute = &self->attributes[self->config.attribute_count++];
  attribute->id = id;
  attribute->value.flag = 1;
  return attribute;
}

/* Whether a number is within its bounds; else an error is set. */
static int within(const char *what, long long number, long long least, long long most) {
  if (number >= least && number <= most) return 1;
  PyErr_Format(PyExc_ValueError, "%s %lld is not between %lld and %lld", what, number, least, most);
  return 0;
}

static int prepare_parameters(Launch *self, PyObject *parameters, int address_count) {
  Py_ssize_t count = PyTuple_Size(parameters);
  if (!within("number of parameters", count, 0, MAX_PARAMETERS)) return 0;
  self->parameter_count = (int)count;
  for (Py_ssize_t i = 0; i < count; i++) {
    long long address, value;
    if (!PyArg_ParseTuple(PyTuple_GetItem(parameters, i), "LL", &address, &value)) return 0;
    if (!within("address", address, -1, address_count - 1)) return 0;
    self->addresses[i] = (int)address;
    self->values[i] = (uint64_t)value;
  }
  return 1;
}

static int prepare_launch(Launch *self, PyObject *record, int address_count) {
  const long long most = 0x7FFFFFFF;
  long long function, x, y, z, threads, shared_bytes, cluster;
  int cooperative, programmatic;
  PyObject *parameters;
  if (!PyTuple_Check(record) ||
      !PyArg_ParseTuple(record, "L(LLL)LLLppO!", &function, &x, &y, &z, &threads, &shared_bytes, &cluster, &cooperative,
                        &programmatic, &PyTuple_Type, &parameters)) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a launch is a tuple");
    return 0;
  }
  if (!within("grid", x, 1, most) || !within("grid", y, 1, 0xFFFF) || !within("grid", z, 1, 0xFFFF) ||
      !within("threads", threads, 1, 1024) || !within("shared bytes", shared_bytes, 0, most) ||
      !within("cluster", cluster, 1, most))
    return 0;
  self->function = (void *)(uintptr_t)function;
  self->config = (LaunchConfig){(unsigned)x, (unsigned)y, (unsigned)z, (unsigned)threads, 1, 1, (unsigned)shared_bytes,
                                NULL, self->attributes, 0};
  if (cluster > 1) {
    Attribute *attribute = add_attribute(self, CLUSTER_DIMENSION);
    attribute->value.cluster.x = (unsigned)cluster;
    attribute->value.cluster.y = attribute->value.cluster.z = 1;
  }
  if (cooperative) add_attribute(self, COOPERATIVE);
  if (programmatic) add_attribute(self, PROGRAMMATIC_STREAM_SERIALIZATION);
  return prepare_parameters(self, parameters, address_count);
}

static PyObject *prepare(PyObject *module, PyObject *arguments) {
  PyObject *records;
  long long address_count;
  if (!PyArg_ParseTuple(arguments, "O!L", &PyTuple_Type, &records, &address_count)) return NULL;
  if (!within("number of addresses", address_count, 0, MAX_ADDRESSES)) return NULL;
  Py_ssize_t count = PyTuple_Size(records);
  Launcher *launcher = PyMem_Calloc(1, sizeof *launcher + (size_t)count * sizeof(Launch));
  if (!launcher) return PyErr_NoMemory();
  launcher->launch_count = (int)count;
  launcher->address_count = (int)address_count;
  PyObject *capsule = NULL, *callable = NULL;
  for (Py_ssize_t i = 0; i < count; i++)
    if (!prepare_launch(&launcher->launches[i], PyTuple_GetItem(records, i), launcher->address_count)) goto failed;
  capsule = PyCapsule_New(launcher, CAPSULE, destroy);
  if (!capsule) goto failed;
  callable = PyCFunction_NewEx(&call_definition, capsule, NULL);
  Py_DECREF(capsule);
  return callable;
failed:
  PyMem_Free(launcher);
  return NULL;
}

static PyMethodDef methods[] = {
    {"prepare", prepare, METH_VARARGS,
     "prepare(((function, (grid_x, grid_y, grid_z), threads, shared_bytes, cluster, cooperative, programmatic, "
     "((address, value), ...)), ...), addresses) -> launch\n\nA parameter is that address of each call with value "
     "added, or where address is -1 the value."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_launcher", "Launches of kernels at low host cost.", -1,
                                        methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__launcher(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  launch_kernel = driver ? (launch_function)dlsym(driver, "cuLaunchKernelEx") : NULL;
  if (!launch_kernel) {
    PyErr_SetString(PyExc_ImportError, "libcuda.so.1 with cuLaunchKernelEx (CUDA 11.8 or later) was not found");
    return NULL;
  }
  return PyModule_Create(&definition);
}
