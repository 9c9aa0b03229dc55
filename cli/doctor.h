/* SPDX-License-Identifier: MIT
 *
 * What `reprise doctor` looks at outside the driver: the environment and PyTorch.
 */
#ifndef REPRISE_CLI_DOCTOR_H
#define REPRISE_CLI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

/* One thing that was seen: a variable, an allocator's setting. */
struct doctor_fact {
    char name[64], value[128];
    char says[160]; /* what it does to graphs; or what it may have been meant to be */
    bool misspelled;
    bool stops; /* no capture works with this value */
};

struct doctor_facts {
    struct doctor_fact fact[96];
    size_t count;
};

/* The variables of the environment that matter to graphs, or are spelled like one that does. */
void doctor_environment(struct doctor_facts *facts);
/* The settings in PYTORCH_ALLOC_CONF or, where that is not set, PYTORCH_CUDA_ALLOC_CONF. */
void doctor_alloc_conf(struct doctor_facts *facts);

struct doctor_torch {
    bool python, torch; /* found */
    char version[64], cuda[32], allocator[32];
    char reprise[64];  /* version of the package; "none", or why it cannot be imported */
    char why[160];     /* why there is no torch */
    char problem[256]; /* what keeps this torch from capturing, and what to do; "" */
};
/* Asks `python3`, which has a minute. driver_cuda: the driver's version, 13000; 0: not NVIDIA's. */
void doctor_torch(int driver_cuda, struct doctor_torch *out_torch);

#endif
