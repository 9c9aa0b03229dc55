/* SPDX-License-Identifier: MIT
 *
 * What public functions refuse before they look at anything: a NULL where the header does not allow
 * it, and to work in a process that was forked from one that had opened a device. A driver's
 * context does not outlive a fork, and locks may be held there by threads that are no more.
 */
#ifndef REPRISE_BASE_REFUSE_H
#define REPRISE_BASE_REFUSE_H

#include "base/status.h"

#include <stdbool.h>

/* A device is opened: this process's children by fork are refused from now on. Any thread. */
void rpi_forbid_forks(void);
/* Is this process such a child? */
bool rpi_is_forked(void);

/* RP_ERROR_INVALID_ARGUMENT: where the process is such a child for that, and else because the
 * argument is NULL. */
rp_status rpi_refuse(struct rp_error *err, const char *function, const char *argument);

#endif
