/* SPDX-License-Identifier: MIT
 *
 * The workspaces of cuBLAS, of which PyTorch keeps one for each handle and stream. A capture has
 * its own: those of its stream are dropped before and behind it. Those of other streams stay, as
 * another thread may be about to launch a kernel with their address.
 *
 * From 2.12 on PyTorch drops those of one stream by itself. Before that they are taken out of the
 * maps that it keeps them in, under its lock; 2.9 has none, and guards its own uses as little.
 */
#ifndef REPRISE_PYTHON_CAPTURE_WORKSPACES_H
#define REPRISE_PYTHON_CAPTURE_WORKSPACES_H

#include "base/python.h"

/* learn_workspaces(path of libtorch_cuda, by_maps, have_locks): can those of one stream be dropped,
 * by PyTorch's function or out of its maps? The maps are proved: their links have to agree. With the
 * GIL, which is let go while they are locked. */
PyObject *rpp_learn_workspaces(PyObject *module, PyObject *args);
/* drop_workspaces(stream): frees those of one stream. False: nothing was, as the maps do not look as
 * they are known, or nothing was learned. With the GIL, which is let go. */
PyObject *rpp_drop_workspaces(PyObject *module, PyObject *args);

#endif
