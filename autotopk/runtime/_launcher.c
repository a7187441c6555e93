/* The way of a call from its plan to the driver, with as little host time as Python and torch allow.

   prepare: launches the kernels of a program, one after another on a stream: grids and all numbers are worked out before,
   a call brings only the stream and the addresses. bind: a launch with its inputs' and outputs' tensors. asker: from the
   arguments of an operation to its answer, where that is such a launch. Each has a twin in Python that does the same,
   and all else: launch.py and operations.py say what and why.

   Python's stable ABI only; no CUDA or torch headers; libcuda is found when the first launcher is prepared. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

// The oldest version of these two, so that a wheel that was linked with a newer glibc loads with an older one too.
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.17");
__asm__(".symver dlsym, dlsym@GLIBC_2.17");
#endif

enum { MAX_PARAMETERS = 40, MAX_ADDRESSES = 36, MAX_ATTRIBUTES = 3 };
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

static int launch_all(const Launcher *launcher, uint64_t stream, const uint64_t *addresses) {
  int status = 0;
  Py_BEGIN_ALLOW_THREADS
  for (int i = 0; i < launcher->launch_count && !status; i++)
    status = launch(&launcher->launches[i], (void *)(uintptr_t)stream, addresses);
  Py_END_ALLOW_THREADS
  return status;
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
  return PyLong_FromLong(launch_all(launcher, passed[0], passed + 1));
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

/* The number of that name; 0 with an error set where there is none. */
static int named_number(PyObject *numbers, PyObject *name, long long *number) {
  PyObject *found = PyDict_GetItemWithError(numbers, name);
  if (!found && !PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, name);
  if (found) *number = PyLong_AsLongLong(found);
  return found && !(*number == -1 && PyErr_Occurred());
}

static int prepare_parameters(Launch *self, PyObject *parameters, int address_count, PyObject *numbers) {
  Py_ssize_t count = PyTuple_Size(parameters);
  if (!within("number of parameters", count, 0, MAX_PARAMETERS)) return 0;
  self->parameter_count = (int)count;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *one = PyTuple_GetItem(parameters, i);
    long long address = -1, value;
    if (PyTuple_Check(one) ? !PyArg_ParseTuple(one, "LL", &address, &value) : !named_number(numbers, one, &value))
      return 0;
    if (!within("address", address, -1, address_count - 1)) return 0;
    self->addresses[i] = (int)address;
    self->values[i] = (uint64_t)value;
  }
  return 1;
}

/* Blocks along an axis, see `Extent.of`: 0 with an error set. What 64 bits do not count is no grid either. */
static int prepare_axis(PyObject *extent, PyObject *numbers, long long most, unsigned *blocks) {
  long long found, share, number;
  PyObject *per, *name;
  if (!PyArg_ParseTuple(extent, "LO!", &found, &PyTuple_Type, &per)) return 0;
  for (Py_ssize_t i = 0; i < PyTuple_Size(per); i++) {
    if (!PyArg_ParseTuple(PyTuple_GetItem(per, i), "OL", &name, &share) || !named_number(numbers, name, &number))
      return 0;
    if (!within("share", share, 1, INT64_MAX) || !within("number", number, 0, INT64_MAX)) return 0;
    if (__builtin_mul_overflow(found, number / share + (number % share > 0), &found)) found = INT64_MAX;
  }
  *blocks = (unsigned)found;
  return within("grid", found, 1, most);
}

static int prepare_launch(Launch *self, PyObject *record, int address_count, PyObject *numbers) {
  const long long most = 0x7FFFFFFF;
  long long function, threads, shared_bytes, cluster;
  int cooperative, programmatic;
  unsigned x, y, z;
  PyObject *grid[3], *parameters;
  if (!PyTuple_Check(record) ||
      !PyArg_ParseTuple(record, "L(O!O!O!)LLLppO!", &function, &PyTuple_Type, grid, &PyTuple_Type, grid + 1,
                        &PyTuple_Type, grid + 2, &threads, &shared_bytes, &cluster, &cooperative, &programmatic,
                        &PyTuple_Type, &parameters)) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a launch is a tuple");
    return 0;
  }
  if (!prepare_axis(grid[0], numbers, most, &x) || !prepare_axis(grid[1], numbers, 0xFFFF, &y) ||
      !prepare_axis(grid[2], numbers, 0xFFFF, &z) || !within("threads", threads, 1, 1024) ||
      !within("shared bytes", shared_bytes, 0, most) || !within("cluster", cluster, 1, most))
    return 0;
  self->function = (void *)(uintptr_t)function;
  self->config = (LaunchConfig){x, y, z, (unsigned)threads, 1, 1, (unsigned)shared_bytes, NULL, self->attributes, 0};
  if (cluster > 1) {
    Attribute *attribute = add_attribute(self, CLUSTER_DIMENSION);
    attribute->value.cluster.x = (unsigned)cluster;
    attribute->value.cluster.y = attribute->value.cluster.z = 1;
  }
  if (cooperative) add_attribute(self, COOPERATIVE);
  if (programmatic) add_attribute(self, PROGRAMMATIC_STREAM_SERIALIZATION);
  return prepare_parameters(self, parameters, address_count, numbers);
}

