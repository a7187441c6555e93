/* What a prediction asks most often, with as little host time as Python allows.

   curve: the time of a configuration, by coefficients, trees and what is said of it at points around. around: what is
   said there, weighted. mean: of what is said of a name. Each has a twin in Python that does the same: curve.py and
   nearby.py say what and why. Python's stable ABI only. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NUMBERS = 255, PLACE = 5 };

typedef struct {
  int depth, traits, trees, terms;
  double doubt;
  const double *coefficients, *limits;                                  /* of each term */
  const double *thresholds, *leaves;                                    /* of the nodes that ask, and of the others */
  const uint8_t *asked;
  double numbers[];                                                     /* what these point to */
} Curve;

typedef struct {
  double square;
  Py_ssize_t at;
} Found;

typedef struct {
  double reach, farthest;                                               /* squares */
  Py_ssize_t count, judges;
  PyObject *said, *judging;                                             /* of each place a dict, and a judge */
  double places[][PLACE];                                               /* in order */
} Places;

static const char *CURVE = "autotopk._predict.Curve", *PLACES = "autotopk._predict.Places";

/* As exp, whose version of today asks for a C library that older systems lack; of what is far below 0 less exact. */
static double exponential(double x) { return expm1(x) + 1.0; }

/* Appends the floats of a tuple, or of what makes one; 0 with an error set where it has others. Of too many none is
   kept, and the count is one more than there is room for. */
static int read_numbers(PyObject *from, double *numbers, Py_ssize_t *count) {
  PyObject *tuple = PySequence_Tuple(from);                             /* of a tuple itself */
  if (!tuple) return 0;
  Py_ssize_t more = PyTuple_Size(tuple);
  int good = 1;
  if (*count + more > MAX_NUMBERS) {
    *count = MAX_NUMBERS + 1;
    more = 0;
  }
  for (Py_ssize_t i = 0; good && i < more; i++) {
    const double one = PyFloat_AsDouble(PyTuple_GetItem(tuple, i));
    numbers[(*count)++] = one;
    good = one != -1.0 || !PyErr_Occurred();
  }
  Py_DECREF(tuple);
  return good;
}

/* A function with a record behind it, which is freed by `end`. */
static PyObject *callable_of(void *record, const char *name, PyCapsule_Destructor end, PyMethodDef *definition) {
  PyObject *capsule = PyCapsule_New(record, name, end), *callable = NULL;
  if (!capsule) {
    PyMem_Free(record);
    return NULL;
  }
  callable = PyCFunction_NewEx(definition, capsule, NULL);
  Py_DECREF(capsule);
  return callable;
}

/* The mean of what is said of a name, see `slow_mean`; 0 with an error set where these are no pairs of a weight and a
   dict. */
static int mean_of(double doubt, PyObject *weighted, PyObject *name, double *found) {
  double total = 0.0, weights = doubt;
  const Py_ssize_t count = PyList_Size(weighted);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *pair = PyList_GetItem(weighted, i), *said;
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
      PyErr_SetString(PyExc_TypeError, "needs pairs of a weight and what is said");
      return 0;
    }
    if ((said = PyDict_GetItemWithError(PyTuple_GetItem(pair, 1), name))) {
      const double weight = PyFloat_AsDouble(PyTuple_GetItem(pair, 0));
      total += weight * PyFloat_AsDouble(said);
      weights += weight;
    }
    if (PyErr_Occurred()) return 0;
  }
  *found = total / weights;
  return 1;
}

static PyObject *mean(PyObject *module, PyObject *arguments) {
  PyObject *weighted, *name;
  double doubt, found;
  if (!PyArg_ParseTuple(arguments, "dO!O", &doubt, &PyList_Type, &weighted, &name)) return NULL;
  return mean_of(doubt, weighted, name, &found) ? PyFloat_FromDouble(found) : NULL;
}

static double forest_value(const Curve *self, const double *numbers) {
  const int inner = (1 << self->depth) - 1, leaves = 1 << self->depth;
  double total = 0.0;
  for (int tree = 0; tree < self->trees; tree++) {
    const uint8_t *asked = self->asked + (size_t)tree * inner;
    const double *thresholds = self->thresholds + (size_t)tree * inner;
    int node = 0;
    for (int level = 0; level < self->depth; level++) node = 2 * node + 1 + (numbers[asked[node]] > thresholds[node]);
    total += self->leaves[(size_t)tree * leaves + node - inner];
  }
  return total;
}

