/* SPDX-License-Identifier: MIT */
#include "error.h"

#include "base/text.h"
#include "output.h"
#include "reprise_tools.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

rp_status cli_error(struct rp_error *err, rp_status status, const char *operation,
                    const char *format, ...)
{
    if (!err)
        return status;
    memset(err, 0, sizeof *err);
    err->status = status;
    snprintf(err->operation, sizeof err->operation, "%s", operation);
    va_list args;
    va_start(args, format);
    rpi_text_line(err->message, sizeof err->message, format, args);
    va_end(args);
    return status;
}

/* What `reprise explain` should be asked about the error: the driver's code, or the status where
 * its explanation says more than the message of any such error does. "": nothing. */
static void choose_query(const struct rp_error *err, char *query, size_t bytes)
{
    snprintf(query, bytes, "%d", err->driver_code);
    if (err->driver_code && rp_explain(query))
        return;
    switch (err->status) {
    case RP_ERROR_OUT_OF_DEVICE_MEMORY:
    case RP_ERROR_NO_DRIVER:
    case RP_ERROR_UNSUPPORTED:
    case RP_ERROR_CAPTURE:
    case RP_ERROR_DIVERGED:
    case RP_ERROR_CONTRACT:
    case RP_ERROR_LIMIT:
    case RP_ERROR_INTERNAL:
        snprintf(query, bytes, "%s", rp_status_name(err->status));
        return;
    default:
        query[0] = '\0';
    }
}

void cli_fail(const char *command, const struct rp_error *err)
{
    char query[64];
    choose_query(err, query, sizeof query);
    cli_say(command, "%s", err->message);
    if (query[0])
        fprintf(stderr, "'reprise explain %s' tells more\n", query);
}
