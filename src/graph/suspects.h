/* SPDX-License-Identifier: MIT
 *
 * Suspects: words of kernels' parameters that may be padding or numbers computed from scalars.
 *
 * Padding holds what the stack held, which now and then looks like a number. What is computed from
 * scalars is the same wherever these are the same. So a capture that has suspects is taken again,
 * with scalars of earlier runs: a suspect that does not follow them is padding. By chance padding
 * follows them once; hence up to three attempts.
 */
#ifndef REPRISE_GRAPH_SUSPECTS_H
#define REPRISE_GRAPH_SUSPECTS_H

#include "base/vec.h"
#include "graph/scalars.h"

/* Of the rehearsal and the record of one attempt, in that order. */
enum { RPI_RUNS = 2 };

struct rpi_suspect {
    uint32_t node, offset, bytes; /* 4 or 8 bytes */
    uint64_t words[RPI_RUNS];
};

/* Of one attempt. */
struct rpi_suspects {
    RPI_VEC(struct rpi_suspect);          /* each once */
    struct rpi_scalars scalars[RPI_RUNS]; /* owned */
    bool complete; /* nothing but suspects stood in the way: they are sorted */
};

void rpi_suspects_finish(struct rpi_suspects *suspects); /* allowed on a zeroed one */

/* Takes a copy of both runs' scalars. False: no host memory. */
bool rpi_suspects_init(struct rpi_suspects *suspects, const struct rpi_scalars *before,
                       const struct rpi_scalars *after);

/* No more are added. */
void rpi_suspects_complete(struct rpi_suspects *suspects);

/* Does an earlier attempt prove that the suspect is padding? So it does where it was no suspect
 * there, or held another word in a run of the same scalars. Not where that attempt is incomplete or
 * no run of it had the scalars of one of these. */
bool rpi_suspects_clear(const struct rpi_suspects *earlier, const struct rpi_suspects *now,
                        const struct rpi_suspect *suspect);

#endif