static int find_driver(void) {
  void *driver = launch_kernel ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
  if (driver) launch_kernel = (launch_function)dlsym(driver, "cuLaunchKernelEx");
  if (!launch_kernel)
    PyErr_SetString(PyExc_OSError, "libcuda.so.1 with cuLaunchKernelEx (CUDA 11.8 or later) was not found");
  return launch_kernel != NULL;
}

static PyObject *prepare(PyObject *module, PyObject *arguments) {
  PyObject *records, *numbers;
  long long address_count;
  if (!find_driver() || !PyArg_ParseTuple(arguments, "O!LO!", &PyTuple_Type, &records, &address_count, &PyDict_Type,
                                          &numbers))
    return NULL;
  if (!within("number of addresses", address_count, 0, MAX_ADDRESSES)) return NULL;
  Py_ssize_t count = PyTuple_Size(records);
  Launcher *launcher = PyMem_Calloc(1, sizeof *launcher + (size_t)count * sizeof(Launch));
  if (!launcher) return PyErr_NoMemory();
  launcher->launch_count = (int)count;
  launcher->address_count = (int)address_count;
  PyObject *capsule = NULL, *callable = NULL;
  for (Py_ssize_t i = 0; i < count; i++)
    if (!prepare_launch(&launcher->launches[i], PyTuple_GetItem(records, i), launcher->address_count, numbers))
      goto failed;
  capsule = PyCapsule_New(launcher, CAPSULE, destroy);
  if (!capsule) goto failed;
  callable = PyCFunction_NewEx(&call_definition, capsule, NULL);
  Py_DECREF(capsule);
  return callable;
failed:
  PyMem_Free(launcher);
  return NULL;
}


/* ---- bind: a launch and its tensors ---- */

/* What is read of tensors: attributes, and methods without arguments. */
enum { SHAPE, DTYPE, DEVICE, REQUIRES_GRAD, IS_CPU, NBYTES, STRIDE, DATA_PTR, IS_NEG, IS_CONTIGUOUS, IS_INFERENCE,
       READS };
static const char *const READ[READS] = {"shape", "dtype", "device", "requires_grad", "is_cpu", "nbytes", "stride",
                                        "data_ptr", "is_neg", "is_contiguous", "is_inference"};

static struct {
  PyObject *name, *descriptor;
  descrgetfunc get;                                                     /* of the descriptor; NULL for methods */
  PyCFunction method;                                                   /* of C, called without being looked up */
  int flags;
} reads[READS];
static PyTypeObject *tensors;                                           /* whose methods those are */
static PyObject *nothing, *cpu_is_torchs, *current_level;               /* (), and names */

typedef struct {
  PyObject *owner;                                                      /* a tuple that keeps what follows */
  PyObject *launch, *twin, *empty, *values, *indices, *current_device, *current_stream, *index;
  const Launcher *launcher;                                             /* behind launch; NULL: of another kind */
} Bound;

static const char *BOUND = "autotopk.runtime._launcher.Bound";

static PyObject *get(PyObject *tensor, int what) {
  if (reads[what].get) return reads[what].get(reads[what].descriptor, tensor, (PyObject *)Py_TYPE(tensor));
  int known = reads[what].flags && PyObject_TypeCheck(tensor, tensors);
  if (known && reads[what].flags == METH_NOARGS) return reads[what].method(tensor, NULL);
  if (known && reads[what].flags == (METH_VARARGS | METH_KEYWORDS))
    return ((PyCFunctionWithKeywords)(void (*)(void))reads[what].method)(tensor, nothing, NULL);
  return PyObject_CallMethodObjArgs(tensor, reads[what].name, NULL);
}

