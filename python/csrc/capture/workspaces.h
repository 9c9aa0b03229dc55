/* SPDX-License-Identifier: MIT
 *
 * The workspaces of cuBLAS, of which PyTorch keeps one for each handle and stream. A capture has
 * its own: those of its stream are dropped before and behind it. With the GIL.
 */
#ifndef REPRISE_PYTHON_CAPTURE_WORKSPACES_H
#define REPRISE_PYTHON_CAPTURE_WORKSPACES_H

#include "base/python.h"

/* learn_workspaces(path of libtorch_cuda): can PyTorch drop those of one stream? */
PyObject *rpp_learn_workspaces(PyObject *module, PyObject *args);
/* drop_workspaces(stream): those of one stream, where PyTorch can. */
PyObject *rpp_drop_workspaces(PyObject *module, PyObject *args);
/* spare_frees(on): what this thread frees from now on are spares (alloc/spares.h), or no more. */
PyObject *rpp_spare_frees(PyObject *module, PyObject *args);

#endif
