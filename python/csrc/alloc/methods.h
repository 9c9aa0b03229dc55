/* SPDX-License-Identifier: MIT
 *
 * What PyTorch's C++ asks of its allocator, and a pluggable one has no hook for.
 */
#ifndef REPRISE_PYTHON_METHODS_H
#define REPRISE_PYTHON_METHODS_H

#include "base/python.h"

/* Answers them, once PyTorch's allocator is the one of the hooks. NULL, or what this PyTorch lacks
 * that it is done with: static text. */
PyObject *rpp_answer_methods(PyObject *module, PyObject *unused);

#endif
