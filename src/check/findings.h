/* SPDX-License-Identifier: MIT
 *
 * What a check found: obstacles, each once for each place in the program, in the order in which
 * they were met.
 */
#ifndef REPRISE_CHECK_FINDINGS_H
#define REPRISE_CHECK_FINDINGS_H

#include "base/vec.h"
#include "driver/driver.h"
#include "reprise_tools.h"

enum { RPI_FRAMES = 8 };

struct rpi_finding {
    const char *kind; /* static */
    char operation[96];
    char what[512], mend[320];
    int driver_code;
    size_t count;
    size_t frames;                 /* innermost first */
    const void *frame[RPI_FRAMES]; /* where each call returns to */
    char where[RPI_FRAMES][160];   /* the same as text */
};

struct rp_findings {
    struct {
        RPI_VEC(struct rpi_finding *);
    } all;
    bool no_memory; /* something could not be noted */
};

/* A stack as the observer takes it down. */
struct rpi_stack {
    size_t count;
    const void *frame[RPI_FRAMES];
};
/* The stack of this thread from `caller` outwards; `caller` alone where there is none to be had. */
void rpi_stack_take(struct rpi_stack *stack, const void *caller);

/* Notes an obstacle, or counts one of the same kind, operation and innermost frame. stack may be
 * NULL. The finding, whose texts may still be set; NULL where it was known, or there is no memory.
 */
struct rpi_finding *rpi_findings_note(struct rp_findings *findings, const char *kind,
                                      const char *operation, const struct rpi_stack *stack);

#endif