static PyObject *curve_time_us(PyObject *capsule, PyObject *const *given, Py_ssize_t count) {
  const Curve *self = PyCapsule_GetPointer(capsule, CURVE);
  double numbers[MAX_NUMBERS], total = 0.0, beside, left = 0.0;
  Py_ssize_t sizes = 0, traits;
  if (!self) return NULL;
  if (count != 6 || !PyList_Check(given[2])) {
    PyErr_SetString(PyExc_TypeError, "needs sizes, a number, a list, a name, knobs and terms");
    return NULL;
  }
  if (!read_numbers(given[0], numbers, &sizes)) return NULL;
  traits = sizes;
  if (!read_numbers(given[4], numbers, &traits)) return NULL;
  const Py_ssize_t first = traits;
  if (!read_numbers(given[5], numbers, &traits)) return NULL;
  if (traits > MAX_NUMBERS || traits - first != self->terms) Py_RETURN_NONE;
  const double *terms = numbers + first;
  for (int i = 0; i < self->terms; i++) {
    if (terms[i] > self->limits[i]) Py_RETURN_NONE;
    total += self->coefficients[i] * terms[i];
  }
  if (!(total > 0.0)) Py_RETURN_NONE;
  beside = PyFloat_AsDouble(given[1]);
  if (PyErr_Occurred() || !mean_of(self->doubt, given[2], given[3], &left)) return NULL;
  beside += left;
  if (sizes && self->trees) {
    if (traits != self->traits) Py_RETURN_NONE;
    beside += forest_value(self, numbers);
  }
  return PyFloat_FromDouble(total * exponential(beside));
}

static void end_curve(PyObject *capsule) { PyMem_Free(PyCapsule_GetPointer(capsule, CURVE)); }

static PyMethodDef curve_definition = {"time_us", (PyCFunction)(void (*)(void))curve_time_us, METH_FASTCALL,
                                       "time_us(sizes, off, around, name, knobs, terms) -> float | None"};

static PyObject *curve(PyObject *module, PyObject *arguments) {
  double doubt;
  int depth, traits;
  const char *coefficients, *limits, *asked, *thresholds, *leaves;
  Py_ssize_t terms, limited, nodes, threshold_bytes, leaf_bytes;
  if (!PyArg_ParseTuple(arguments, "dy#y#iiy#y#y#", &doubt, &coefficients, &terms, &limits, &limited, &depth, &traits,
                        &asked, &nodes, &thresholds, &threshold_bytes, &leaves, &leaf_bytes))
    return NULL;
  const Py_ssize_t inner = depth > 0 && depth < 16 ? ((Py_ssize_t)1 << depth) - 1 : 1, trees = nodes / inner;
  const Py_ssize_t size = (Py_ssize_t)sizeof(double);
  int fits = depth > 0 && depth < 16 && traits >= 0 && traits <= MAX_NUMBERS && trees * inner == nodes &&
             threshold_bytes == nodes * size && leaf_bytes == trees * (inner + 1) * size && terms == limited &&
             terms % size == 0 && terms <= MAX_NUMBERS * size;
  for (Py_ssize_t i = 0; fits && i < nodes; i++) fits = (uint8_t)asked[i] < traits;
  if (!fits) {
    PyErr_SetString(PyExc_ValueError, "no trees of such a depth, or traits that they do not have, or odd limits");
    return NULL;
  }
  Curve *self = PyMem_Malloc(sizeof *self + (size_t)(2 * terms + threshold_bytes + leaf_bytes + nodes));
  if (!self) return PyErr_NoMemory();
  char *data = (char *)self->numbers;
  self->depth = depth, self->traits = traits, self->trees = (int)trees, self->terms = (int)(terms / size);
  self->doubt = doubt;
  self->coefficients = memcpy(data, coefficients, (size_t)terms);
  self->limits = memcpy(data += terms, limits, (size_t)terms);
  self->thresholds = memcpy(data += terms, thresholds, (size_t)threshold_bytes);
  self->leaves = memcpy(data += threshold_bytes, leaves, (size_t)leaf_bytes);
  self->asked = memcpy(data + leaf_bytes, asked, (size_t)nodes);
  return callable_of(self, CURVE, end_curve, &curve_definition);
}

static int by_distance(const void *one, const void *other) {
  const Found *a = one, *b = other;
  if (a->square != b->square) return a->square < b->square ? -1 : 1;
  return a->at < b->at ? -1 : a->at > b->at;
}

