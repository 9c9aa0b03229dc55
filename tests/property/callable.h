/* SPDX-License-Identifier: MIT
 *
 * A random program as a callable: each run of it does the program's operations on the streams of
 * the fixture. Which run it is, a rehearsal or the record after it, is counted.
 */
#ifndef TESTS_PROPERTY_CALLABLE_H
#define TESTS_PROPERTY_CALLABLE_H

#include "graph_fixture.h"
#include "property/program.h"

#include <stdatomic.h>

struct subject {
    const struct program *program;
    const struct rpt_fixture *f;
    const CUevent *events;  /* [BLOCKS_MOST] */
    uint64_t alignment;     /* that every block must have */
    int runs;               /* even: rehearses or runs eagerly; odd: records */
    atomic_int host_calls;  /* of host functions, on the device */
    int host_ops, mistakes; /* host functions of the program; allocations that overlapped .. */
    char mistake[160];      /* .. the first of them */
    bool forgets_use, forgets_join; /* the program is wrong on purpose */
};

/* Arguments: in, inout, out. */
rp_status subject_run(struct rp_call *call, void *user, struct rp_error *err);

#endif