/* Finds out from a tensor how they are read, once. */
static int learn(PyObject *tensor) {
  tensors = Py_TYPE(tensor);                                            /* they live as long as torch */
  for (int i = 0; i < READS; i++) {
    if (reads[i].get || reads[i].method) continue;
    PyObject *found = PyObject_GetAttr(i < STRIDE ? (PyObject *)Py_TYPE(tensor) : tensor, reads[i].name);
    if (!found) return 0;
    if (i < STRIDE) {
      reads[i].descriptor = found;                                      /* kept */
      reads[i].get = (descrgetfunc)PyType_GetSlot(Py_TYPE(found), Py_tp_descr_get);
      continue;
    }
    if (PyCFunction_Check(found)) {
      reads[i].flags = PyCFunction_GetFlags(found);
      reads[i].method = PyCFunction_GetFunction(found);
    }
    Py_DECREF(found);
  }
  return 1;
}

/* Whether what was found, and is given up here, is true; -1: an error, also where nothing was found. */
static int truth(PyObject *found) {
  int answer = found == Py_True ? 1 : found == Py_False ? 0 : found ? PyObject_IsTrue(found) : -1;
  Py_XDECREF(found);
  return answer;
}

/* The number that was found, and is given up here; (uint64_t)-1 with an error set. */
static uint64_t number(PyObject *found) {
  uint64_t answer = found ? PyLong_AsUnsignedLongLong(found) : (uint64_t)-1;
  Py_XDECREF(found);
  return answer;
}

static int failed(uint64_t number) { return number == (uint64_t)-1 && PyErr_Occurred(); }

static uint64_t address_of(PyObject *tensor) { return number(get(tensor, DATA_PTR)); }

static PyObject *through_python(const Bound *self, PyObject *stream, const uint64_t *addresses) {
  PyObject *given[3] = {NULL}, *code = NULL;
  int i = 0;
  while (i < 3 && (given[i] = PyLong_FromUnsignedLongLong(addresses[i]))) i++;
  if (i == 3) code = PyObject_CallFunctionObjArgs(self->launch, stream, given[0], given[1], given[2], NULL);
  for (i = 0; i < 3; i++) Py_XDECREF(given[i]);
  return code;
}

/* Another device is current: 1; an error is set: -1. */
static int elsewhere(const Bound *self) {
  if (self->current_device == Py_None) return 0;
  PyObject *current = PyObject_CallNoArgs(self->current_device);
  int here = current ? PyObject_RichCompareBool(current, self->index, Py_EQ) : -1;
  Py_XDECREF(current);
  return here < 0 ? -1 : !here;
}

/* Makes what is written to, and adds its addresses. 0: done; -1: an error is set. */
static int make(const Bound *self, PyObject **values, PyObject **indices, uint64_t *addresses) {
  if (self->values != Py_None) {
    if (!(*values = PyObject_Call(self->empty, self->values, NULL))) return -1;
    if (failed(addresses[1] = address_of(*values))) return -1;
  }
  if (!(*indices = PyObject_Call(self->empty, self->indices, NULL))) return -1;
  return failed(addresses[2] = address_of(*indices)) ? -1 : 0;
}

/* Launches for the addresses of input, values, and indices. 0: done; 1: the driver refuses; -1: an error is set. */
static int launch_on(const Bound *self, const uint64_t *addresses) {
  PyObject *stream = PyObject_CallFunctionObjArgs(self->current_stream, self->index, NULL);
  if (!stream) return -1;
  if (!self->launcher) {
    PyObject *code = through_python(self, stream, addresses);
    Py_DECREF(stream);
    return truth(code);
  }
  uint64_t handle = number(stream);
  return failed(handle) ? -1 : launch_all(self->launcher, handle, addresses) != 0;
}

