/* SPDX-License-Identifier: MIT
 *
 *     place     a dict and a key, perhaps an index in the tuple there, or a cell and the name of
 * what it holds. It has to hold a float of one sign, which is read (an input), or one object, or a
 * number to the bit counter   a place with a tensor of one float or double on the CPU, where that
 * lies, and the counter that stands for it in the steps steps     each a number: a constant, an
 * input, a counter that was moved on, or an operation on steps before it named     the steps that
 * are scalars of the graph, in its order
 */
#include "capture/scalars.h"

#include "alloc/hooks.h"

#include <float.h>
#include <math.h>
#include <reprise_framework.h>
#include <string.h>

/* As _hyperparameters.py has them. */
enum op { CONSTANT, INPUT, COUNTER, ADD, SUBTRACT, MULTIPLY, DIVIDE, POWER, NEGATE, OPS };
/* Beside its sign, whether a number is larger than 1: kernels may get it as an integer, which is
 * then the same for each number of a kind that is small. */
enum kind { FIXED, POSITIVE, NEGATIVE, LARGE_POSITIVE, LARGE_NEGATIVE };

struct place {
    PyObject *dict, *key,
        *fixed;       /* fixed: what has to be there, of kind FIXED; dict may be a cell */
    Py_ssize_t index; /* in the tuple that is there; -1: it is none */
    enum kind kind;
};

struct counter {
    PyObject *dict, *key, *tensor;
    void *address;
    bool is_double;
    double by;     /* what a replay adds */
    uint32_t lead; /* the counter that steps read for this one, which stands as it does */
};

struct step {
    enum op op;
    uint32_t left, right; /* steps, or an input or a counter */
    double number;        /* of a constant; what was added to a counter so far */
    bool is_checked;      /* may it be no number that work is chosen by? */
};

struct scalars {
    PyObject_HEAD struct place *places;
    struct counter *counters;
    struct step *steps;
    uint32_t *named;
    double *inputs, *now, *results, *told; /* told: what the graph has */
    size_t place_count, counter_count, step_count, named_count;
    bool is_told;
    bool is_special; /* was that so when it was looked at last? */
    bool is_gone;    /* it refers to nothing any more, and fits nothing */
};

PyTypeObject *rpp_scalars_type;

/* ---- Reading ------------------------------------------------------------------------------- */

/* Borrowed; NULL where it is not there. */
static PyObject *value_at(PyObject *dict, PyObject *key, Py_ssize_t index)
{
    PyObject *value = PyDict_GetItemWithError(dict, key);
    if (value && index >= 0)
        value = PyTuple_CheckExact(value) && index < PyTuple_Size(value)
                    ? PyTuple_GetItem(value, index)
                    : NULL;
    return value;
}

/* A reference of the caller's to what a place holds; NULL where that is nothing. */
static PyObject *value_in(const struct place *place)
{
    if (PyDict_Check(place->dict))
        return Py_XNewRef(value_at(place->dict, place->key, place->index));
    return PyObject_GetAttr(place->dict, place->key); /* a cell's contents */
}

static bool is_same_number(PyObject *value, PyObject *fixed)
{
    if (!PyFloat_CheckExact(value) || !PyFloat_CheckExact(fixed))
        return false;
    double a = PyFloat_AsDouble(value), b = PyFloat_AsDouble(fixed);
    return memcmp(&a, &b, sizeof a) == 0;
}

/* Numbers that work is chosen by are captured for themselves. */
static bool is_special(double number)
{
    double size = fabs(number);
    return !isfinite(number) || size == 0 || size == 0.5 || size == 1 || size == 2 || size == 3;
}

static enum kind kind_of(double number)
{
    if (is_special(number))
        return FIXED;
    if (number > 0)
        return number > 1 ? LARGE_POSITIVE : POSITIVE;
    return number < -1 ? LARGE_NEGATIVE : NEGATIVE;
}

static bool is_right(const struct place *place, PyObject *value, double *out_number)
{
    if (place->kind == FIXED)
        return value == place->fixed || is_same_number(value, place->fixed);
    if (!PyFloat_CheckExact(value))
        return false;
    *out_number = PyFloat_AsDouble(value);
    return kind_of(*out_number) == place->kind;
}

/* Does the place hold what it has to? *out_number: of an input. */
static bool look(const struct place *place, double *out_number)
{
    PyObject *value = value_in(place);
    bool right = value && is_right(place, value, out_number);
    Py_XDECREF(value);
    return right;
}

static double count_of(const struct counter *counter)
{
    return counter->is_double ? *(const double *)counter->address
                              : (double)*(const float *)counter->address;
}

/* The counter moved on as its tensor would be. */
static double moved(const struct counter *counter, double by)
{
    return counter->is_double ? count_of(counter) + by
                              : (double)((float)count_of(counter) + (float)by);
}

