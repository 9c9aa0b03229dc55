/* SPDX-License-Identifier: MIT
 *
 * A device's context: making it current, and asking whether a stream is of it.
 */
#ifndef REPRISE_GRAPH_OBJECTS_DEVICE_CONTEXT_H
#define REPRISE_GRAPH_OBJECTS_DEVICE_CONTEXT_H

#include "graph/objects/objects.h"

/* Mostly the context is current already, and asking costs less than a push and a pop. *out_pushed,
 * false before, is set where it has to be popped. */
rp_status rpi_device_enter(struct rp_device *device, bool *out_pushed, struct rp_error *err);

/* RP_ERROR_INVALID_ARGUMENT, said to be `function`'s, for a stream of another device. The device's
 * context is current. */
rp_status rpi_device_check_stream(const struct rp_device *device, CUstream stream,
                                  const char *function, struct rp_error *err);

/* As rp_device_push, for a destroy: asks again when it fails, and false is no reason not to go on,
 * only not to pop. */
bool rpi_device_push_to_release(struct rp_device *device);

#endif
