/* SPDX-License-Identifier: MIT
 *
 * Filling struct rp_error. Each function returns the status, so that failing is one line:
 *
 *     return rpi_error(err, RP_ERROR_FORMAT, "plan", "%s: line %zu: ...", path, line);
 */
#ifndef REPRISE_BASE_STATUS_H
#define REPRISE_BASE_STATUS_H

#include "reprise.h"

/* Writes a fresh error (everything else in it 0). err may be NULL. operation is the function or the
 * step that failed. The message is one line without control characters, whatever texts it quotes; a
 * long one loses its middle. */
rp_status rpi_error(struct rp_error *err, rp_status status, const char *operation,
                    const char *format, ...) __attribute__((format(printf, 4, 5)));

/* RP_ERROR_OUT_OF_HOST_MEMORY for `bytes`. */
rp_status rpi_error_host_memory(struct rp_error *err, const char *operation, size_t bytes);

#endif