/* bound(x) or bound(x, (values, indices)) -> what the twin returns */
static PyObject *call_bound(PyObject *capsule, PyObject *const *arguments, Py_ssize_t count) {
  const Bound *self = PyCapsule_GetPointer(capsule, BOUND);
  if (!self) return NULL;
  PyObject *values = NULL, *indices = NULL, *answer = NULL, *out = count > 1 ? arguments[1] : Py_None;
  if (count < 1 || count > 2 || (out != Py_None && !PyArg_ParseTuple(out, "OO", &values, &indices))) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "a tensor and maybe outputs are needed, got %zd", count);
    return NULL;
  }
  Py_XINCREF(values);
  Py_XINCREF(indices);
  uint64_t addresses[3] = {address_of(arguments[0]), 0, 0};
  int status = failed(addresses[0]) ? -1 : elsewhere(self);
  if (!status && !indices) status = make(self, &values, &indices, addresses);
  else if (!status && failed(addresses[1] = address_of(values))) status = -1;
  else if (!status && failed(addresses[2] = address_of(indices))) status = -1;
  if (!status) status = launch_on(self, addresses);
  if (!status) answer = values ? PyTuple_Pack(2, values, indices) : Py_NewRef(indices);
  Py_XDECREF(values);
  Py_XDECREF(indices);
  if (status <= 0) return answer;
  return PyObject_CallFunctionObjArgs(self->twin, arguments[0], out == Py_None ? NULL : out, NULL);
}

static PyMethodDef bound_definition = {"run", (PyCFunction)(void (*)(void))call_bound, METH_FASTCALL,
                                       "run(x, out=None) -> (values, indices), or indices"};

static const Bound *bound_of(PyObject *callable) {
  if (!PyCFunction_Check(callable) || PyCFunction_GetFunction(callable) != bound_definition.ml_meth) return NULL;
  return PyCapsule_GetPointer(PyCFunction_GetSelf(callable), BOUND);
}

/* A function with a record behind it that begins with the tuple which it keeps. */
static PyObject *callable_of(void *record, const char *name, PyCapsule_Destructor end, PyMethodDef *definition,
                             PyObject *owner) {
  PyObject *capsule = PyCapsule_New(record, name, end), *callable = NULL;
  if (!capsule) {
    PyMem_Free(record);
    return NULL;
  }
  *(PyObject **)record = Py_NewRef(owner);
  callable = PyCFunction_NewEx(definition, capsule, NULL);
  Py_DECREF(capsule);
  return callable;
}

static void end_record(PyObject *capsule) {
  PyObject **record = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
  Py_DECREF(*record);
  PyMem_Free(record);
}

static PyObject *bind(PyObject *module, PyObject *arguments) {
  Bound *self = PyMem_Calloc(1, sizeof *self);
  if (!self) return PyErr_NoMemory();
  if (!PyArg_ParseTuple(arguments, "OOOOO!OOO!", &self->launch, &self->twin, &self->empty, &self->values, &PyTuple_Type,
                        &self->indices, &self->current_device, &self->current_stream, &PyLong_Type, &self->index) ||
      (self->values != Py_None && !PyTuple_Check(self->values))) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "arguments for values are a tuple, or None");
    PyMem_Free(self);
    return NULL;
  }
  if (PyCFunction_Check(self->launch) && PyCFunction_GetFunction(self->launch) == call_definition.ml_meth) {
    self->launcher = PyCapsule_GetPointer(PyCFunction_GetSelf(self->launch), CAPSULE);
    if (self->launcher->address_count != 3) self->launcher = NULL;      /* says so itself */
  }
  return callable_of(self, BOUND, end_record, &bound_definition, arguments);
}

/* ---- asker: from arguments to an answer ---- */

typedef struct {
  PyObject *owner;                                                      /* a tuple that keeps what follows */
  PyObject *plans, *runtime, *selected, *tensor, *parameter, *int64, *result, *result_out;
  PyObject *overridden, *only_devices, *threads, *has_names, *dispatch_modes, *transforms, *forward_ad, *grad_enabled,
      *is_inference_mode, *increment_version, *deterministic;
} Asker;

static const char *ASKER = "autotopk.runtime._launcher.Asker";

typedef struct {
  PyObject *input, *k, *dim, *largest, *sorted, *out;
  int data;
} Asked;

static int yes(PyObject *function) { return truth(PyObject_CallNoArgs(function)); }

static int yes_of(PyObject *function, PyObject *argument) {
  return truth(PyObject_CallFunctionObjArgs(function, argument, NULL));
}

