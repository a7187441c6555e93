/* What a prediction asks most often, with as little host time as Python allows.

   forest: the sum of trees, of a tuple of traits. around: which places are near to one. mean: of what is said of a name
   there. Each has a twin in Python that does the same: forest.py and nearby.py say what and why. Python's stable
   ABI only. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { MAX_NUMBERS = 255, PLACE = 5 };

typedef struct {
  int depth, traits, trees;
  const double *thresholds, *leaves;                                    /* of the nodes that ask, and of the others */
  const uint8_t *asked;
  double numbers[];                                                     /* what these point to */
} Forest;

typedef struct {
  double farthest;                                                      /* a square */
  Py_ssize_t count;
  double places[][PLACE];
} Places;

static const char *FOREST = "autotopk._predict.Forest", *PLACES = "autotopk._predict.Places";

/* The floats of a tuple; 0 with an error set where it is none of so many. */
static int read_numbers(PyObject *tuple, Py_ssize_t count, double *numbers) {
  if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != count) {
    PyErr_Format(PyExc_ValueError, "needs a tuple of %zd numbers", count);
    return 0;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    numbers[i] = PyFloat_AsDouble(PyTuple_GetItem(tuple, i));
    if (numbers[i] == -1.0 && PyErr_Occurred()) return 0;
  }
  return 1;
}

static void end_record(PyObject *capsule) { PyMem_Free(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))); }

/* A function with a record behind it, which it frees. */
static PyObject *callable_of(void *record, const char *name, PyMethodDef *definition) {
  PyObject *capsule = PyCapsule_New(record, name, end_record), *callable = NULL;
  if (!capsule) {
    PyMem_Free(record);
    return NULL;
  }
  callable = PyCFunction_NewEx(definition, capsule, NULL);
  Py_DECREF(capsule);
  return callable;
}

static PyObject *forest_value(PyObject *capsule, PyObject *traits) {
  const Forest *self = PyCapsule_GetPointer(capsule, FOREST);
  double numbers[MAX_NUMBERS], total = 0.0;
  if (!self || !read_numbers(traits, self->traits, numbers)) return NULL;
  const int inner = (1 << self->depth) - 1, leaves = 1 << self->depth;
  for (int tree = 0; tree < self->trees; tree++) {
    const uint8_t *asked = self->asked + (size_t)tree * inner;
    const double *thresholds = self->thresholds + (size_t)tree * inner;
    int node = 0;
    for (int level = 0; level < self->depth; level++) node = 2 * node + 1 + (numbers[asked[node]] > thresholds[node]);
    total += self->leaves[(size_t)tree * leaves + node - inner];
  }
  return PyFloat_FromDouble(total);
}

static PyMethodDef forest_definition = {"value", forest_value, METH_O, "value(traits) -> float"};

static PyObject *forest(PyObject *module, PyObject *arguments) {
  int depth, traits;
  const char *asked, *thresholds, *leaves;
  Py_ssize_t nodes, threshold_bytes, leaf_bytes;
  if (!PyArg_ParseTuple(arguments, "iiy#y#y#", &depth, &traits, &asked, &nodes, &thresholds, &threshold_bytes, &leaves,
                        &leaf_bytes))
    return NULL;
  const Py_ssize_t inner = depth > 0 && depth < 16 ? ((Py_ssize_t)1 << depth) - 1 : 1, trees = nodes / inner;
  const Py_ssize_t size = (Py_ssize_t)sizeof(double);
  int fits = depth > 0 && depth < 16 && traits > 0 && traits <= MAX_NUMBERS && trees * inner == nodes &&
             threshold_bytes == nodes * size && leaf_bytes == trees * (inner + 1) * size;
  for (Py_ssize_t i = 0; fits && i < nodes; i++) fits = (uint8_t)asked[i] < traits;
  if (!fits) {
    PyErr_SetString(PyExc_ValueError, "no trees of such a depth, or traits that they do not have");
    return NULL;
  }
  Forest *self = PyMem_Malloc(sizeof *self + (size_t)(threshold_bytes + leaf_bytes + nodes));
  if (!self) return PyErr_NoMemory();
  char *data = (char *)self->numbers;
  self->depth = depth, self->traits = traits, self->trees = (int)trees;
  self->thresholds = memcpy(data, thresholds, (size_t)threshold_bytes);
  self->leaves = memcpy(data + threshold_bytes, leaves, (size_t)leaf_bytes);
  self->asked = memcpy(data + threshold_bytes + leaf_bytes, asked, (size_t)nodes);
  return callable_of(self, FOREST, &forest_definition);
}

