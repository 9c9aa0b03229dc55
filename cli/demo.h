/* SPDX-License-Identifier: MIT
 *
 * What `reprise demo` finds out, and the parts that do:
 *
 *     cmd_demo.c          options, the device, the order of things
 *     demo_decoder.c      captures the decoder at each batch size, replays it, compares
 *     demo_contract.c     calls two graphs of a sequence in the wrong order
 *     demo_recordings.c   plans recorded captures
 *     demo_show.c         text and JSON
 *     demo_chart.c        the SVG
 *     demo_folder.c       where it is written
 */
#ifndef REPRISE_CLI_DEMO_H
#define REPRISE_CLI_DEMO_H

#include "reprise.h"
#include "reprise_tools.h"

#include <stdbool.h>
#include <stddef.h>

enum { DEMO_MOST_BATCHES = 16, DEMO_MOST_RECORDINGS = 16, DEMO_PATH = 4096 };

struct demo_options {
    const char *driver;     /* NULL: cuda where it works, host elsewhere */
    const char *out;        /* directory of the chart; NULL: demo_folder's */
    const char *recordings; /* directory; NULL: the ones that come with Reprise */
    uint32_t batches[DEMO_MOST_BATCHES];
    size_t batch_count;
    bool json;
};

/* One batch size. */
struct demo_capture {
    char name[24];
    uint32_t rows;
    size_t nodes;
    uint64_t pool_bytes_after, lower_bound_bytes;    /* of the pool, with this and all before */
    uint64_t mapped_bytes_after;                     /* the pool's device memory */
    uint64_t graph_planned_bytes, graph_bound_bytes; /* of this graph alone */
    double eager_us, replay_us;                      /* medians, until the work is done */
    size_t samples;                                  /* pairs of an eager run and a replay */
    size_t bound_args, copied_args;                  /* in the last replay */
    size_t equal;                                    /* pairs that were equal to the bit */
};

/* One file of recorded captures. */
struct demo_recording {
    char name[64];
    struct rp_layout_info info; /* info.proof is static text */
    /* The least that PyTorch holds with any of its settings: as it was measured, for files that
     * come with Reprise, otherwise by the two rules of info. */
    uint64_t pytorch_best_bytes;
    bool pytorch_measured;
};

struct demo_facts {
    struct rp_device_info device; /* its texts are the device's */
    char no_gpu[512];             /* why the host driver stands in; "" when it does not */
    uint64_t rehearsal_bytes;
    uint64_t state_bytes;             /* weights and KV cache, outside the pool */
    struct rp_estimate_info estimate; /* of all batch sizes, before anything was captured */
    struct rp_pool_info taken;        /* by their captures */
    struct rp_device_exec_info execs; /* after all replays */
    char refused[512];                /* what the call in the wrong order was told */
    struct demo_capture captures[DEMO_MOST_BATCHES];
    size_t capture_count;
    struct demo_recording recordings[DEMO_MOST_RECORDINGS];
    size_t recording_count;
    char chart[DEMO_PATH];
};

/* Fills `refused`. */
rp_status demo_contract(struct rp_device *device, struct demo_facts *facts, struct rp_error *err);

/* Fills captures, estimate, taken, execs, rehearsal_bytes and state_bytes. */
rp_status demo_decoder(const struct demo_options *options, struct rp_device *device,
                       struct demo_facts *facts, struct rp_error *err);

/* The `.json` and `.json.gz` files of a directory, in the order of their names. The result is
 * freed with demo_recordings_free. */
struct demo_files {
    char *paths[DEMO_MOST_RECORDINGS];
    size_t count;
};
rp_status demo_recordings_find(const struct demo_options *options, struct demo_files *out_files,
                               struct rp_error *err);
void demo_recordings_free(struct demo_files *files);
/* Plans each. */
rp_status demo_recordings(const struct demo_files *files, struct demo_facts *facts,
                          struct rp_error *err);

/* The folder to write into, made if it is not there: the one that is asked for, else reprise/demo
 * in the user's cache folder, else a temporary one that nobody else may write to. */
rp_status demo_folder(const char *asked, char out[DEMO_PATH], struct rp_error *err);

/* Writes the chart into that folder and puts its path into facts. */
rp_status demo_chart(const struct demo_options *options, struct demo_facts *facts,
                     struct rp_error *err);

bool demo_all_equal(const struct demo_facts *facts);
/* Did the captures take what was estimated, to the byte? */
bool demo_estimate_right(const struct demo_facts *facts);
void demo_show_text(const struct demo_facts *facts);
void demo_show_json(const struct demo_facts *facts);

#endif
