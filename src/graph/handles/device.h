/* SPDX-License-Identifier: MIT
 *
 * Opening a device, for those who have chosen its driver.
 */
#ifndef REPRISE_GRAPH_HANDLES_DEVICE_H
#define REPRISE_GRAPH_HANDLES_DEVICE_H

#include "graph/objects/objects.h"

/* A device on this driver; what rp_device_open does once it has chosen one. */
rp_status rpi_device_open_on(const struct rp_driver *driver, int ordinal,
                             struct rp_device **out_device, struct rp_error *err);

#endif
