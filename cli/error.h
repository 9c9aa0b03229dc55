/* SPDX-License-Identifier: MIT
 *
 * Errors that commands find themselves, in the library's own form, and how all are told.
 */
#ifndef REPRISE_CLI_ERROR_H
#define REPRISE_CLI_ERROR_H

#include "reprise.h"

/* Fills err, which may be NULL, and returns status. */
rp_status cli_error(struct rp_error *err, rp_status status, const char *operation,
                    const char *format, ...) __attribute__((format(printf, 4, 5)));

/* "reprise COMMAND: message" on standard error, and a line that says what explains it, where
 * something does. */
void cli_fail(const char *command, const struct rp_error *err);

#endif
