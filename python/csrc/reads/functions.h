/* SPDX-License-Identifier: MIT
 *
 * Has a function got other code or defaults since somebody last looked? The interpreter calls back
 * before it gives one some (CPython 3.12), and all such events are counted: one comparison does for
 * all functions that a callable reads. Elsewhere each is looked at. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_FUNCTIONS_H
#define REPRISE_PYTHON_FUNCTIONS_H

#include "base/python.h"

#include <stdbool.h>
#include <stdint.h>

/* How often any function got other code or defaults. */
extern uint64_t rpp_function_changes;

/* Asks the interpreter to be told, and proves with a function that it tells of each of these
 * attributes; no exception is set. */
void rpp_functions_watch(PyObject *function, PyObject *const *names, size_t count);
/* Was that proved? */
bool rpp_functions_are_watched(void);

#endif
