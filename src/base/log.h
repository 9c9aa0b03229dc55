/* SPDX-License-Identifier: MIT */
#ifndef REPRISE_BASE_LOG_H
#define REPRISE_BASE_LOG_H

#include "reprise.h"

/* Gives a message to the callback of rp_set_log, if one wants this level. Any thread. */
void rpi_log(enum rp_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
