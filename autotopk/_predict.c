/* What a prediction asks most often, with as little host time as Python allows.

   curve: the time of a configuration, by coefficients, trees and what is said of it around. around: what is said at
   points there, by nearness. Each has a twin in Python that does the same: curve.py and nearby.py say what and why.
   Python's stable ABI only. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NUMBERS = 255, PLACE = 5, BESIDE = 10, BANDS = 32, FEW = 512 };

typedef struct {
  uint8_t trait, most;                                                  /* which it asks; the last bin that goes left */
} Node;

typedef struct {
  int depth, traits, edges, trees, terms;
  double unit;                                                          /* of the leaves */
  const double *coefficients, *limits;                                  /* of each term */
  const double *thresholds;                                             /* between bins of each trait, then infinite */
  const int16_t *leaves;
  const Node *nodes;
  double numbers[];                                                     /* what these point to */
} Curve;

typedef struct {
  double square;
  Py_ssize_t at;
} Found;

typedef struct {
  double where[PLACE];
  Py_ssize_t at;                                                        /* among those that were given */
} Place;

typedef struct {
  Py_ssize_t name;
  double number;
} Said;

typedef struct {
  double reach, farthest, doubt;                                        /* of two squares */
  Py_ssize_t count, judges, names;
  PyObject *numbers, *judging;                                          /* a dict of names, a list of judges */
  Said *said;                                                           /* of places, one after another */
  Py_ssize_t *begin;                                                    /* of each place in these, and their end */
  Place *places;                                                        /* in order of the bands of their first two */
  Py_ssize_t band[BANDS][BANDS + 1];                                    /* where each begins, and the last ones end */
} Places;

typedef struct {
  double total, weight;
} Mean;

typedef struct {
  const Places *places;
  PyObject *owner;                                                      /* of these */
  Mean *of;                                                             /* each name; NULL until one is asked for */
  double here[PLACE];
} Means;

static const double NEAR = 1.0;                                         /* square to where judges are looked for first */
static const char *CURVE = "autotopk._predict.Curve", *PLACES = "autotopk._predict.Places";
static const char *MEANS = "autotopk._predict.Means";

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

/* Walks down so many trees of as many nodes side by side: what one node asks is a wait for memory, and those of other
   trees do not depend on it. */
static inline void walk(const Node *nodes, int depth, const uint8_t *bins, int count, int *at) {
  const int inner = (1 << depth) - 1;
  for (int level = 0; level < depth; level++)
    for (int i = 0; i < count; i++) {
      const Node node = nodes[i * inner + at[i]];
      at[i] = 2 * at[i] + 1 + (bins[node.trait] > node.most);
    }
}

/* Numbers are looked up among the thresholds once for all trees, so that one of these is two lines of memory. */
static double forest_value(const Curve *self, const double *numbers) {
  const int depth = self->depth, inner = (1 << depth) - 1;
  uint8_t bins[MAX_NUMBERS];
  long long total = 0;
  for (int trait = 0; trait < self->traits; trait++) {
    const double *thresholds = self->thresholds + trait * self->edges;
    int bin = 0;
    for (int i = 0; i < self->edges; i++) bin += numbers[trait] > thresholds[i];
    bins[trait] = (uint8_t)bin;
  }
  for (int tree = 0; tree < self->trees; tree += BESIDE) {
    const int count = self->trees - tree < BESIDE ? self->trees - tree : BESIDE;
    const Node *nodes = self->nodes + (size_t)tree * inner;
    const int16_t *leaves = self->leaves + ((size_t)tree << depth);
    int at[BESIDE] = {0};
    if (count == BESIDE && depth == 5) walk(nodes, 5, bins, BESIDE, at); /* numbers that the compiler knows */
    else walk(nodes, depth, bins, count, at);
    for (int i = 0; i < count; i++) total += leaves[(i << depth) + at[i] - inner];
  }
  return self->unit * (double)total;
}

