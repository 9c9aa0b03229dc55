/* SPDX-License-Identifier: MIT
 *
 * The walker of the rule that shares execs: its lists against its counts and sums.
 */
#include "policy/rent_or_buy.h"

static bool is_exec_valid(const struct rpi_rent *rent, const struct rpi_rent_class *class,
                          const struct rpi_rent_exec *exec)
{
    if (exec->class != class || exec->used > rent->turns)
        return false;
    if (exec->tenant && (exec->tenant->exec != exec || exec->tenant->class != class))
        return false;
    return !exec->owner || exec->owner == exec->tenant;
}

/* Adds the class's execs to the sums. */
static bool is_class_valid(const struct rpi_rent *rent, const struct rpi_rent_class *class,
                           size_t *execs, uint64_t *bytes)
{
    const struct rpi_rent_exec *before = NULL;
    size_t count = 0, owners = 0;
    for (const struct rpi_rent_exec *exec = class->execs; exec; exec = exec->next) {
        if (exec->previous != before || !is_exec_valid(rent, class, exec))
            return false;
        before = exec;
        count++;
        owners += exec->owner != NULL;
    }
    *execs += count;
    *bytes += count * class->bytes;
    return count == class->exec_count && owners == class->owners && owners <= class->graphs &&
           class->graphs;
}

bool rpi_rent_is_valid(const struct rpi_rent *rent)
{
    size_t execs = 0, graphs = 0;
    uint64_t bytes = 0, wanted = 0;
    const struct rpi_rent_class *before = NULL;
    for (const struct rpi_rent_class *class = rent->classes; class; class = class->next) {
        if (class->previous != before || !is_class_valid(rent, class, &execs, &bytes))
            return false;
        before = class;
        graphs += class->graphs;
        wanted += class->graphs * class->bytes;
    }
    return execs == rent->exec_count && bytes == rent->bytes && graphs == rent->graphs &&
           wanted == rent->wanted;
}