/* A part of what plans are known by, which Operation.__call__ has in the same order. */
static PyObject *key_part(const Asker *self, const Asked *asked, int i, uint64_t address) {
  switch (i) {
    case 0: return get(asked->input, SHAPE);
    case 1: return get(asked->input, STRIDE);
    case 2: return get(asked->input, DTYPE);
    case 3: return get(asked->input, DEVICE);
    case 4: return PyLong_FromLong((long)(address & 15));
    case 5: return PyObject_CallNoArgs(self->threads);
    case 6: return Py_NewRef(asked->k);
    case 7: return Py_NewRef(asked->dim);
    case 8: return Py_NewRef(asked->largest);
    default: return Py_NewRef(asked->sorted);
  }
}

static PyObject *key_of(const Asker *self, const Asked *asked, uint64_t *address) {
  if (failed(*address = address_of(asked->input))) return NULL;
  PyObject *key = PyTuple_New(10), *part = key;
  for (int i = 0; i < 10 && part; i++)
    if ((part = key_part(self, asked, i, *address))) PyTuple_SetItem(key, i, part);
  if (part) return key;
  Py_XDECREF(key);
  return NULL;
}

/* Whether modes or transforms see a call before its data do; -1: an error */
static int transformed(const Asker *self) {
  int modes = yes(self->dispatch_modes);
  if (modes) return modes;
  PyObject *stack = PyObject_CallNoArgs(self->transforms);
  Py_XDECREF(stack);
  if (stack != Py_None) return stack ? 1 : -1;
  PyObject *level = PyObject_GetAttr(self->forward_ad, current_level);
  long current = level ? PyLong_AsLong(level) : -1;
  Py_XDECREF(level);
  return PyErr_Occurred() ? -1 : current >= 0;
}

/* Of torch's structured types, which are made of their elements in C. */
static PyObject *named(PyObject *type, PyObject *values, PyObject *indices) {
  PyObject *answer = PyStructSequence_New((PyTypeObject *)type);
  if (!answer) return NULL;
  PyStructSequence_SetItem(answer, 0, Py_NewRef(values));
  PyStructSequence_SetItem(answer, 1, Py_NewRef(indices));
  return answer;
}

/* What a plan makes of what was found, which is given up here. */
static PyObject *finished(const Asker *self, PyObject *finish, PyObject *found) {
  if (!found || finish == Py_None) return found;
  PyObject *answer = finish == self->result && PyTuple_CheckExact(found) && PyTuple_Size(found) == 2
                         ? named(finish, PyTuple_GetItem(found, 0), PyTuple_GetItem(found, 1))
                         : PyObject_CallFunctionObjArgs(finish, found, NULL);
  Py_DECREF(found);
  return answer;
}

static int has(PyObject *object, int name, PyObject *wanted) {
  PyObject *found = get(object, name);
  int same = found ? PyObject_RichCompareBool(found, wanted, Py_EQ) : -1;
  Py_XDECREF(found);
  return same;
}

/* Whether an output is one that torch's dispatcher lets pass; where that asks, it did. */
static int ordinary(const Asker *self, PyObject *output) {
  int odd = truth(get(output, IS_NEG));
  if (!odd && (odd = truth(get(output, REQUIRES_GRAD))) == 1) odd = yes(self->grad_enabled);
  if (odd) return odd < 0 ? -1 : 0;
  int any = yes(self->is_inference_mode);
  if (any) return any;
  odd = truth(get(output, IS_INFERENCE));
  return odd < 0 ? -1 : !odd;
}

/* Whether a kernel may write to it, and where, see outputs.py; -1: an error. Dtype, device: of the key of a plan. */
static int writable(const Asker *self, PyObject *output, PyObject *dtype, PyObject *device, PyObject *size,
                    uint64_t input, uint64_t reach, int data, uint64_t *address) {
  int good = (PyObject *)Py_TYPE(output) == self->tensor;
  if (good == 1) good = has(output, DTYPE, dtype);
  if (good == 1) good = has(output, DEVICE, device);
  if (good == 1) good = has(output, SHAPE, size);
  if (good == 1) good = truth(get(output, IS_CONTIGUOUS));
  if (good == 1 && !data) good = ordinary(self, output);
  if (good != 1) return good;
  uint64_t begin = *address = address_of(output);
  if (failed(begin)) return -1;
  if (begin & 15 || begin >= input + reach) return !(begin & 15);
  uint64_t bytes = number(get(output, NBYTES));
  return failed(bytes) ? -1 : begin + bytes <= input;
}