/* Reads places and counters into `now`, which the results are computed from if it is another. */
static bool read_places(struct scalars *self)
{
    for (size_t i = 0; i < self->place_count; i++)
        if (!look(&self->places[i], &self->now[i]))
            return false;
    for (size_t i = 0; i < self->counter_count; i++) {
        const struct counter *counter = &self->counters[i];
        if (value_at(counter->dict, counter->key, -1) != counter->tensor)
            return false;
        self->now[self->place_count + i] = count_of(counter);
    }
    for (size_t i = 0; i < self->counter_count; i++)
        if (self->now[self->place_count + i] !=
            self->now[self->place_count + self->counters[i].lead])
            return false;
    return true;
}

static double compute(const struct scalars *self, const struct step *step)
{
    const double *results = self->results;
    switch (step->op) {
    case CONSTANT:
        return step->number;
    case INPUT:
        return self->inputs[step->left];
    case COUNTER:
        return moved(&self->counters[step->left], step->number);
    case ADD:
        return results[step->left] + results[step->right];
    case SUBTRACT:
        return results[step->left] - results[step->right];
    case MULTIPLY:
        return results[step->left] * results[step->right];
    case DIVIDE:
        return results[step->left] / results[step->right];
    case POWER:
        return pow(results[step->left], results[step->right]);
    case NEGATE:
        return -results[step->left];
    case OPS:
        break;
    }
    return NAN;
}

/* Would PyTorch refuse it as a float, or choose work by it? */
static bool is_no_plain_float(double number)
{
    return is_special(number) || fabs(number) > (double)FLT_MAX;
}

/* Brings the results up to date. False where the places do not fit, or Python would have raised an
 * error, or given a complex number: a power of what is negative. */
static bool update(struct scalars *self)
{
    size_t count = self->place_count + self->counter_count;
    bool fits = !self->is_gone && read_places(self);
    if (PyErr_Occurred())
        PyErr_Clear(); /* a key that cannot be hashed, or an empty cell */
    self->is_special = false;
    if (!fits)
        return false;
    if (self->is_told && memcmp(self->inputs, self->now, count * sizeof *self->now) == 0)
        return true;
    memcpy(self->inputs, self->now, count * sizeof *self->now);
    self->is_told = false;
    for (size_t i = 0; i < self->step_count; i++) {
        self->results[i] = compute(self, &self->steps[i]);
        self->is_special = self->steps[i].is_checked && is_no_plain_float(self->results[i]);
        if (self->is_special || !isfinite(self->results[i]))
            return false;
    }
    return true;
}

bool rpp_scalars_fit(PyObject *scalars)
{
    rpp_assert_gil();
    return update((struct scalars *)scalars);
}

rp_status rpp_scalars_set(PyObject *scalars, struct rp_graph *graph, struct rp_error *err)
{
    rpp_assert_gil();
    struct scalars *self = (struct scalars *)scalars;
    if (!update(self)) {
        snprintf(err->message, sizeof err->message,
                 "hyperparameters of an optimizer are not what the graph is for");
        return err->status = RP_ERROR_CONTRACT;
    }
    if (self->is_told)
        return RP_OK;
    for (size_t i = 0; i < self->named_count; i++)
        self->told[i] = self->results[self->named[i]];
    rp_status status = rp_graph_set_scalars(graph, self->told, self->named_count, err);
    self->is_told = status == RP_OK;
    return status;
}

void rpp_scalars_advance(PyObject *scalars)
{
    rpp_assert_gil();
    struct scalars *self = (struct scalars *)scalars;
    for (size_t i = 0; i < self->counter_count; i++) {
        struct counter *counter = &self->counters[i];
        double count = moved(counter, counter->by);
        if (counter->is_double)
            *(double *)counter->address = count;
        else
            *(float *)counter->address = (float)count;
    }
}

/* ---- Making -------------------------------------------------------------------------------- */

static bool parse_place(PyObject *tuple, struct place *place)
{
    PyObject *dict, *key, *fixed;
    int kind;
    if (!PyArg_ParseTuple(tuple, "OOniO", &dict, &key, &place->index, &kind, &fixed))
        return false;
    if (!PyDict_Check(dict) && place->index >= 0) {
        PyErr_SetString(PyExc_TypeError, "a cell holds no tuple of scalars");
        return false;
    }
    place->dict = Py_NewRef(dict);
    place->key = Py_NewRef(key);
    place->fixed = Py_NewRef(fixed);
    place->kind = (enum kind)kind;
    return true;
}

static bool parse_counter(PyObject *tuple, struct counter *counter)
{
    PyObject *dict, *key, *tensor;
    unsigned long long address;
    int is_double;
    if (!PyArg_ParseTuple(tuple, "O!OOKpdI", &PyDict_Type, &dict, &key, &tensor, &address,
                          &is_double, &counter->by, &counter->lead))
        return false;
    counter->dict = Py_NewRef(dict);
    counter->key = Py_NewRef(key);
    counter->tensor = Py_NewRef(tensor);
    counter->address = (void *)(uintptr_t)address;
    counter->is_double = is_double;
    return true;
}

