/* SPDX-License-Identifier: MIT */
#include "base/status.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

const char *rp_version(void)
{
    return TEXT(RP_VERSION_MAJOR) "." TEXT(RP_VERSION_MINOR) "." TEXT(RP_VERSION_PATCH);
}

const char *rp_status_name(rp_status status)
{
    switch (status) {
#define X(name, value, text)                                                                       \
    case name:                                                                                     \
        return #name;
        RP_STATUS_MAP(X)
#undef X
    }
    return "RP_ERROR_?";
}

const char *rp_status_text(rp_status status)
{
    switch (status) {
#define X(name, value, text)                                                                       \
    case name:                                                                                     \
        return text;
        RP_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

rp_status rpi_error(struct rp_error *err, rp_status status, const char *operation,
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

rp_status rpi_error_host_memory(struct rp_error *err, const char *operation, size_t bytes)
{
    rpi_error(err, RP_ERROR_OUT_OF_HOST_MEMORY, operation,
              "%s: host memory for %zu bytes could not be allocated", operation, bytes);
    if (err)
        err->requested = bytes;
    return RP_ERROR_OUT_OF_HOST_MEMORY;
}
