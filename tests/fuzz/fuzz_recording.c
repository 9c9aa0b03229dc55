/* SPDX-License-Identifier: MIT
 *
 * Fuzzes the reader of recordings: whatever the bytes, it refuses with a message or returns a
 * recording that can be planned. Small ones are planned, and the layout is checked against the
 * definition of the format, pair by pair.
 *
 * With clang: cmake -B build-fuzz -DREPRISE_FUZZ=ON -DCMAKE_C_COMPILER=clang, then
 * build-fuzz/fuzz_recording -dict=tests/fuzz/recording.dict -max_len=4096 NEW_CORPUS
 * tests/fuzz/corpus. Ordinary builds run the corpus through run_corpus.c.
 */
#include "recording/layout.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#undef NDEBUG
#include <assert.h>

enum { MOST_BLOCKS = 40, MOST_CAPTURES = 8 };

static bool is_small(const struct rp_recording *recording)
{
    size_t blocks = recording->intervals.count;
    for (size_t c = 0; c < recording->captures.count; c++)
        blocks += recording->captures.data[c].blocks.count;
    return blocks <= MOST_BLOCKS && recording->captures.count <= MOST_CAPTURES;
}

/* B may take A's memory, within one capture, straight from recording.h. */
static bool gives_to(const struct rpi_capture_record *record, uint32_t a, uint32_t b)
{
    uint32_t free_event = record->blocks.data[a].free_event;
    if (free_event == RPI_NO_EVENT || free_event > record->blocks.data[b].alloc_event)
        return false;
    const struct rpi_event *freed = &record->events.data[free_event];
    const struct rpi_event *alloc = &record->events.data[record->blocks.data[b].alloc_event];
    for (uint32_t i = 0; i < freed->node_count; i++) {
        bool covered = false;
        for (uint32_t k = 0; k < alloc->node_count && !covered; k++)
            covered =
                rpi_order_reaches(record->order, record->event_nodes.data[freed->first_node + i],
                                  record->event_nodes.data[alloc->first_node + k]);
        if (!covered)
            return false;
    }
    return freed->node_count > 0;
}

static bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

static void check_capture(const struct rpi_capture_record *record, const uint64_t *offsets)
{
    for (uint32_t a = 0; a < record->blocks.count; a++)
        for (uint32_t b = 0; b < a; b++)
            if (!gives_to(record, a, b) && !gives_to(record, b, a))
                assert(!overlap(offsets[a], record->blocks.data[a].bytes, offsets[b],
                                record->blocks.data[b].bytes));
}

static bool holds(const struct rpi_compose *compose, uint32_t capture)
{
    if (compose->kind == RPI_COMPOSE_CAPTURE)
        return compose->capture == capture;
    for (size_t i = 0; i < compose->child_count; i++)
        if (holds(&compose->children[i], capture))
            return true;
    return false;
}

/* The innermost composition of captures a and b, and whether a's part comes first in it. */
static enum rpi_compose_kind relation(const struct rpi_compose *compose, uint32_t a, uint32_t b,
                                      bool *out_first)
{
    for (;;) {
        const struct rpi_compose *part = compose->children;
        while (!holds(part, a) && !holds(part, b))
            part++;
        if (!holds(part, a) || !holds(part, b)) {
            *out_first = holds(part, a);
            return compose->kind;
        }
        compose = part;
    }
}

static void check_pair(const struct rp_recording *recording, const struct rp_layout *layout,
                       uint32_t first, uint32_t second, bool only_kept)
{
    const struct rpi_capture_record *a = &recording->captures.data[first];
    const struct rpi_capture_record *b = &recording->captures.data[second];
    for (size_t i = 0; i < a->blocks.count; i++)
        for (size_t k = 0; k < b->blocks.count; k++)
            if (!only_kept || a->blocks.data[i].free_event == RPI_NO_EVENT)
                assert(!overlap(layout->captures[first].offsets[i], a->blocks.data[i].bytes,
                                layout->captures[second].offsets[k], b->blocks.data[k].bytes));
}

static void check_compose(const struct rp_recording *recording, const struct rp_layout *layout)
{
    for (uint32_t a = 0; a < recording->captures.count; a++)
        for (uint32_t b = 0; b < a; b++) {
            bool first;
            enum rpi_compose_kind kind = relation(&recording->compose, a, b, &first);
            if (kind != RPI_COMPOSE_ALTERNATIVES)
                check_pair(recording, layout, first ? a : b, first ? b : a,
                           kind == RPI_COMPOSE_SEQUENCE);
        }
}

static void check_intervals(const struct rpi_intervals *rows, const uint64_t *offsets)
{
    for (uint32_t a = 0; a < rows->count; a++)
        for (uint32_t b = 0; b < a; b++)
            if (rows->lower[a] < rows->upper[b] && rows->lower[b] < rows->upper[a])
                assert(!overlap(offsets[a], rows->bytes[a], offsets[b], rows->bytes[b]));
}

static void plan(const struct rp_recording *recording)
{
    struct rp_plan_options options = RP_PLAN_OPTIONS_INIT;
    options.budget_ms = 1;
    struct rp_layout *layout = NULL;
    struct rp_error err;
    rp_status status = rp_recording_plan(recording, &options, &layout, &err);
    assert(status == RP_OK || *err.message);
    if (status != RP_OK)
        return;
    assert(layout->info.pool_bytes >= layout->info.lower_bound_bytes);
    if (recording->csv)
        check_intervals(&recording->intervals, layout->captures[0].offsets);
    for (size_t c = 0; c < recording->captures.count; c++)
        check_capture(&recording->captures.data[c], layout->captures[c].offsets);
    check_compose(recording, layout);
    rp_layout_destroy(layout);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct rp_recording *recording = NULL;
    struct rp_error err;
    rp_status status = rpi_recording_parse("input", data, bytes, &recording, &err);
    assert((status == RP_OK) == (recording != NULL));
    if (status != RP_OK) {
        assert(status == RP_ERROR_FORMAT || status == RP_ERROR_LIMIT ||
               status == RP_ERROR_OUT_OF_HOST_MEMORY);
        assert(err.status == status && *err.message);
        return 0;
    }
    if (is_small(recording))
        plan(recording);
    rp_recording_destroy(recording);
    return 0;
}
