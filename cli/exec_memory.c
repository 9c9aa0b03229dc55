/* SPDX-License-Identifier: MIT */
#include "exec_memory.h"

#include "output.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* Fewer steps than this tell the share to no better than an eighth. */
enum { ENOUGH_STEPS = 8 };

bool cli_exec_error(const struct rp_device_exec_info *execs, double *out_share)
{
    if (!execs->measured_bytes || execs->measured_bytes < ENOUGH_STEPS * execs->measured_step_bytes)
        return false;
    *out_share = (double)execs->most_bytes / (double)execs->measured_bytes - 1;
    return true;
}

void cli_exec_describe(const struct rp_device_exec_info *execs, char *text, size_t bytes)
{
    double share = 0, seen = cli_mib(execs->measured_bytes);
    double step = cli_mib(execs->measured_step_bytes);
    if (!execs->measured_bytes)
        snprintf(text, bytes,
                 "The device's free memory did not fall while they were made: nothing to hold the "
                 "estimate against.");
    else if (!cli_exec_error(execs, &share))
        snprintf(text, bytes,
                 "The device's free memory fell by %.1f MiB while they were made, by %.1f at a "
                 "time: too little to judge the estimate.",
                 seen, step);
    else
        snprintf(text, bytes,
                 "The device's free memory fell by %.1f MiB while they were made, by %.1f at a "
                 "time: the estimate of %.1f is %.0f %% too %s, if no other program took any.",
                 seen, step, cli_mib(execs->most_bytes), fabs(share) * 100,
                 share < 0 ? "low" : "high");
}

void cli_exec_json(const struct rp_device_exec_info *execs, const char *prefix)
{
    double share;
    printf(",\"%smost_bytes\":%" PRIu64 ",\"%smeasured_bytes\":%" PRIu64
           ",\"%smeasured_step_bytes\":%" PRIu64,
           prefix, execs->most_bytes, prefix, execs->measured_bytes, prefix,
           execs->measured_step_bytes);
    if (cli_exec_error(execs, &share))
        printf(",\"%sestimate_error\":%.4f", prefix, share);
    else
        printf(",\"%sestimate_error\":null", prefix);
}
