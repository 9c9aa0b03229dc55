/* SPDX-License-Identifier: MIT
 *
 * What executable graphs were estimated to take of the device's memory, beside what was seen. A
 * driver takes memory in steps, and first uses what it has in hand: only where many steps were
 * taken can the two be compared. What other programs take of the device meanwhile counts too.
 */
#ifndef REPRISE_CLI_EXEC_MEMORY_H
#define REPRISE_CLI_EXEC_MEMORY_H

#include "reprise.h"

#include <stdbool.h>

/* By what share of the memory seen the estimate is too high, negative: too low; false: too little
 * was seen to tell. */
bool cli_exec_error(const struct rp_device_exec_info *execs, double *out_share);

/* The same as a sentence, or why there is none, into text. */
void cli_exec_describe(const struct rp_device_exec_info *execs, char *text, size_t bytes);

/* ,"most_bytes":...,"measured_bytes":...,"measured_step_bytes":...,"estimate_error":..., each name
 * behind the prefix, on standard output; the error is null where there is none. */
void cli_exec_json(const struct rp_device_exec_info *execs, const char *prefix);

#endif
