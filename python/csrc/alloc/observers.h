/* SPDX-License-Identifier: MIT
 *
 * Python functions that are told where memory was asked for and there was none, for
 * torch._C._cuda_attach_out_of_memory_observer.
 */
#ifndef REPRISE_PYTHON_ALLOC_OBSERVERS_H
#define REPRISE_PYTHON_ALLOC_OBSERVERS_H

#include "base/python.h"

/* observe_shortage(function): called with (device, bytes asked for, bytes of the device or allowed
 * on it, bytes free), for as long as the process lives. An error of it is written, not raised. */
PyObject *rpp_observe_shortage(PyObject *module, PyObject *function);

#endif
