/* SPDX-License-Identifier: MIT
 *
 * PyTorch's switches (TF32, deterministic algorithms, attention's back ends ..) and how many modes
 * are on its stacks, which every operator goes by. Asked in each call: through the functions of
 * PyTorch that Python's own answer comes from, found by their names, 2 ns each. _reads/switches.py
 * says which, compares the answers with Python's, and names what has to be asked through Python
 * instead. Which modes are on a stack is asked through Python where there are any. Some switches
 * are globals of Python modules, which are looked up.
 *
 * Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_SWITCHES_H
#define REPRISE_PYTHON_SWITCHES_H

#include "base/python.h"

enum { RPP_MOST_SWITCHES = 48, RPP_ORDER_WORDS = 8, RPP_MOST_GLOBALS = 4 };

struct rpp_switches {
    size_t count; /* of the values; another one: they are older than what was learned */
    uint64_t values[RPP_MOST_SWITCHES];
    int32_t order[RPP_ORDER_WORDS];
    PyObject *answers;                   /* of what Python is asked; NULL: nothing was noted */
    PyObject *modes;                     /* which are on the stacks; NULL: none */
    PyObject *globals[RPP_MOST_GLOBALS]; /* of PyTorch's modules; NULL: it is not there */
};

/* Notes how all stand; -1 with an exception set. The switches are zeroed or dropped before. */
int rpp_switches_note(struct rpp_switches *switches);
/* Does each stand where it stood? No exception is set. */
bool rpp_switches_hold(const struct rpp_switches *switches);
void rpp_switches_drop(struct rpp_switches *switches);

/* How the switches are learned, and asked through Python. */
PyObject *rpp_learn_context(PyObject *module, PyObject *args);
PyObject *rpp_learn_switch(PyObject *module, PyObject *args);
PyObject *rpp_forget_switch(PyObject *module, PyObject *unused);
PyObject *rpp_learn_order(PyObject *module, PyObject *order);
PyObject *rpp_ask_switches(PyObject *module, PyObject *functions);
PyObject *rpp_ask_modes(PyObject *module, PyObject *function);
PyObject *rpp_ask_global(PyObject *module, PyObject *args);

#endif
