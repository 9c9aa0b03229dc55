/* SPDX-License-Identifier: MIT
 *
 * Eager or graph, for the calls of one shape. With the GIL.
 */
#ifndef REPRISE_PYTHON_CHOICE_H
#define REPRISE_PYTHON_CHOICE_H

#include "base/python.h"
#include <reprise_framework.h>

extern PyTypeObject *rpp_choice_type;
/* Makes Judge and Choice and adds them to the module; -1 with an exception set. */
int rpp_add_choice_types(PyObject *module);
/* As rp_way_choice_begin and _end, of a Choice. */
void rpp_choice_begin(PyObject *choice, void *stream, double ahead_us,
                      struct rp_way_turn *out_turn);
void rpp_choice_end(PyObject *choice, const struct rp_way_turn *turn, bool worked);

#endif
