/* SPDX-License-Identifier: MIT */
#include "reads/switches.h"

#include <dlfcn.h>
#include <string.h>

/* All have the context first, where they take it, or a number; none minds what it does not take. */
typedef uint64_t (*ask_function)(const void *context, int a, int b);
enum { CONTEXT_WORDS = 512 }; /* of 4 bytes, in which the order of back ends is looked for */

static struct {
    size_t count;
    struct {
        ask_function get;
        int a, b;
        uint64_t mask;
        bool is_stack; /* how many modes are on one */
        bool is_free;  /* a function of no context, whose first argument is a */
    } list[RPP_MOST_SWITCHES];
    const char *context; /* PyTorch's, which lives as long as it */
    size_t order_at, order_words;
    PyObject *asked; /* a tuple of functions */
    size_t globals;
    struct {
        PyObject *names, *name; /* a module's dict, and a key in it */
    } global[RPP_MOST_GLOBALS];
    PyObject *modes; /* what tells which modes are on the stacks */
} state;

static uint64_t value_of(size_t i)
{
    const void *first =
        state.list[i].is_free ? (const void *)(uintptr_t)state.list[i].a : state.context;
    return state.list[i].get(first, state.list[i].a, state.list[i].b) & state.list[i].mask;
}

/* Loaded already, or not at all. */
static void *loaded(const char *path)
{
    return dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
}

/* learn_context(path of libtorch_cpu): is PyTorch's context found? */
PyObject *rpp_learn_context(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    const char *path;
    if (!PyArg_ParseTuple(args, "s", &path))
        return NULL;
    void *library = loaded(path), *(*find)(void) = NULL;
    void *found = library ? dlsym(library, "_ZN2at13globalContextEv") : NULL;
    memcpy(&find, &found, sizeof found);
    state.count = state.order_words = 0;
    while (state.globals) {
        state.globals--;
        Py_CLEAR(state.global[state.globals].names);
        Py_CLEAR(state.global[state.globals].name);
    }
    Py_CLEAR(state.asked);
    Py_CLEAR(state.modes);
    state.context = found ? find() : NULL;
    return PyBool_FromLong(state.context != NULL);
}

/* learn_switch(path of the library, symbol, a, b, bytes, is free): its value from now on is asked for; None
 * where the library has no such function. */
PyObject *rpp_learn_switch(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    const char *path, *symbol;
    int a, b, bytes, is_free = 0;
    if (!PyArg_ParseTuple(args, "ssiii|p", &path, &symbol, &a, &b, &bytes, &is_free))
        return NULL;
    void *library = loaded(path), *found = library ? dlsym(library, symbol) : NULL;
    if (!found || !state.context || state.count == RPP_MOST_SWITCHES)
        return Py_NewRef(Py_None);
    size_t i = state.count++;
    memcpy(&state.list[i].get, &found, sizeof found);
    state.list[i].is_stack = false;
    state.list[i].is_free = is_free != 0;
    state.list[i].a = a;
    state.list[i].b = b;
    state.list[i].mask = bytes >= 8 ? UINT64_MAX : (1ULL << (8 * bytes)) - 1;
    return PyLong_FromUnsignedLongLong(value_of(i));
}

/* forget_switch(): the one that was learned last does not say what Python says. */
PyObject *rpp_forget_switch(PyObject *module, PyObject *unused)
{
    rpp_assert_gil();
    (void)module, (void)unused;
    state.count -= state.count > 0;
    return Py_NewRef(Py_None);
}

/* learn_order(list of int): where the context has these, one after the other and nowhere else; is
 * that found? */
PyObject *rpp_learn_order(PyObject *module, PyObject *order)
{
    rpp_assert_gil();
    (void)module;
    int32_t words[RPP_ORDER_WORDS];
    size_t count = PyList_Check(order) ? (size_t)PyList_Size(order) : 0, places = 0;
    if (!state.context || count < 3 || count > RPP_ORDER_WORDS)
        return Py_NewRef(Py_False);
    for (size_t i = 0; i < count; i++)
        words[i] = (int32_t)PyLong_AsLong(PyList_GetItem(order, (Py_ssize_t)i));
    for (size_t at = 0; at + count <= CONTEXT_WORDS; at++)
        if (memcmp(state.context + 4 * at, words, 4 * count) == 0) {
            state.order_at = 4 * at;
            places++;
        }
    state.order_words = places == 1 ? count : 0;
    return PyErr_Occurred() ? NULL : PyBool_FromLong(places == 1);
}

/* ask_modes(function): the switch that was learned last is how many modes are on a stack. The function tells which
 * there are, and is asked where there are any. */
PyObject *rpp_ask_modes(PyObject *module, PyObject *function)
{
    rpp_assert_gil();
    (void)module;
    if (state.count)
        state.list[state.count - 1].is_stack = true;
    PyObject *old = state.modes;
    state.modes = Py_NewRef(function);
    Py_XDECREF(old);
    return Py_NewRef(Py_None);
}

