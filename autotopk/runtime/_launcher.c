/* Launches one kernel with as little host time as the driver allows: the grid and all scalars are fixed when a
   launcher is prepared, a call brings only the stream and the addresses.
   Python's stable ABI only; no CUDA or torch headers; libcuda is found at run time. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

enum { MAX_PARAMETERS = 24, MAX_SLOTS = 8, MAX_ATTRIBUTES = 3 };
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
  uint64_t values[MAX_PARAMETERS];
  int slots[MAX_PARAMETERS];                                            /* which argument of a call, -1: fixed */
  int parameter_count, slot_count;
} Launcher;

static launch_function launch_kernel;
static const char *CAPSULE = "autotopk.runtime._launcher.Launcher";

/* launcher(stream, address, ...) -> CUresult */
static PyObject *call(PyObject *capsule, PyObject *const *arguments, Py_ssize_t count) {
  const Launcher *launcher = PyCapsule_GetPointer(capsule, CAPSULE);
  if (!launcher) return NULL;
  if (count != launcher->slot_count + 1) {
    PyErr_Format(PyExc_TypeError, "a stream and %d addresses are needed, got %zd arguments", launcher->slot_count, count);
    return NULL;
  }
  uint64_t passed[MAX_SLOTS + 1];
  for (Py_ssize_t i = 0; i < count; i++) {
    passed[i] = PyLong_AsUnsignedLongLong(arguments[i]);
    if (passed[i] == (uint64_t)-1 && PyErr_Occurred()) return NULL;
  }
  uint64_t values[MAX_PARAMETERS];
  void *parameters[MAX_PARAMETERS];
  for (int i = 0; i < launcher->parameter_count; i++) {
    values[i] = launcher->slots[i] < 0 ? launcher->values[i] : passed[launcher->slots[i] + 1];
    parameters[i] = &values[i];
  }
  LaunchConfig config = launcher->config;
  config.stream = (void *)(uintptr_t)passed[0];
  int status;
  Py_BEGIN_ALLOW_THREADS
  status = launch_kernel(&config, launcher->function, parameters, NULL);
  Py_END_ALLOW_THREADS
  return PyLong_FromLong(status);
}

static PyMethodDef call_definition = {"launch", (PyCFunction)(void (*)(void))call, METH_FASTCALL,
                                      "launch(stream, *addresses) -> CUresult, 0 on success"};

static void destroy(PyObject *capsule) { PyMem_Free(PyCapsule_GetPointer(capsule, CAPSULE)); }

static Attribute *add_attribute(Launcher *launcher, int id) {
  Attribute *attribute = &launcher->attributes[launcher->config.attribute_count++];
  attribute->id = id;
  attribute->value.flag = 1;
  return attribute;
}

static PyObject *prepare(PyObject *module, PyObject *arguments) {
  unsigned long long function;
  unsigned grid_x, grid_y, grid_z, threads, shared_bytes, cluster;
  int cooperative, programmatic;
  PyObject *parameters;
  if (!PyArg_ParseTuple(arguments, "K(III)IIIppO!", &function, &grid_x, &grid_y, &grid_z, &threads, &shared_bytes,
                        &cluster, &cooperative, &programmatic, &PyTuple_Type, &parameters))
    return NULL;
  Py_ssize_t count = PyTuple_Size(parameters);
  if (count > MAX_PARAMETERS) {
    PyErr_Format(PyExc_ValueError, "%zd parameters are more than %d", count, MAX_PARAMETERS);
    return NULL;
  }
  Launcher *launcher = PyMem_Calloc(1, sizeof *launcher);
  if (!launcher) return PyErr_NoMemory();
  launcher->function = (void *)(uintptr_t)function;
  launcher->config = (LaunchConfig){grid_x, grid_y, grid_z, threads, 1, 1, shared_bytes, NULL, launcher->attributes, 0};
  launcher->parameter_count = (int)count;
  if (cluster > 1) {
    Attribute *attribute = add_attribute(launcher, CLUSTER_DIMENSION);
    attribute->value.cluster.x = cluster;
    attribute->value.cluster.y = attribute->value.cluster.z = 1;
  }
  if (cooperative) add_attribute(launcher, COOPERATIVE);
  if (programmatic) add_attribute(launcher, PROGRAMMATIC_STREAM_SERIALIZATION);
  for (Py_ssize_t i = 0; i < count; i++) {
    int slot;
    long long value;
    if (!PyArg_ParseTuple(PyTuple_GetItem(parameters, i), "iL", &slot, &value)) goto failed;
    if (slot >= MAX_SLOTS) {
      PyErr_Format(PyExc_ValueError, "slot %d is not below %d", slot, MAX_SLOTS);
      goto failed;
    }
    launcher->slots[i] = slot;
    launcher->values[i] = (uint64_t)value;
    if (slot >= launcher->slot_count) launcher->slot_count = slot + 1;
  }
  PyObject *capsule = PyCapsule_New(launcher, CAPSULE, destroy);
  if (!capsule) goto failed;
  PyObject *callable = PyCFunction_NewEx(&call_definition, capsule, NULL);
  Py_DECREF(capsule);
  return callable;
failed:
  PyMem_Free(launcher);
  return NULL;
}

static PyMethodDef methods[] = {
    {"prepare", prepare, METH_VARARGS,
     "prepare(function, (grid_x, grid_y, grid_z), threads, shared_bytes, cluster, cooperative, programmatic, "
     "((slot, value), ...)) -> launch\n\nA parameter with slot >= 0 is the address of that number in each call; "
     "with slot -1 it has the fixed value."},
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