/* The first place whose first number is at least that. */
static Py_ssize_t first_from(const Places *self, double least) {
  Py_ssize_t low = 0, high = self->count;
  while (low < high) {
    const Py_ssize_t middle = (low + high) / 2;
    if (self->places[middle][0] < least) low = middle + 1;
    else high = middle;
  }
  return low;
}

static PyObject *places_around(PyObject *capsule, PyObject *place) {
  const Places *self = PyCapsule_GetPointer(capsule, PLACES);
  double here[MAX_NUMBERS];
  Py_ssize_t numbers = 0, count = 0;
  if (!self || !read_numbers(place, here, &numbers)) return NULL;
  if (numbers != PLACE) {
    PyErr_Format(PyExc_ValueError, "needs %d numbers", (int)PLACE);
    return NULL;
  }
  Found *found = PyMem_Malloc((size_t)(self->count + 1) * sizeof *found);
  if (!found) return PyErr_NoMemory();
  const double reach = sqrt(self->farthest);                            /* places are in order of their first number */
  for (Py_ssize_t i = first_from(self, here[0] - reach); i < self->count; i++) {
    if (self->places[i][0] > here[0] + reach) break;
    double square = 0.0;
    for (int j = 0; j < PLACE; j++) square += (self->places[i][j] - here[j]) * (self->places[i][j] - here[j]);
    if (square < self->farthest) found[count++] = (Found){square, i};
  }
  qsort(found, (size_t)count, sizeof *found, by_distance);
  PyObject *said = PyList_New(0), *judges = PyList_New(0), *both = NULL;
  int good = said && judges;
  for (Py_ssize_t i = 0; good && i < count; i++) {
    const double weight = exponential(-found[i].square / self->reach);
    PyObject *pair = Py_BuildValue("dO", weight, PyList_GetItem(self->said, found[i].at));
    good = pair && !PyList_Append(said, pair);
    Py_XDECREF(pair);
    if (good && i < self->judges) good = !PyList_Append(judges, PyList_GetItem(self->judging, found[i].at));
  }
  PyMem_Free(found);
  if (good) both = PyTuple_Pack(2, said, judges);
  Py_XDECREF(said), Py_XDECREF(judges);
  return both;
}

static void end_places(PyObject *capsule) {
  Places *self = PyCapsule_GetPointer(capsule, PLACES);
  Py_DECREF(self->said), Py_DECREF(self->judging);
  PyMem_Free(self);
}

static PyMethodDef places_definition = {"around", places_around, METH_O,
                                        "around(place) -> ([(weight, dict), ...], [judge, ...])"};

static PyObject *around(PyObject *module, PyObject *arguments) {
  double reach, farthest;
  Py_ssize_t judges, bytes;
  const char *places;
  PyObject *said, *judging;
  if (!PyArg_ParseTuple(arguments, "ddny#O!O!", &reach, &farthest, &judges, &places, &bytes, &PyList_Type, &said,
                        &PyList_Type, &judging))
    return NULL;
  const Py_ssize_t size = (Py_ssize_t)sizeof(double[PLACE]), count = bytes / size;
  if (count * size != bytes || PyList_Size(said) != count || PyList_Size(judging) != count) {
    PyErr_Format(PyExc_ValueError, "%zd bytes are no places of as many lists", bytes);
    return NULL;
  }
  Places *self = PyMem_Malloc(sizeof *self + (size_t)bytes);
  if (!self) return PyErr_NoMemory();
  *self = (Places){reach, farthest, count, judges, said, judging};
  Py_INCREF(said), Py_INCREF(judging);
  memcpy(self->places, places, (size_t)bytes);
  return callable_of(self, PLACES, end_places, &places_definition);
}

static PyMethodDef methods[] = {
    {"curve", curve, METH_VARARGS,
     "curve(doubt, coefficients, limits, depth, traits, asked, thresholds, leaves) -> time_us\n\nDoubles of each term; "
     "of trees, one after another, level by level: which trait each node asks, a byte, above what it goes right, a "
     "double, and what each leaf says."},
    {"around", around, METH_VARARGS,
     "around(reach, farthest, judges, places, said, judging) -> around\n\nOf places in order, five doubles each, and a "
     "dict and a judge of each; squares of distances. Of another place: what is said around, with its weight, and so "
     "many judges of the nearest."},
    {"mean", mean, METH_VARARGS,
     "mean(doubt, weighted, name) -> float\n\nOf (weight, dict) those that know the name, and of nothing as doubtful."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_predict", "Predictions at low host cost.", -1,
                                        methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__predict(void) { return PyModule_Create(&definition); }
