/* SPDX-License-Identifier: MIT
 *
 * Host time of one replay of a chain of kernels whose arguments are all at other addresses than in
 * the call before, from the call to its return, the device idle before it:
 *
 *     bound    rp_graph_replay, told to bind all arguments (RP_BIND_ALWAYS)
 *     chosen   rp_graph_replay as it is, once it has chosen between binding and copying
 *     bare     cuGraphExecKernelNodeSetParams for each node, cuGraphLaunch: no checks at all
 *     copies   a copy into a fixed buffer for each argument, cuGraphLaunch, a copy out for each
 *
 * Kernel j writes argument j mod A from argument (j + 1) mod A, all in and out. The four take
 * turns, call by call. Beside the host time stands the time until the device is done.
 */
#ifndef REPRISE_CLI_BENCH_CHAIN_H
#define REPRISE_CLI_BENCH_CHAIN_H

#include "reprise.h"

enum { BENCH_CHAINS = 5 };
enum bench_chain_way { BENCH_BOUND, BENCH_CHOSEN, BENCH_BARE, BENCH_COPIES, BENCH_CHAIN_WAYS };

struct bench_chain {
    size_t kernels, args;
    size_t bound_args, copied_args;   /* in the last replay, as chosen */
    size_t chosen_after;              /* replays until that was so; 0: from the first */
    double patched;                   /* nodes changed in a replay that binds all */
    double us[BENCH_CHAIN_WAYS];      /* medians of the host's time */
    double done_us[BENCH_CHAIN_WAYS]; /* until the device is done */
};

/* Fills out_chains with chains of 1 to 1000 kernels. */
rp_status bench_chain_run(struct rp_device *device, size_t calls,
                          struct bench_chain out_chains[BENCH_CHAINS], struct rp_error *err);

#endif
