/* SPDX-License-Identifier: MIT
 *
 * The chain: work of every kind of launch that a model has, on arguments and temporary memory that
 * the caller gives.
 *
 *     C = A B            cuBLAS, bfloat16, packed parameters with tensor maps; without it a sum
 *     Y = 2 X + X        two kernels, through a temporary
 *     P, Q = 3, 2 P      a pair with programmatic dependent launch
 *     K                  a launch as clusters: their shape
 *     Z = 5 X            packed parameters, a tensor map of X among them
 *     M = Y, S = 7       a copy and a fill
 *     V += 0.5 X         in place
 */
#ifndef BENCH_CHAIN_CHAIN_H
#define BENCH_CHAIN_CHAIN_H

#include "libraries.h"
#include "reprise.h"

enum chain_arg { A, B, C, X, Y, P, Q, K, Z, M, S, V, CHAIN_ARGS };
enum chain_temp { PRODUCT, WORKSPACE, CHAIN_TEMPS };

struct chain {
    const struct rp_driver *driver;
    struct libraries libraries;
    bool uses_blas;
    CUmodule base, sm90;
    CUfunction scale, add, saxpy, first, second, cluster, tile;
};

struct chain_buffer {
    const char *name;
    uint64_t bytes;
    enum rp_arg_role role;
};
extern const struct chain_buffer chain_args[CHAIN_ARGS];
extern const uint64_t chain_temps[CHAIN_TEMPS]; /* bytes of each */

/* With the device's context current. */
CUresult chain_init(struct chain *chain, const struct rp_driver *driver, const char *blas_file);
void chain_finish(struct chain *chain);

/* Enqueues the work. *out_what names what failed. */
CUresult chain_enqueue(const struct chain *chain, CUstream stream, const uint64_t *args,
                       const uint64_t *temps, const char **out_what);
/* The same as a callable; user is the chain. */
rp_status chain_callable(struct rp_call *call, void *user, struct rp_error *err);

#endif