/* The answer of a plan of a kernel alone; NULL with an error set, or without one where Python is to answer. */
static PyObject *answer(const Asker *self, const Asked *asked, PyObject *key, PyObject *plan, uint64_t address) {
  PyObject *callable = PyTuple_GetItem(plan, 0), *finish = PyTuple_GetItem(plan, 1), *size = PyTuple_GetItem(plan, 3);
  PyObject *extent = PyTuple_GetItem(plan, 4), *out = asked->out;
  const Bound *bound = callable && extent ? bound_of(callable) : NULL;
  uint64_t reach = bound ? PyLong_AsUnsignedLongLong(extent) : 0;
  if (!bound || failed(reach)) return NULL;
  if (!asked->data) {
    int graded = truth(get(asked->input, REQUIRES_GRAD));
    if (graded == 1) graded = yes(self->grad_enabled);
    if (graded && (graded < 0 || out != Py_None || !reach || self->selected == Py_None)) return NULL;
    if (graded)
      return finished(self, finish,
                      PyObject_CallFunctionObjArgs(self->selected, asked->input, callable, asked->dim, NULL));
  }
  PyObject *values = NULL, *indices = NULL, *found = NULL;
  uint64_t addresses[3] = {address, 0, 0};
  int status = elsewhere(bound);
  if (status) return NULL;
  if (out == Py_None) {
    status = make(bound, &values, &indices, addresses);
  } else {
    if (!reach || !PyTuple_CheckExact(out) || PyTuple_Size(out) != 2) return NULL;
    PyObject *dtype = PyTuple_GetItem(key, 2), *device = PyTuple_GetItem(key, 3);
    values = PyTuple_GetItem(out, 0);
    indices = PyTuple_GetItem(out, 1);
    int data = asked->data, good = writable(self, values, dtype, device, size, address, reach, data, addresses + 1);
    if (good == 1) good = writable(self, indices, self->int64, device, size, address, reach, data, addresses + 2);
    if (good != 1) return NULL;
    Py_INCREF(values);
    Py_INCREF(indices);
  }
  if (!status && !launch_on(bound, addresses)) {
    if (out == Py_None) {
      if (finish == self->result && values) found = named(finish, values, indices);
      else found = finished(self, finish, values ? PyTuple_Pack(2, values, indices) : Py_NewRef(indices));
    } else {
      PyObject *counted = asked->data ? nothing : PyObject_CallFunctionObjArgs(self->increment_version, out, NULL);
      if (counted) found = named(self->result_out, values, indices);
      if (counted != nothing) Py_XDECREF(counted);
    }
  }
  Py_XDECREF(values);
  Py_XDECREF(indices);
  return found;
}

/* Instead of an answer, after whatever error; but not after one that ends programs. */
static PyObject *instead(PyObject *sign) {
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
  PyErr_Clear();
  return Py_NewRef(sign);
}

/* ask(input, k, dim, largest, sorted, out, data) -> the answer; NotImplemented: torch.topk's; a plan: for Python to
   run; None: for Python to see to. */
