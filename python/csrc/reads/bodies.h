/* SPDX-License-Identifier: MIT
 *
 * The dicts behind classes. Python gives views of them, and its audit hooks hear of who looks behind
 * one. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_BODIES_H
#define REPRISE_PYTHON_BODIES_H

#include "base/python.h"

/* dict_of_class(class): the dict behind the view of it; None: it has none. */
PyObject *rpp_dict_of_class(PyObject *module, PyObject *type);
/* body_of(dict of a class): a copy, without what Python itself puts there. */
PyObject *rpp_body_of(PyObject *module, PyObject *names);

#endif
