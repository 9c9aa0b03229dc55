/* SPDX-License-Identifier: MIT
 *
 * Recording captures, for python/reprise/_capture/recording.py.
 */
#ifndef REPRISE_PYTHON_CAPTURE_RECORDING_H
#define REPRISE_PYTHON_CAPTURE_RECORDING_H

#include "base/python.h"

PyObject *rpp_record_begin(PyObject *self, PyObject *args);
PyObject *rpp_record_moment(PyObject *self, PyObject *args);
PyObject *rpp_record_end(PyObject *self, PyObject *unused);
PyObject *rpp_record_graph(PyObject *self, PyObject *args);

#endif