static int by_distance(const void *one, const void *other) {
  const Found *a = one, *b = other;
  if (a->square != b->square) return a->square < b->square ? -1 : 1;
  return a->at < b->at ? -1 : a->at > b->at;
}

/* Which band a number is in: of 1, but for the first and the last, which have all that is beyond. */
static int band_of(double number) { return !(number >= 1.0) ? 0 : number >= BANDS - 1 ? BANDS - 1 : (int)number; }

/* All places nearer than the root of a square, in any order, to be freed; NULL where memory is short. */
static Found *found_within(const Places *self, const double *here, double farthest, Py_ssize_t *count) {
  const double reach = sqrt(farthest), low = here[0] - reach, high = here[0] + reach;
  const double wide = reach * (1.0 + 1e-9);                             /* whatever squares are rounded to */
  const int left = band_of(here[1] - wide), right = band_of(here[1] + wide), last = band_of(high);
  Py_ssize_t room = FEW;
  Found *found = PyMem_Malloc((size_t)room * sizeof *found);
  *count = 0;
  for (int band = band_of(low); found && band <= last; band++) {
    const Place *end = self->places + self->band[band][right + 1];
    for (const Place *one = self->places + self->band[band][left]; one < end; one++) {
      double square = 0.0;
      for (int j = 0; j < PLACE; j++) square += (one->where[j] - here[j]) * (one->where[j] - here[j]);
      if (square >= farthest || one->where[0] < low || one->where[0] >= high) continue;
      if (*count == room) {
        Found *more = PyMem_Realloc(found, (size_t)(room *= 2) * sizeof *found);
        if (!more) PyMem_Free(found);
        if (!(found = more)) return NULL;
      }
      found[(*count)++] = (Found){square, one->at};
    }
  }
  return found;
}

/* The sums of means, by nearness, so that they are the same on every run; 0 with an error set. Of thousands of names few
   are asked for, so they stay sums; and of many places nothing is asked but who is the nearest. */
static int add_up(Means *means) {
  const Places *its = means->places;
  Py_ssize_t count;
  Found *all = found_within(its, means->here, its->farthest, &count);
  if (all) means->of = PyMem_Calloc((size_t)its->names + 1, sizeof *means->of);
  if (!means->of) {
    PyMem_Free(all);
    PyErr_NoMemory();
    return 0;
  }
  qsort(all, (size_t)count, sizeof *all, by_distance);
  for (Py_ssize_t i = 0; i < count; i++) {
    const Found *found = all + i;
    const double weight = exponential(-found->square / its->reach);
    for (Py_ssize_t j = its->begin[found->at]; j < its->begin[found->at + 1]; j++) {
      Mean *mean = means->of + its->said[j].name;
      mean->total += weight * its->said[j].number;
      mean->weight += weight;
    }
  }
  PyMem_Free(all);
  return 1;
}

/* What a mapping or a capsule of means says of a name, 0 where that is nothing; an error may be set. */
static double told(PyObject *from, PyObject *name) {
  if (PyDict_Check(from)) {
    PyObject *said = PyDict_GetItemWithError(from, name);
    return said ? PyFloat_AsDouble(said) : 0.0;
  }
  if (!PyCapsule_IsValid(from, MEANS)) {
    PyErr_SetString(PyExc_TypeError, "needs a dict, or what around says");
    return 0.0;
  }
  Means *means = PyCapsule_GetPointer(from, MEANS);
  if (!means->of && !add_up(means)) return 0.0;
  PyObject *number = PyDict_GetItemWithError(means->places->numbers, name);
  if (!number) return 0.0;
  const Mean *mean = means->of + PyLong_AsSsize_t(number);
  return mean->total / (mean->weight + means->places->doubt);
}

static PyObject *said_of(PyObject *module, PyObject *const *given, Py_ssize_t count) {
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "needs what was said, and a name");
    return NULL;
  }
  const double said = told(given[0], given[1]);
  return PyErr_Occurred() ? NULL : PyFloat_FromDouble(said);
}

