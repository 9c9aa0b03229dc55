/* SPDX-License-Identifier: MIT */
#include "reads/code.h"

#include <stdint.h>
#include <string.h>

enum { OPCODES = 256 };
/* What instructions do, as code.py has it, but that NOTHING comes first. */
enum what {
    NOTHING,
    GLOBAL,
    ATTRIBUTE,
    IMPORT,
    CONST,
    CALL,
    MAKE,
    STORE,
    FAST,
    PAIR,
    REBIND,
    JUMP,
    MATCH
};
enum { SETS = 3, NO_VARIABLE = -1, TOP_OF_PAIR = 15 };
/* What getattr's arguments still lack. */
enum lack { LACKS_NOTHING, LACKS_A_NAME, LACKS_ITS_END };

static struct {
    uint8_t what[OPCODES], shifts[OPCODES];
    int extended;
    PyObject *askers, *everything, *makers, *matched; /* NULL: not learned yet */
} known;

static bool take_bytes(PyObject *given, uint8_t *out)
{
    if (!PyBytes_Check(given) || PyBytes_Size(given) != OPCODES) {
        PyErr_SetString(PyExc_ValueError, "learn_operations takes 256 bytes each");
        return false;
    }
    memcpy(out, PyBytes_AsString(given), OPCODES);
    return true;
}

static void keep(PyObject **at, PyObject *object)
{
    PyObject *before = *at;
    *at = Py_NewRef(object);
    Py_XDECREF(before);
}

PyObject *rpp_learn_operations(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    PyObject *what, *shifts, *askers, *everything, *makers, *matched;
    if (!PyArg_ParseTuple(args, "OOiOOOU", &what, &shifts, &known.extended, &askers, &everything,
                          &makers, &matched) ||
        !take_bytes(what, known.what) || !take_bytes(shifts, known.shifts))
        return NULL;
    keep(&known.askers, askers);
    keep(&known.everything, everything);
    keep(&known.makers, makers);
    keep(&known.matched, matched);
    return Py_NewRef(Py_None);
}

/* ---- What a function stored itself --------------------------------------------------------- */

/* What it has stored on the way that each call of it goes, before its first branch: what it reads of
 * that is its own. */
struct straight {
    size_t count, room;
    struct stored {
        int64_t variable, name;
    } * stored;
    int64_t last; /* the variable that is on top */
    bool branches;
};

static bool is_stored(const struct straight *straight, struct stored asked)
{
    for (size_t i = 0; i < straight->count; i++)
        if (straight->stored[i].variable == asked.variable &&
            straight->stored[i].name == asked.name)
            return true;
    return false;
}

static bool add_stored(struct straight *straight, struct stored made)
{
    if (straight->count == straight->room) {
        size_t room = 2 * straight->room + 8;
        struct stored *grown = PyMem_Realloc(straight->stored, room * sizeof *grown);
        if (!grown) {
            PyErr_NoMemory();
            return false;
        }
        straight->stored = grown;
        straight->room = room;
    }
    straight->stored[straight->count++] = made;
    return true;
}

/* Follows an instruction: 1: it reads what was stored; -1 with an exception set. */
static int see(struct straight *straight, enum what what, int64_t argument)
{
    struct stored at = {straight->last, argument};
    bool has_variable = at.variable != NO_VARIABLE, worked = true;
    straight->last = NO_VARIABLE;
    if (what == FAST)
        straight->last = argument;
    else if (what == PAIR)
        straight->last = argument & TOP_OF_PAIR;
    else if (what == STORE && has_variable && !straight->branches)
        worked = add_stored(straight, at);
    else if (what == REBIND)
        straight->count = 0;
    straight->branches = straight->branches || what == JUMP;
    if (!worked)
        return -1;
    return what == ATTRIBUTE && has_variable && is_stored(straight, at);
}

/* ---- Instructions -------------------------------------------------------------------------- */

struct reading {
    PyObject *names, *consts; /* tuples of the code */
    PyObject *sets[SETS];     /* by what reads, from GLOBAL on */
    PyObject *last;           /* the constant that was loaded last, borrowed; NULL: none was */
    enum lack lack;
    bool makes;
    struct straight straight;
};

static bool is_name(PyObject *text)
{
    return PyUnicode_CheckExact(text) && PyUnicode_IsIdentifier(text) == 1;
}

static bool has(PyObject *set, PyObject *name)
{
    return PySet_Contains(set, name) == 1;
}

