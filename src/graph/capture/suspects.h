/* SPDX-License-Identifier: MIT
 *
 * Suspects: bytes of kernels' parameters that may be padding or numbers computed from scalars.
 *
 * Padding holds what the stack held, which may look like anything: a number, an address, the same
 * as in the run before. What is computed from scalars is the same wherever these are the same. So
 * nothing that a byte looks like counts. One that is not the same in all runs, and that neither an
 * address nor a scalar explains, is
 *
 *     padding    where two runs of the same scalars left other values there
 *     suspect    otherwise: the capture is taken again, with scalars of earlier runs
 *
 * Single bytes are told apart, as a number of one or two bytes may have padding beside it. But the
 * uppermost byte of 4 of a struct is padding where the three below are: no compiler has padding
 * ahead of a number of one byte, and that of an address in a small heap has few values. A number
 * may also be the same in both runs of one attempt and not in those before; hence all runs count.
 * By chance padding follows the scalars; hence several attempts.
 */
#ifndef REPRISE_GRAPH_CAPTURE_SUSPECTS_H
#define REPRISE_GRAPH_CAPTURE_SUSPECTS_H

#include "base/vec.h"
#include "graph/template/scalars.h"

#include <stdbool.h>

/* Of the rehearsal and the record of one attempt, in that order. */
enum { RPI_RUNS = 2, RPI_MOST_ATTEMPTS = 5 };

enum rpi_byte {
    RPI_BYTE_ANY,
    RPI_BYTE_OF_STRUCT,
    RPI_BYTE_EXPLAINED /* an address or a scalar stands there, or nothing */
};

struct rpi_suspect_node {
    const void *kernel;
    size_t first;   /* of its bytes */
    uint32_t bytes; /* of its parameters */
    uint32_t node;
};

struct rpi_suspect_bytes {
    RPI_VEC(unsigned char);
};

/* Of one attempt: the parameters of all kernels. */
struct rpi_suspects {
    struct {
        RPI_VEC(struct rpi_suspect_node);
    } nodes;
    struct rpi_suspect_bytes images[RPI_RUNS];
    struct rpi_suspect_bytes states;      /* enum rpi_byte of each */
    struct rpi_scalars scalars[RPI_RUNS]; /* owned */
    bool complete; /* nothing but suspects stood in the way: all kernels are here */
    bool found;    /* there are some */
};

struct rpi_suspect {
    uint32_t offset; /* of its first byte */
    const struct rpi_suspect_node *node;
};

void rpi_suspects_finish(struct rpi_suspects *suspects); /* allowed on a zeroed one */

/* Takes a copy of both runs' scalars. False: no host memory. */
bool rpi_suspects_init(struct rpi_suspects *suspects, const struct rpi_scalars *before,
                       const struct rpi_scalars *after);

/* Takes a copy of a kernel's parameters in both runs, of which nothing is known. False: no host
 * memory. */
bool rpi_suspects_add(struct rpi_suspects *suspects, const void *kernel, uint32_t node,
                      const unsigned char *before, const unsigned char *after, uint32_t bytes);

/* What those bytes of the latest kernel are. */
void rpi_suspects_mark(struct rpi_suspects *suspects, uint32_t offset, uint32_t bytes,
                       enum rpi_byte state);

/* Is one of these bytes of the latest kernel a suspect? earlier: the attempts before, of which
 * those tell anything that are complete and have the same kernels up to this one. */
bool rpi_suspects_have(const struct rpi_suspects *now, const struct rpi_suspects *earlier,
                       size_t earlier_count, uint32_t offset, uint32_t bytes);

/* All kernels are there. True: some byte is a suspect, the first of which is *out_first. */
bool rpi_suspects_complete(struct rpi_suspects *now, const struct rpi_suspects *earlier,
                           size_t earlier_count, struct rpi_suspect *out_first);

#endif
