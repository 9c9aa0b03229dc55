/* SPDX-License-Identifier: MIT
 *
 * What a run wants of the device: copies by the library's kernel (rp_device_copy), and a stream for
 * captures beside it.
 */
#ifndef REPRISE_PYTHON_CAPTURE_DEVICE_H
#define REPRISE_PYTHON_CAPTURE_DEVICE_H

#include "base/python.h"

/* side_stream(ordinal): the handle of the device's stream for captures beside those of the library
 * (rp_device_stream). With the GIL. */
PyObject *rpp_side_stream(PyObject *module, PyObject *args);
/* copy(ordinal, stream, copies): enqueues them; copies: a list of (to, from, bytes). With the GIL,
 * which it lets go while the driver is called. */
PyObject *rpp_copy(PyObject *module, PyObject *args);

#endif