static PyObject *places_near(PyObject *capsule, PyObject *place) {
  const Places *self = PyCapsule_GetPointer(capsule, PLACES);
  double here[PLACE];
  PyObject *found = PyList_New(0);
  if (!self || !found || !read_numbers(place, PLACE, here)) goto failed;
  for (Py_ssize_t i = 0; i < self->count; i++) {
    double square = 0.0;
    for (int j = 0; j < PLACE; j++) square += (self->places[i][j] - here[j]) * (self->places[i][j] - here[j]);
    if (square < self->farthest) {
      PyObject *pair = Py_BuildValue("dn", square, i);
      int failed = !pair || PyList_Append(found, pair);
      Py_XDECREF(pair);
      if (failed) goto failed;
    }
  }
  return found;
failed:
  Py_XDECREF(found);
  return NULL;
}

static PyMethodDef places_definition = {"near", places_near, METH_O, "near(place) -> [(square, number), ...]"};

static PyObject *around(PyObject *module, PyObject *arguments) {
  double farthest;
  const char *places;
  Py_ssize_t bytes;
  if (!PyArg_ParseTuple(arguments, "dy#", &farthest, &places, &bytes)) return NULL;
  if (bytes % (Py_ssize_t)sizeof(double[PLACE])) {
    PyErr_Format(PyExc_ValueError, "%zd bytes are no places", bytes);
    return NULL;
  }
  Places *self = PyMem_Malloc(sizeof *self + (size_t)bytes);
  if (!self) return PyErr_NoMemory();
  self->farthest = farthest, self->count = bytes / (Py_ssize_t)sizeof(double[PLACE]);
  memcpy(self->places, places, (size_t)bytes);
  return callable_of(self, PLACES, &places_definition);
}

static PyObject *mean(PyObject *module, PyObject *arguments) {
  PyObject *weighted, *name, *said;
  double total = 0.0, weights;
  if (!PyArg_ParseTuple(arguments, "dO!O", &weights, &PyList_Type, &weighted, &name)) return NULL;
  for (Py_ssize_t i = 0; i < PyList_Size(weighted); i++) {
    PyObject *pair = PyList_GetItem(weighted, i);
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
      PyErr_SetString(PyExc_TypeError, "needs pairs of a weight and what is said");
      return NULL;
    }
    if ((said = PyDict_GetItemWithError(PyTuple_GetItem(pair, 1), name))) {
      const double weight = PyFloat_AsDouble(PyTuple_GetItem(pair, 0));
      total += weight * PyFloat_AsDouble(said);
      weights += weight;
    }
    if (PyErr_Occurred()) return NULL;
  }
  return PyFloat_FromDouble(total / weights);
}

static PyMethodDef methods[] = {
    {"forest", forest, METH_VARARGS,
     "forest(depth, traits, asked, thresholds, leaves) -> value\n\nOf trees, one after another, level by level: which "
     "trait each node asks, a byte, above what it goes right, a double, and what each leaf says."},
    {"around", around, METH_VARARGS,
     "around(farthest, places) -> near\n\nOf places, five doubles each; the square of a distance that is too far."},
    {"mean", mean, METH_VARARGS,
     "mean(doubt, weighted, name) -> float\n\nOf (weight, dict) those that know the name, and of nothing as doubtful."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_predict", "Predictions at low host cost.", -1,
                                        methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__predict(void) { return PyModule_Create(&definition); }