static PyObject *ask(PyObject *capsule, PyObject *const *given, Py_ssize_t count) {
  const Asker *self = PyCapsule_GetPointer(capsule, ASKER);
  if (!self) return NULL;
  if (count != 7) return PyErr_Format(PyExc_TypeError, "7 arguments are needed, got %zd", count);
  Asked asked = {given[0], given[1], given[2], given[3], given[4], given[5], given[6] == Py_True};
  PyObject *type = (PyObject *)Py_TYPE(asked.input);
  if (!PyLong_CheckExact(asked.k)) return instead(Py_None);
  if (!asked.data && self->deterministic != Py_None && yes(self->deterministic)) return instead(Py_None);
  if (!PyObject_IsTrue(asked.k)) return instead(Py_NotImplemented);     /* nothing to select */
  if ((type != self->tensor && type != self->parameter) || !PyLong_CheckExact(asked.dim) ||
      (asked.largest != Py_True && asked.largest != Py_False) || (asked.sorted != Py_True && asked.sorted != Py_False))
    return instead(Py_None);
  int seen = asked.data ? 0 : yes_of(self->overridden, asked.input);    /* by modes of torch functions */
  if (seen == 1) seen = yes(self->only_devices) == 1 ? 0 : 1;
  int torchs = seen ? 0 : truth(PyObject_GetAttr(self->runtime, cpu_is_torchs));
  if (torchs == 1) torchs = truth(get(asked.input, IS_CPU));
  if (seen || torchs) return instead(!seen && torchs == 1 ? Py_NotImplemented : Py_None);
  uint64_t address;
  PyObject *key = key_of(self, &asked, &address), *found = Py_None;
  PyObject *plan = key ? PyDict_GetItemWithError(self->plans, key) : NULL;
  if (plan) {
    Py_INCREF(plan);
    int odd = plan == Py_None;
    if (!odd && !asked.data) odd = truth(get(asked.input, IS_NEG));
    if (!odd && !asked.data && self->has_names != Py_None) odd = yes_of(self->has_names, asked.input);
    seen = odd || asked.data ? 0 : transformed(self);
    if (odd == 1) found = Py_NewRef(Py_NotImplemented);
    else if (odd || seen) found = instead(Py_None);
    else if (!(found = answer(self, &asked, key, plan, address))) found = instead(plan);
    Py_DECREF(plan);
  } else {
    found = instead(Py_None);
  }
  Py_XDECREF(key);
  return found;
}

static PyMethodDef ask_definition = {"ask", (PyCFunction)(void (*)(void))ask, METH_FASTCALL,
                                     "ask(input, k, dim, largest, sorted, out, data) -> the answer, a plan to be run "
                                     "by Python, NotImplemented for torch.topk, or None for Python"};

static PyObject *asker(PyObject *module, PyObject *arguments) {
  PyObject *tensor;
  Asker *self = PyMem_Calloc(1, sizeof *self);
  if (!self) return PyErr_NoMemory();
  if (!PyArg_ParseTuple(arguments, "O!OOOOOOOOOOOOOOOOOO", &PyDict_Type, &self->plans, &self->runtime, &self->selected,
                        &tensor, &self->parameter, &self->int64, &self->result, &self->result_out,
                        &self->overridden, &self->only_devices, &self->threads, &self->has_names,
                        &self->dispatch_modes, &self->transforms, &self->forward_ad, &self->grad_enabled,
                        &self->is_inference_mode, &self->increment_version, &self->deterministic) ||
      !learn(tensor)) {
    PyMem_Free(self);
    return NULL;
  }
  self->tensor = (PyObject *)tensors;
  return callable_of(self, ASKER, end_record, &ask_definition, arguments);
}

static PyMethodDef methods[] = {
    {"prepare", prepare, METH_VARARGS,
     "prepare(((function, (grid_x, grid_y, grid_z), threads, shared_bytes, cluster, cooperative, programmatic, "
     "(parameter, ...)), ...), addresses, numbers) -> launch\n\nA parameter is (address, value), that address of each "
     "call with value added, or where address is -1 the value; or the name of one of the numbers. Of a grid each is "
     "(times, ((name, share), ...)): times so many shares as each number of these names has, rounded up."},
    {"bind", bind, METH_VARARGS,
     "bind(launch, twin, empty, values, indices, current_device, current_stream, index) -> run\n\nOf a launch of three "
     "addresses. `empty` makes an output from the arguments values, None for indices alone, or indices. "
     "`current_device` is None where there is one device. `twin` runs where another one is current, or the driver "
     "refuses."},
    {"asker", asker, METH_VARARGS,
     "asker(plans, runtime, selected, ...) -> ask\n\nOf an operation's plans, and with functions and types of torch."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_launcher", "Calls of kernels at low host cost.", -1,
                                        methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__launcher(void) {
  PyObject *module = PyModule_Create(&definition), *all = PyTuple_New(READS);
  nothing = PyTuple_New(0);
  cpu_is_torchs = PyUnicode_InternFromString("cpu_is_torchs");
  current_level = PyUnicode_InternFromString("_current_level");
  if (!module || !all || !nothing || !cpu_is_torchs || !current_level) return NULL;
  for (int i = 0; i < READS; i++) {
    if (!(reads[i].name = PyUnicode_InternFromString(READ[i]))) return NULL;
    PyTuple_SetItem(all, i, Py_NewRef(reads[i].name));
  }
  return PyModule_AddObjectRef(module, "READ", all) ? NULL : module;
}
