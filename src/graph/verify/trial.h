/* SPDX-License-Identifier: MIT
 *
 * Trying work on arguments of known contents: these are written to one set of buffers or another,
 * the work is done there, and what came out is read back and compared to the bit.
 *
 *     before    contents at the start
 *     changed   inputs are others: the same moved on by 16 bytes, or zeros where that is the same,
 *               so that what takes them for sizes or indices still can
 *     twins     buffers at other addresses, of the same kind of memory, and exactly as aligned as
 *               captures promise
 *
 * A context is current at every call.
 */
#ifndef REPRISE_GRAPH_VERIFY_TRIAL_H
#define REPRISE_GRAPH_VERIFY_TRIAL_H

#include "graph/objects/objects.h"
#include "memory/range/arena.h"

struct rpi_trial_arg {
    uint64_t bytes;
    enum rp_arg_role role;
    unsigned char *before, *changed;
    unsigned char *result, *other; /* what came out, and what is compared with it */
};

struct rpi_trial {
    const struct rp_driver *driver;
    CUstream stream;
    struct rpi_trial_arg *args;
    size_t arg_count;
};

/* Reads the contents of the arguments once the stream has made them; those of address 0 are zeros.
 * All of a trial's calls wait for the stream. */
rp_status rpi_trial_init(struct rpi_trial *trial, const struct rp_driver *driver, CUstream stream,
                         const struct rp_arg *args, size_t arg_count, struct rp_error *err);
void rpi_trial_finish(struct rpi_trial *trial); /* allowed on a zeroed one */

/* Writes `changed` or `before` to the arguments as they stand in `args`. */
rp_status rpi_trial_fill(const struct rpi_trial *trial, const struct rp_arg *args, bool changed,
                         struct rp_error *err);
/* Reads all of them into `other` or `result`. */
rp_status rpi_trial_read(struct rpi_trial *trial, const struct rp_arg *args, bool other,
                         struct rp_error *err);
/* The first argument that is written and differs in the two, and where; false: none does. */
bool rpi_trial_differs(const struct rpi_trial *trial, size_t *out_arg, uint64_t *out_byte);

struct rpi_twins {
    const struct rp_driver *driver;
    struct rp_arg *args; /* as given, but for the addresses */
    CUdeviceptr *memory; /* allocated, of each; 0: none, or it lies in the arena */
    size_t arg_count;
    struct rpi_arena arena; /* for those that are mapped memory */
};

rp_status rpi_twins_init(struct rpi_twins *twins, const struct rp_pool *pool,
                         const struct rp_arg *args, size_t arg_count, struct rp_error *err);
/* No work uses them any more. Allowed on a zeroed one. */
void rpi_twins_finish(struct rpi_twins *twins);

#endif
