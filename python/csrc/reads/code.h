/* SPDX-License-Identifier: MIT
 *
 * The names that code objects have: all of them, and those that their instructions read by. Which
 * instructions these are Python tells (_reads/code.py), as that hangs on its version. Guarded by the
 * GIL.
 */
#ifndef REPRISE_PYTHON_CODE_H
#define REPRISE_PYTHON_CODE_H

#include "base/python.h"

/* learn_operations(what, shifts, extended, askers, everything, makers, matched): of each opcode what
 * it does, one more than code.py has it and 0 for nothing, and how far its argument is shifted, as
 * bytes; the opcode that extends arguments; and the names that code.py calls so, sets and one. */
PyObject *rpp_learn_operations(PyObject *module, PyObject *args);
/* read_instructions(code, globals, attributes, imports): adds to these sets the names that the code
 * itself reads by. Does it ask for attributes by names that it makes? */
PyObject *rpp_read_instructions(PyObject *module, PyObject *args);
/* names_in(code): a frozenset of all names of the code, and of code within it. */
PyObject *rpp_names_in(PyObject *module, PyObject *code);

#endif
