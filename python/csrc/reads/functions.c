/* SPDX-License-Identifier: MIT */
#include "reads/functions.h"

#include <dlfcn.h>
#include <string.h>

/* Of CPython 3.12 and later, which the stable interface does not have; events before it are of
 * functions that come and go. */
enum { MODIFY_CODE = 2 };
typedef int (*function_callback)(int event, PyObject *function, PyObject *value);

uint64_t rpp_function_changes;

static struct {
    bool is_asked, is_proved;
} state;

static int on_function_event(int event, PyObject *function, PyObject *value)
{
    (void)function, (void)value;
    rpp_function_changes += event >= MODIFY_CODE;
    return 0;
}

static bool ask(void)
{
    int (*add)(function_callback callback);
    void *found = dlsym(RTLD_DEFAULT, "PyFunction_AddWatcher");
    if (!found)
        return false;
    memcpy(&add, &found, sizeof found);
    if (add(on_function_event) >= 0)
        return true;
    PyErr_Clear(); /* all of the interpreter's few are taken */
    return false;
}

/* Giving it what it has is told as well. */
static bool tells(PyObject *function, PyObject *name)
{
    uint64_t before = rpp_function_changes;
    PyObject *value = PyObject_GetAttr(function, name);
    bool told =
        value && PyObject_SetAttr(function, name, value) == 0 && rpp_function_changes == before + 1;
    Py_XDECREF(value);
    PyErr_Clear();
    return told;
}

void rpp_functions_watch(PyObject *function, PyObject *const *names, size_t count)
{
    rpp_assert_gil();
    if (!state.is_asked)
        state.is_proved = ask();
    state.is_asked = true;
    for (size_t i = 0; state.is_proved && i < count; i++)
        state.is_proved = tells(function, names[i]);
}

bool rpp_functions_are_watched(void)
{
    rpp_assert_gil();
    return state.is_proved;
}