/* Of which the operands are there: steps before this one, or an input or a counter. */
static bool is_whole(const struct scalars *self, const struct step *step, size_t number)
{
    switch (step->op) {
    case CONSTANT:
        return true;
    case INPUT:
        return step->left < self->place_count && self->places[step->left].kind != FIXED;
    case COUNTER:
        return step->left < self->counter_count;
    case ADD:
    case SUBTRACT:
    case MULTIPLY:
    case DIVIDE:
    case POWER:
    case NEGATE:
        return step->left < number && step->right < number;
    case OPS:
        break;
    }
    return false;
}

static bool parse_step(const struct scalars *self, PyObject *tuple, size_t number,
                       struct step *step)
{
    int op;
    if (!PyArg_ParseTuple(tuple, "iIId", &op, &step->left, &step->right, &step->number))
        return false;
    step->op = op < 0 || op > OPS ? OPS : (enum op)op;
    if (is_whole(self, step, number))
        return true;
    PyErr_Format(PyExc_ValueError, "step %zu of the scalars is not known", number);
    return false;
}

static bool parse_named(struct scalars *self, PyObject *list)
{
    for (; self->named_count < (size_t)PyTuple_Size(list); self->named_count++) {
        PyObject *item = PyTuple_GetItem(list, (Py_ssize_t)self->named_count);
        unsigned long step = PyLong_AsUnsignedLong(item);
        if (PyErr_Occurred())
            return false;
        if (step >= self->step_count) {
            PyErr_Format(PyExc_ValueError, "there is no step %lu", step);
            return false;
        }
        self->named[self->named_count] = (uint32_t)step;
    }
    return true;
}

static bool parse_checked(struct scalars *self, PyObject *list)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(list); i++) {
        unsigned long step = PyLong_AsUnsignedLong(PyTuple_GetItem(list, i));
        if (PyErr_Occurred())
            return false;
        if (step >= self->step_count) {
            PyErr_Format(PyExc_ValueError, "there is no step %lu", step);
            return false;
        }
        self->steps[step].is_checked = true;
    }
    return true;
}

/* Room for lists of these lengths; false with an exception set. */
static bool reserve(struct scalars *self, size_t places, size_t counters, size_t steps,
                    size_t named)
{
    self->places = PyMem_Calloc(places + 1, sizeof *self->places);
    self->counters = PyMem_Calloc(counters + 1, sizeof *self->counters);
    self->steps = PyMem_Calloc(steps + 1, sizeof *self->steps);
    self->results = PyMem_Calloc(steps + 1, sizeof *self->results);
    self->inputs = PyMem_Calloc(places + counters + 1, sizeof *self->inputs);
    self->now = PyMem_Calloc(places + counters + 1, sizeof *self->now);
    self->named = PyMem_Calloc(named + 1, sizeof *self->named);
    self->told = PyMem_Calloc(named + 1, sizeof *self->told);
    if (self->places && self->counters && self->steps && self->results && self->inputs &&
        self->now && self->named && self->told)
        return true;
    PyErr_NoMemory();
    return false;
}

static bool parse(struct scalars *self, PyObject *places, PyObject *counters, PyObject *steps)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(places); i++, self->place_count++)
        if (!parse_place(PyTuple_GetItem(places, i), &self->places[i]))
            return false;
    for (Py_ssize_t i = 0; i < PyTuple_Size(counters); i++, self->counter_count++)
        if (!parse_counter(PyTuple_GetItem(counters, i), &self->counters[i]))
            return false;
    for (size_t i = 0; i < self->counter_count; i++)
        if (self->counters[i].lead >= self->counter_count) {
            PyErr_Format(PyExc_ValueError, "there is no counter %u", self->counters[i].lead);
            return false;
        }
    for (Py_ssize_t i = 0; i < PyTuple_Size(steps); i++, self->step_count++)
        if (!parse_step(self, PyTuple_GetItem(steps, i), (size_t)i, &self->steps[i]))
            return false;
    return true;
}