static bool read_name(struct reading *reading, enum what what, int64_t argument)
{
    PyObject *name = PyTuple_GetItem(reading->names, (Py_ssize_t)argument);
    if (!name || PySet_Add(reading->sets[what - GLOBAL], name) != 0)
        return false;
    reading->makes = reading->makes || has(known.everything, name) ||
                     (reading->lack == LACKS_ITS_END && has(known.makers, name));
    if (has(known.askers, name))
        reading->lack = LACKS_A_NAME;
    return true;
}

/* A pattern has the names ahead of it, and asks the class for as many as it has by their places. */
static bool match(struct reading *reading, int64_t by_place)
{
    PyObject *attributes = reading->sets[ATTRIBUTE - GLOBAL], *names = reading->last;
    Py_ssize_t count = names && PyTuple_Check(names) ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (PySet_Add(attributes, PyTuple_GetItem(names, i)) != 0)
            return false;
    return by_place == 0 || PySet_Add(attributes, known.matched) == 0;
}

static bool load(struct reading *reading, int64_t argument)
{
    reading->last = PyTuple_GetItem(reading->consts, (Py_ssize_t)argument);
    if (reading->last && reading->lack != LACKS_NOTHING && is_name(reading->last))
        reading->lack = LACKS_ITS_END;
    return reading->last != NULL;
}

static bool read_one(struct reading *reading, enum what what, int64_t argument)
{
    int is_own = see(&reading->straight, what, argument);
    if (is_own < 0)
        return false;
    switch (what) {
    case CONST:
        return load(reading, argument);
    case CALL:
        reading->makes = reading->makes || reading->lack == LACKS_A_NAME;
        reading->lack = LACKS_NOTHING;
        return true;
    case MATCH:
        return match(reading, argument);
    case MAKE:
        reading->makes = reading->makes || reading->lack != LACKS_NOTHING;
        return true;
    case GLOBAL:
    case ATTRIBUTE:
    case IMPORT:
        return is_own || read_name(reading, what, argument);
    default:
        return true;
    }
}

static bool read_all(struct reading *reading, PyObject *raw)
{
    const uint8_t *bytes = (const uint8_t *)PyBytes_AsString(raw);
    Py_ssize_t count = PyBytes_Size(raw);
    int64_t extended = 0;
    for (Py_ssize_t at = 0; at + 1 < count; at += 2) {
        int64_t argument = bytes[at + 1] | extended;
        uint8_t code = bytes[at];
        extended = code == known.extended ? argument << 8 : 0;
        if (code == known.extended || known.what[code] == NOTHING)
            continue;
        if (!read_one(reading, (enum what)known.what[code], argument >> known.shifts[code]))
            return false;
    }
    return true;
}

PyObject *rpp_read_instructions(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    struct reading reading = {.straight = {.last = NO_VARIABLE}};
    PyObject *code;
    if (!PyArg_ParseTuple(args, "OO!O!O!", &code, &PySet_Type, &reading.sets[0], &PySet_Type,
                          &reading.sets[1], &PySet_Type, &reading.sets[2]))
        return NULL;
    PyObject *raw = PyObject_GetAttrString(code, "co_code");
    reading.names = raw ? PyObject_GetAttrString(code, "co_names") : NULL;
    reading.consts = reading.names ? PyObject_GetAttrString(code, "co_consts") : NULL;
    bool worked = reading.consts && read_all(&reading, raw);
    PyMem_Free(reading.straight.stored);
    Py_XDECREF(raw);
    Py_XDECREF(reading.names);
    Py_XDECREF(reading.consts);
    return worked ? PyBool_FromLong(reading.makes) : NULL;
}

/* ---- All names ----------------------------------------------------------------------------- */

static bool add_all(PyObject *set, PyObject *names)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++)
        if (PySet_Add(set, PyTuple_GetItem(names, i)) != 0)
            return false;
    return true;
}

/* Code lies in code no deeper than functions do in source. */
static bool add_names(PyObject *set, PyObject *code)
{
    PyObject *names = PyObject_GetAttrString(code, "co_names");
    PyObject *consts = names ? PyObject_GetAttrString(code, "co_consts") : NULL;
    bool worked = consts && add_all(set, names);
    for (Py_ssize_t i = 0; worked && i < PyTuple_Size(consts); i++) {
        PyObject *inner = PyTuple_GetItem(consts, i);
        worked = Py_TYPE(inner) != Py_TYPE(code) || add_names(set, inner);
    }
    Py_XDECREF(names);
    Py_XDECREF(consts);
    return worked;
}

PyObject *rpp_names_in(PyObject *module, PyObject *code)
{
    rpp_assert_gil();
    (void)module;
    PyObject *found = PySet_New(NULL);
    PyObject *names = found && add_names(found, code) ? PyFrozenSet_New(found) : NULL;
    Py_XDECREF(found);
    return names;
}