/* ask_switches(functions): a tuple of those that Python has to be asked through. */
PyObject *rpp_ask_switches(PyObject *module, PyObject *functions)
{
    rpp_assert_gil();
    (void)module;
    if (!PyTuple_Check(functions))
        return PyErr_Format(PyExc_TypeError, "ask_switches takes a tuple");
    PyObject *old = state.asked;
    state.asked = Py_NewRef(functions);
    Py_XDECREF(old);
    return Py_NewRef(Py_None);
}

/* ask_global(dict of a module, name): what it has there is a switch. */
PyObject *rpp_ask_global(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    PyObject *names, *name;
    if (!PyArg_ParseTuple(args, "O!U", &PyDict_Type, &names, &name))
        return NULL;
    if (state.globals == RPP_MOST_GLOBALS)
        return PyErr_Format(PyExc_RuntimeError, "more than %d globals", RPP_MOST_GLOBALS);
    state.global[state.globals].names = Py_NewRef(names);
    state.global[state.globals++].name = Py_NewRef(name);
    return Py_NewRef(Py_None);
}

/* Borrowed; NULL: it is not there. */
static PyObject *global_now(size_t i)
{
    return PyDict_GetItem(state.global[i].names, state.global[i].name);
}

static PyObject *answers_now(PyObject *asked)
{
    PyObject *answers = PyTuple_New(asked ? PyTuple_Size(asked) : 0);
    for (Py_ssize_t i = 0; answers && asked && i < PyTuple_Size(asked); i++) {
        PyObject *answer = PyObject_CallObject(PyTuple_GetItem(asked, i), NULL);
        if (!answer)
            Py_CLEAR(answers);
        else
            PyTuple_SetItem(answers, i, answer);
    }
    return answers;
}

static bool answers_hold(PyObject *known)
{
    if (!state.asked)
        return true;
    PyObject *asked = Py_NewRef(state.asked), *held = Py_NewRef(known);
    PyObject *now = answers_now(asked);
    bool same = now && PyObject_RichCompareBool(now, held, Py_EQ) == 1;
    Py_XDECREF(now);
    Py_DECREF(asked);
    Py_DECREF(held);
    PyErr_Clear();
    return same;
}

static bool any_modes(const struct rpp_switches *switches)
{
    for (size_t i = 0; i < state.count; i++)
        if (state.list[i].is_stack && switches->values[i])
            return true;
    return false;
}

/* Which modes are on the stacks, new; NULL with an exception set. */
static PyObject *modes_now(void)
{
    PyObject *modes = Py_NewRef(state.modes), *found = PyObject_CallObject(modes, NULL);
    Py_DECREF(modes);
    return found;
}

static bool modes_hold(PyObject *known)
{
    PyObject *held = Py_NewRef(known), *now = modes_now();
    bool same = now && PyObject_RichCompareBool(now, held, Py_EQ) == 1;
    Py_XDECREF(now);
    Py_DECREF(held);
    PyErr_Clear();
    return same;
}

int rpp_switches_note(struct rpp_switches *switches)
{
    rpp_assert_gil();
    PyObject *asked = Py_XNewRef(state.asked), *answers = answers_now(asked);
    Py_XDECREF(asked);
    if (!answers)
        return -1;
    switches->answers = answers;
    switches->count = state.count;
    for (size_t i = 0; i < state.count; i++)
        switches->values[i] = value_of(i);
    for (size_t i = 0; i < state.globals; i++) {
        Py_XDECREF(switches->globals[i]);
        switches->globals[i] = Py_XNewRef(global_now(i));
    }
    if (state.order_words)
        memcpy(switches->order, state.context + state.order_at, 4 * state.order_words);
    if (!any_modes(switches))
        return 0;
    switches->modes = modes_now();
    return switches->modes ? 0 : -1;
}

bool rpp_switches_hold(const struct rpp_switches *switches)
{
    rpp_assert_gil();
    if (!switches->answers || switches->count != state.count)
        return false;
    for (size_t i = 0; i < state.count; i++)
        if (value_of(i) != switches->values[i])
            return false;
    for (size_t i = 0; i < state.globals; i++)
        if (global_now(i) != switches->globals[i])
            return false;
    if (state.order_words &&
        memcmp(switches->order, state.context + state.order_at, 4 * state.order_words) != 0)
        return false;
    if (any_modes(switches) && (!switches->modes || !modes_hold(switches->modes)))
        return false;
    return !state.asked || PyTuple_Size(state.asked) == 0 || answers_hold(switches->answers);
}

void rpp_switches_drop(struct rpp_switches *switches)
{
    rpp_assert_gil();
    PyObject *answers = switches->answers, *modes = switches->modes;
    PyObject *globals[RPP_MOST_GLOBALS];
    memcpy(globals, switches->globals, sizeof globals);
    *switches = (struct rpp_switches){0};
    for (size_t i = 0; i < RPP_MOST_GLOBALS; i++)
        Py_XDECREF(globals[i]);
    Py_XDECREF(answers);
    Py_XDECREF(modes);
}
