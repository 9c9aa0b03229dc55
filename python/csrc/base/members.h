/* SPDX-License-Identifier: MIT
 *
 * What types of the extension share whose objects refer to many others: a table says where, for the
 * collector. And the texts that they look attributes up by. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_MEMBERS_H
#define REPRISE_PYTHON_MEMBERS_H

#include "base/python.h"

#include <stddef.h>

/* Where an object of one type refers to others: offsets in its struct. */
struct rpp_members {
    const size_t *offsets;
    size_t count;
};

/* A reference of the object. */
PyObject **rpp_member(PyObject *object, size_t offset);
/* As the type's tp_traverse: the type, and all that is referred to. */
int rpp_members_visit(PyObject *object, const struct rpp_members *members, visitproc visit,
                      void *arg);
void rpp_members_clear(PyObject *object, const struct rpp_members *members);

struct rpp_text_at {
    PyObject **at;
    const char *text;
};
/* Makes each text, once for the process; false with an exception set. */
bool rpp_intern(const struct rpp_text_at *words, size_t count);

#endif