static PyObject *curve_time_us(PyObject *capsule, PyObject *const *given, Py_ssize_t count) {
  const Curve *self = PyCapsule_GetPointer(capsule, CURVE);
  double numbers[MAX_NUMBERS], total = 0.0, beside;
  Py_ssize_t sizes = 0, traits;
  if (!self) return NULL;
  if (count != 6) {
    PyErr_SetString(PyExc_TypeError, "needs sizes, a number, what is said, a name, knobs and terms");
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
  if (!PyErr_Occurred()) beside += told(given[2], given[3]);
  if (PyErr_Occurred()) return NULL;
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
  int depth, traits;
  double unit;
  const char *coefficients, *limits, *thresholds, *nodes, *leaves;
  Py_ssize_t terms, limited, threshold_bytes, node_bytes, leaf_bytes;
  if (!PyArg_ParseTuple(arguments, "y#y#iidy#y#y#", &coefficients, &terms, &limits, &limited, &depth, &traits, &unit,
                        &thresholds, &threshold_bytes, &nodes, &node_bytes, &leaves, &leaf_bytes))
    return NULL;
  const Py_ssize_t size = (Py_ssize_t)sizeof(double), row = traits > 0 ? traits * size : 1;
  const Py_ssize_t inner = depth > 0 && depth < 16 ? ((Py_ssize_t)1 << depth) - 1 : 1;
  const Py_ssize_t trees = node_bytes / inner / (Py_ssize_t)sizeof(Node), edges = threshold_bytes / row;
  int fits = depth > 0 && depth < 16 && traits >= 0 && traits <= MAX_NUMBERS && edges <= UINT8_MAX &&
             (!trees || edges * row == threshold_bytes) && trees * inner * (Py_ssize_t)sizeof(Node) == node_bytes &&
             leaf_bytes == trees * (inner + 1) * (Py_ssize_t)sizeof(int16_t) && terms == limited && terms % size == 0 &&
             terms <= MAX_NUMBERS * size;
  for (Py_ssize_t i = 0; fits && i < trees * inner; i++) fits = (uint8_t)nodes[i * (Py_ssize_t)sizeof(Node)] < traits;
  if (!fits) {
    PyErr_SetString(PyExc_ValueError, "no trees of such a depth, or traits that they do not have, or odd limits");
    return NULL;
  }
  Curve *self = PyMem_Malloc(sizeof *self + (size_t)(2 * terms + threshold_bytes + leaf_bytes + node_bytes));
  if (!self) return PyErr_NoMemory();
  char *data = (char *)self->numbers;
  self->depth = depth, self->traits = traits, self->edges = (int)edges, self->trees = (int)trees, self->unit = unit;
  self->terms = (int)(terms / size);
  self->coefficients = memcpy(data, coefficients, (size_t)terms);
  self->limits = memcpy(data += terms, limits, (size_t)terms);
  self->thresholds = memcpy(data += terms, thresholds, (size_t)threshold_bytes);
  self->leaves = memcpy(data += threshold_bytes, leaves, (size_t)leaf_bytes);
  self->nodes = memcpy(data + leaf_bytes, nodes, (size_t)node_bytes);
  return callable_of(self, CURVE, end_curve, &curve_definition);
}

static void end_means(PyObject *capsule) {
  Means *means = PyCapsule_GetPointer(capsule, MEANS);
  Py_DECREF(means->owner);
  PyMem_Free(means->of);
  PyMem_Free(means);
}

/* Puts the nearest first, as many as there are judges; returns how many that is. */
static Py_ssize_t nearest_first(Found *found, Py_ssize_t count, Py_ssize_t judges) {
  Py_ssize_t kept = 0;
  for (Py_ssize_t i = 0; i < count; i++) {
    const Found one = found[i];
    if (kept == judges && (kept == 0 || by_distance(&one, found + kept - 1) >= 0)) continue;
    Py_ssize_t to = kept < judges ? kept++ : kept - 1;
    found[i] = found[to];                                               /* itself, or the farthest of those kept */
    for (; to > 0 && by_distance(&one, found + to - 1) < 0; to--) found[to] = found[to - 1];
    found[to] = one;
  }
  return kept;
}

static PyObject *places_around(PyObject *capsule, PyObject *place) {
  const Places *self = PyCapsule_GetPointer(capsule, PLACES);
  double here[MAX_NUMBERS];
  Py_ssize_t numbers = 0;
  if (!self || !read_numbers(place, here, &numbers)) return NULL;
  if (numbers != PLACE) {
    PyErr_Format(PyExc_ValueError, "needs %d numbers", (int)PLACE);
    return NULL;
  }
  Py_ssize_t count;
  Found *found = found_within(self, here, NEAR < self->farthest ? NEAR : self->farthest, &count);
  if (found && count < self->judges && NEAR < self->farthest) {
    PyMem_Free(found);
    found = found_within(self, here, self->farthest, &count);
  }
  Means *means = found ? PyMem_Malloc(sizeof *means) : NULL;
  if (!means) {
    PyMem_Free(found);
    return PyErr_NoMemory();
  }
  *means = (Means){self, capsule, NULL, {0}};
  memcpy(means->here, here, sizeof means->here);
  const Py_ssize_t near = nearest_first(found, count, self->judges);
  PyObject *said = PyCapsule_New(means, MEANS, end_means), *judges = PyList_New(0), *both = NULL;
  if (said) Py_INCREF(capsule);
  else PyMem_Free(means);
  int good = said && judges;
  for (Py_ssize_t i = 0; good && i < near; i++)
    good = !PyList_Append(judges, PyList_GetItem(self->judging, found[i].at));
  PyMem_Free(found);
  if (good) both = PyTuple_Pack(2, said, judges);
  Py_XDECREF(said), Py_XDECREF(judges);
  return both;
}

static void free_places(Places *self) {
  Py_XDECREF(self->numbers), Py_XDECREF(self->judging);
  PyMem_Free(self->said), PyMem_Free(self->begin), PyMem_Free(self->places);
  PyMem_Free(self);
}

static void end_places(PyObject *capsule) { free_places(PyCapsule_GetPointer(capsule, PLACES)); }

static PyMethodDef places_definition = {"around", places_around, METH_O,
                                        "around(place) -> (what is said, [judge, ...])"};

/* The number of a name, a new one for one that was not met before; -1 with an error set. */
static Py_ssize_t number_of(Places *self, PyObject *name) {
  PyObject *known = PyDict_GetItemWithError(self->numbers, name);
  if (known) return PyLong_AsSsize_t(known);
  PyObject *made = PyErr_Occurred() ? NULL : PyLong_FromSsize_t(self->names);
  const int good = made && !PyDict_SetItem(self->numbers, name, made);
  Py_XDECREF(made);
  return good ? self->names++ : -1;
}

/* Fills what is said at places from their dicts; 0 with an error set. */
static int read_said(Places *self, PyObject *dicts) {
  Py_ssize_t total = 0, at = 0;
  for (Py_ssize_t i = 0; i < self->count; i++) {
    PyObject *one = PyList_GetItem(dicts, i);
    if (!PyDict_Check(one)) {
      PyErr_SetString(PyExc_TypeError, "needs a dict for each place");
      return 0;
    }
    total += PyDict_Size(one);
  }
  self->said = PyMem_Malloc((size_t)(total + 1) * sizeof *self->said);
  self->begin = PyMem_Malloc((size_t)(self->count + 1) * sizeof *self->begin);
  int good = self->said && self->begin;
  if (!good && !PyErr_Occurred()) PyErr_NoMemory();
  for (Py_ssize_t i = 0; good && i < self->count; i++) {
    PyObject *name, *said;
    Py_ssize_t next = 0;
    self->begin[i] = at;
    while (good && PyDict_Next(PyList_GetItem(dicts, i), &next, &name, &said)) {
      self->said[at] = (Said){number_of(self, name), PyFloat_AsDouble(said)};
      good = !PyErr_Occurred();
      at++;
    }
  }
  if (good) self->begin[self->count] = at;
  return good;
}

/* Keeps places by their bands, in order within each. */
static void sort_into_bands(Places *self, const char *places) {
  Py_ssize_t begin = 0, next[BANDS][BANDS] = {{0}};
  Place one;
  for (one.at = 0; one.at < self->count; one.at++) {
    memcpy(one.where, places + one.at * (Py_ssize_t)sizeof one.where, sizeof one.where);
    next[band_of(one.where[0])][band_of(one.where[1])]++;
  }
  for (int row = 0; row < BANDS; row++) {
    for (int col = 0; col < BANDS; col++) {
      const Py_ssize_t count = next[row][col];
      self->band[row][col] = next[row][col] = begin;
      begin += count;
    }
    self->band[row][BANDS] = begin;
  }
  for (one.at = 0; one.at < self->count; one.at++) {
    memcpy(one.where, places + one.at * (Py_ssize_t)sizeof one.where, sizeof one.where);
    self->places[next[band_of(one.where[0])][band_of(one.where[1])]++] = one;
  }
}

static PyObject *around(PyObject *module, PyObject *arguments) {
  double reach, farthest, doubt;
  Py_ssize_t judges, bytes;
  const char *places;
  PyObject *said, *judging;
  if (!PyArg_ParseTuple(arguments, "dddny#O!O!", &reach, &farthest, &doubt, &judges, &places, &bytes, &PyList_Type,
                        &said, &PyList_Type, &judging))
    return NULL;
  const Py_ssize_t size = (Py_ssize_t)sizeof(double[PLACE]), count = bytes / size;
  if (count * size != bytes || PyList_Size(said) != count || PyList_Size(judging) != count) {
    PyErr_Format(PyExc_ValueError, "%zd bytes are no places of as many lists", bytes);
    return NULL;
  }
  Places *self = PyMem_Malloc(sizeof *self);
  if (!self) return PyErr_NoMemory();
  *self = (Places){reach, farthest, doubt, count, judges, 0, PyDict_New(), judging, NULL, NULL, NULL, {{0}}};
  Py_INCREF(judging);
  self->places = PyMem_Malloc((size_t)(count + 1) * sizeof *self->places);
  if (!self->places) PyErr_NoMemory();
  if (!self->numbers || !self->places || !read_said(self, said)) {
    free_places(self);
    return NULL;
  }
  sort_into_bands(self, places);
  return callable_of(self, PLACES, end_places, &places_definition);
}

static PyMethodDef methods[] = {
    {"curve", curve, METH_VARARGS,
     "curve(coefficients, limits, depth, traits, unit, thresholds, nodes, leaves) -> time_us\n\nDoubles of each term; "
     "of each trait as many thresholds, doubles; of trees, one after another, level by level: which trait each node "
     "asks and the last bin that goes left, two bytes, and what each leaf says in units, 16 bits."},
    {"around", around, METH_VARARGS,
     "around(reach, farthest, doubt, judges, places, said, judging) -> around\n\nOf places in order, five doubles each, "
     "and a dict and a judge of each; squares of distances. Of another place: what is said around, a mean of each name "
     "and of nothing as doubtful, and so many judges of the nearest."},
    {"said_of", (PyCFunction)(void (*)(void))said_of, METH_FASTCALL,
     "said_of(what around or a dict says, name) -> float\n\n0 of what nothing is said of."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_predict", "Predictions at low host cost.", -1,
                                        methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__predict(void) { return PyModule_Create(&definition); }