static PyObject *scalars_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    PyObject *places, *counters, *steps, *named, *checked = NULL;
    if (!PyArg_ParseTuple(args, "O!O!O!O!|O!", &PyTuple_Type, &places, &PyTuple_Type, &counters,
                          &PyTuple_Type, &steps, &PyTuple_Type, &named, &PyTuple_Type, &checked))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct scalars *self = (struct scalars *)alloc(type, 0);
    if (!self)
        return NULL;
    if (reserve(self, (size_t)PyTuple_Size(places), (size_t)PyTuple_Size(counters),
                (size_t)PyTuple_Size(steps), (size_t)PyTuple_Size(named)) &&
        parse(self, places, counters, steps) && parse_named(self, named) &&
        (!checked || parse_checked(self, checked)))
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static int scalars_traverse(PyObject *object, visitproc visit, void *arg)
{
    const struct scalars *self = (struct scalars *)object;
    Py_VISIT(Py_TYPE(object));
    for (size_t i = 0; i < self->place_count; i++) {
        Py_VISIT(self->places[i].dict);
        Py_VISIT(self->places[i].key);
        Py_VISIT(self->places[i].fixed);
    }
    for (size_t i = 0; i < self->counter_count; i++) {
        Py_VISIT(self->counters[i].dict);
        Py_VISIT(self->counters[i].key);
        Py_VISIT(self->counters[i].tensor);
    }
    return 0;
}

static int scalars_clear(PyObject *object)
{
    struct scalars *self = (struct scalars *)object;
    size_t places = self->place_count, counters = self->counter_count;
    self->place_count = self->counter_count = self->step_count = 0;
    self->is_gone = true;
    for (size_t i = 0; i < places; i++) {
        Py_CLEAR(self->places[i].dict);
        Py_CLEAR(self->places[i].key);
        Py_CLEAR(self->places[i].fixed);
    }
    for (size_t i = 0; i < counters; i++) {
        Py_CLEAR(self->counters[i].dict);
        Py_CLEAR(self->counters[i].key);
        Py_CLEAR(self->counters[i].tensor);
    }
    return 0;
}

static void scalars_dealloc(PyObject *object)
{
    struct scalars *self = (struct scalars *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    scalars_clear(object);
    PyMem_Free(self->places);
    PyMem_Free(self->counters);
    PyMem_Free(self->steps);
    PyMem_Free(self->results);
    PyMem_Free(self->inputs);
    PyMem_Free(self->now);
    PyMem_Free(self->named);
    PyMem_Free(self->told);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *scalars_fit(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(rpp_scalars_fit(object));
}

static PyObject *scalars_special(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(((struct scalars *)object)->is_special);
}

static PyObject *scalars_forget(PyObject *object, PyObject *unused)
{
    (void)unused;
    (void)scalars_clear(object);
    return Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"forget", scalars_forget, METH_NOARGS,
     "Lets go of the places: a graph may live on for what it gave them, which Python's collector "
     "does not see."},
    {"fit", scalars_fit, METH_NOARGS, "Do the places hold what the graph was captured for?"},
    {"special", scalars_special, METH_NOARGS,
     "Was a step, of those that are checked, a number that work may be chosen by when it was "
     "looked "
     "at last?"},
    {NULL, NULL, 0, NULL},
};

int rpp_add_scalars_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)scalars_new},
        {Py_tp_dealloc, (void *)scalars_dealloc},
        {Py_tp_traverse, (void *)scalars_traverse},
        {Py_tp_clear, (void *)scalars_clear},
        {Py_tp_methods, methods},
        {Py_tp_doc, "Scalars(((dict, key, index, kind, fixed), ...),\n"
                    "        ((dict, key, tensor, address, is double, by, lead), ...),\n"
                    "        ((op, left, right, number), ...), (step, ...), (step, ...)):\n"
                    "what replays tell a graph of numbers that a program changes; the last: steps\n"
                    "that are to be no numbers that work may be chosen by."},
        {0, NULL},
    };
    static PyType_Spec spec = {"reprise._C.Scalars", sizeof(struct scalars), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
    rpp_scalars_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return rpp_scalars_type ? PyModule_AddType(module, rpp_scalars_type) : -1;
}

int rpp_kind_of(double number)
{
    return (int)kind_of(number);
}

PyObject *rpp_scalar_kind(PyObject *module, PyObject *number)
{
    rpp_assert_gil();
    (void)module;
    double value = PyFloat_AsDouble(number);
    if (PyErr_Occurred())
        return NULL;
    return PyLong_FromLong(kind_of(value));
}

PyObject *rpp_call_scalars(PyObject *module, PyObject *values)
{
    rpp_assert_gil();
    (void)module;
    if (!PyTuple_Check(values))
        return PyErr_Format(PyExc_TypeError, "call_scalars takes a tuple of floats");
    for (Py_ssize_t i = 0; i < PyTuple_Size(values); i++) {
        struct rp_error err = {0};
        uint64_t bits;
        double value = PyFloat_AsDouble(PyTuple_GetItem(values, i));
        if (PyErr_Occurred())
            return NULL;
        memcpy(&bits, &value, sizeof bits);
        rp_status status = rpp_hook_step(RPP_CALL_SCALAR, bits, &err);
        if (status != RP_OK)
            return rpp_set_error(status, &err);
    }
    return Py_NewRef(Py_None);
}
