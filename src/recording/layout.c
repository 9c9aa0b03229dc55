/* SPDX-License-Identifier: MIT
 *
 * From a recording to a layout: lifetimes, bounds, offsets, and what c10 would hold.
 */
#include "recording/layout.h"

#include "base/clock.h"
#include "base/refuse.h"
#include "base/sized.h"
#include "recording/c10.h"
#include "recording/compose_plan.h"

#include <assert.h>
#include <string.h>

enum { DEFAULT_ALIGNMENT = 512 };
#define MOST_ALIGNMENT ((uint64_t)1 << 30)

struct work {
    const struct rp_recording *recording;
    struct rp_layout *layout;
    struct rpi_part *parts; /* [layout->capture_count] */
    struct rpi_plan_options options;
    struct rp_error *err;
};

static rp_status no_memory(const struct work *work, size_t bytes)
{
    rpi_error_host_memory(work->err, "plan", bytes);
    return RP_ERROR_OUT_OF_HOST_MEMORY;
}

static rp_status take_options(const struct rp_plan_options *options, bool csv,
                              struct rpi_plan_options *out, struct rp_error *err)
{
    struct rp_plan_options given = RP_PLAN_OPTIONS_INIT;
    rp_status status = rpi_take_options(&given, sizeof given, options, "rp_recording_plan",
                                        "RP_PLAN_OPTIONS_INIT", err);
    if (status != RP_OK)
        return status;
    uint64_t alignment = given.alignment ? given.alignment : csv ? 1 : DEFAULT_ALIGNMENT;
    if (alignment > MOST_ALIGNMENT || (alignment & (alignment - 1)))
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_recording_plan",
                         "the alignment is %llu, but must be a power of two from 1 to 2^30",
                         (unsigned long long)alignment);
    if (given.budget_ms && given.budget_steps)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_recording_plan",
                         "budget_ms and budget_steps are both set: give one of them");
    *out = (struct rpi_plan_options){.alignment = alignment,
                                     .capacity = given.capacity_bytes,
                                     .threads = given.threads ? given.threads : 1};
    rpi_plan_set_budget(out, given.budget_ms);
    if (given.budget_steps)
        out->budget_ms = (double)given.budget_steps * 1e-6;
    return RP_OK;
}

/* ---- Before planning: lifetimes and bounds ------------------------------------------------- */

static bool is_kept(const struct rp_recording *recording, size_t capture, uint32_t block)
{
    assert(recording->csv || block < recording->captures.data[capture].blocks.count);
    return !recording->csv &&
           recording->captures.data[capture].blocks.data[block].free_event == RPI_NO_EVENT;
}

static rp_status prepare_part(const struct work *work, size_t capture)
{
    assert(capture < work->layout->capture_count && !work->parts[capture].offsets);
    const struct rp_recording *recording = work->recording;
    const struct rpi_intervals *rows = &recording->intervals;
    struct rpi_part *part = &work->parts[capture];
    rp_status status =
        recording->csv
            ? rpi_lifetimes_from_intervals(rows->lower, rows->upper, rows->bytes, rows->count,
                                           work->options.alignment, &part->lifetimes, work->err)
            : rpi_lifetimes_from_record(&recording->captures.data[capture], work->options.alignment,
                                        &part->lifetimes, work->err);
    if (status != RP_OK)
        return status;
    uint32_t count = part->lifetimes.count;
    part->kept = rpi_calloc(count, sizeof *part->kept);
    part->offsets = rpi_calloc(count, sizeof *part->offsets);
    if (!part->kept || !part->offsets)
        return no_memory(work, count * sizeof *part->offsets);
    for (uint32_t i = 0; i < count; i++) {
        part->kept[i] = is_kept(recording, capture, part->lifetimes.block[i]);
        part->kept_bytes += part->kept[i] ? part->lifetimes.bytes[i] : 0;
    }
    return count ? rpi_bound(&part->lifetimes, &part->bound, NULL, NULL, work->err) : RP_OK;
}

/* Sizes rounded up must add up to less than 2^62 over the whole file: each height is such a sum. */
static rp_status check_total(const struct work *work)
{
    uint64_t total = 0;
    for (size_t c = 0; c < work->layout->capture_count; c++)
        for (uint32_t i = 0; i < work->parts[c].lifetimes.count; i++) {
            total += work->parts[c].lifetimes.bytes[i];
            if (total > RPI_MOST_BYTES)
                return rpi_error(work->err, RP_ERROR_INVALID_ARGUMENT, "rp_recording_plan",
                                 "%s: sizes rounded up to %llu bytes add up to more than 2^62: "
                                 "use a smaller alignment",
                                 work->recording->file,
                                 (unsigned long long)work->options.alignment);
        }
    return RP_OK;
}

static rp_status plan_parts(struct work *work)
{
    static const struct rpi_compose one = {.kind = RPI_COMPOSE_CAPTURE};
    const struct rp_recording *recording = work->recording;
    struct rp_layout *layout = work->layout;
    uint64_t start = rpi_clock_ns();
    struct rpi_meter meter = rpi_meter_start(work->options.timed);
    uint64_t end = rpi_meter_end(&meter, work->options.budget_ms);
    rp_status status = RP_OK;
    for (size_t c = 0; status == RP_OK && c < layout->capture_count; c++)
        status = prepare_part(work, c);
    if (status == RP_OK)
        status = check_total(work);
    struct rpi_plan_options left = work->options;
    left.meter = &meter;
    left.budget_ms = rpi_meter_left_ms(&meter, end);
    struct rpi_plan_result result;
    if (status == RP_OK)
        status = rpi_compose_plan(recording->csv ? &one : &recording->compose, work->parts,
                                  layout->capture_count, &left, &result, work->err);
    if (status != RP_OK)
        return status;
    static const char *const proofs[] = {
        [RPI_PROOF_NONE] = NULL, [RPI_PROOF_BOUND] = "bound", [RPI_PROOF_SEARCH] = "search"};
    assert(result.height >= result.lower_bound && result.proof <= RPI_PROOF_SEARCH);
    layout->info.pool_bytes = result.height;
    layout->info.lower_bound_bytes = result.lower_bound;
    layout->info.bound_exact = 1;
    layout->info.proof = proofs[result.proof];
    layout->info.optimal = result.proof != RPI_PROOF_NONE;
    layout->info.fits = work->options.capacity ? result.fits : 1;
    layout->info.ms = rpi_ms_since(start);
    layout->info.stopped = result.stopped;
    layout->info.steps = meter.steps;
    return RP_OK;
}

/* ---- c10 ----------------------------------------------------------------------------------- */

/* Marks the captures whose results must outlive them: those with a later part of a sequence, or a
 * concurrent part, that would write over them. Users of PyTorch hold on to such results while they
 * capture the rest, and let go of others before the next capture. */
static void mark_kept(const struct rpi_compose *compose, bool needed, bool *kept)
{
    if (compose->kind == RPI_COMPOSE_CAPTURE)
        kept[compose->capture] = needed;
    for (size_t i = 0; i < compose->child_count; i++) {
        bool others = compose->kind == RPI_COMPOSE_CONCURRENT ? compose->child_count > 1
                      : compose->kind == RPI_COMPOSE_SEQUENCE ? i + 1 < compose->child_count
                                                              : false;
        mark_kept(&compose->children[i], needed || others, kept);
    }
}

/* Captures from first to last in one pool. */
static rp_status run_c10(const struct work *work, enum rpi_c10_policy policy, size_t first,
                         size_t last, const bool *kept, uint64_t *out_bytes)
{
    assert(first <= last && last < work->layout->capture_count);
    struct rpi_c10 *c10 = NULL;
    rp_status status = rpi_c10_create(policy, &c10, work->err);
    for (size_t c = first; status == RP_OK && c <= last; c++)
        status = rpi_c10_capture(c10, &work->recording->captures.data[c], kept[c], work->err);
    if (status == RP_OK)
        *out_bytes = rpi_c10_reserved(c10);
    rpi_c10_destroy(c10);
    return status;
}

static rp_status run_both(const struct work *work, size_t first, size_t last, const bool *kept,
                          uint64_t *out_default, uint64_t *out_reuse)
{
    rp_status status = run_c10(work, RPI_C10_DEFAULT, first, last, kept, out_default);
    if (status == RP_OK)
        status = run_c10(work, RPI_C10_REUSE, first, last, kept, out_reuse);
    return status;
}

static rp_status compare_with_c10(const struct work *work)
{
    assert(work->layout->capture_count);
    struct rp_layout *layout = work->layout;
    size_t count = layout->capture_count;
    if (work->recording->csv)
        return RP_OK;
    bool *kept = rpi_calloc(count, sizeof *kept);
    if (!kept)
        return no_memory(work, count);
    mark_kept(&work->recording->compose, false, kept);
    rp_status status = run_both(work, 0, count - 1, kept, &layout->info.c10_default_bytes,
                                &layout->info.c10_reuse_bytes);
    for (size_t c = 0; status == RP_OK && c < count; c++) {
        struct rp_layout_capture *info = &layout->captures[c].info;
        status = run_both(work, c, c, kept, &info->c10_default_bytes, &info->c10_reuse_bytes);
    }
    rpi_free(kept);
    return status;
}

/* ---- The layout ---------------------------------------------------------------------------- */

/* The file's name without folders and ending: what a CSV file's blocks are reported under, and the
 * title of a drawing. */
static char *stem(const char *file)
{
    const char *slash = strrchr(file, '/');
    char *name = rpi_strdup(slash ? slash + 1 : file);
    static const char *const endings[] = {".gz", ".json", ".csv"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        char *dot = name ? strrchr(name, '.') : NULL;
        if (dot && dot != name && !strcmp(dot, endings[i]))
            *dot = 0;
    }
    return name;
}

/* Everything of a capture but its plan. */
static rp_status describe_capture(const struct work *work, size_t index)
{
    const struct rp_recording *recording = work->recording;
    struct rpi_layout_capture *capture = &work->layout->captures[index];
    const struct rpi_capture_record *record =
        recording->csv ? NULL : &recording->captures.data[index];
    size_t blocks = record ? record->blocks.count : recording->intervals.count;
    capture->name = record ? rpi_strdup(record->name) : stem(recording->file);
    capture->offsets = rpi_calloc(blocks, sizeof *capture->offsets);
    capture->ids = record ? rpi_calloc(blocks, sizeof *capture->ids) : NULL;
    if (!capture->name || !capture->offsets || (record && !capture->ids))
        return no_memory(work, blocks * sizeof *capture->ids);
    for (size_t i = 0; record && i < blocks; i++)
        capture->ids[i] = record->blocks.data[i].id;
    capture->info.name = capture->name;
    capture->info.blocks = blocks;
    return RP_OK;
}

/* The plan's figures and offsets, in the recording's order of blocks. */
static void fill_capture(const struct work *work, size_t index)
{
    assert(index < work->layout->capture_count);
    const struct rpi_part *part = &work->parts[index];
    struct rpi_layout_capture *capture = &work->layout->captures[index];
    struct rp_layout_capture *info = &capture->info;
    for (uint32_t i = 0; i < part->lifetimes.count; i++) {
        uint64_t end = part->offsets[i] + part->lifetimes.bytes[i];
        capture->offsets[part->lifetimes.block[i]] = part->offsets[i];
        info->planned_bytes = info->planned_bytes < end ? end : info->planned_bytes;
        info->total_bytes += part->lifetimes.bytes[i];
    }
    info->lower_bound_bytes = part->bound;
    /* For intervals the bound is the most that is alive at once. */
    info->peak_bytes = work->recording->csv
                           ? part->bound
                           : rpi_capture_record_peak(&work->recording->captures.data[index],
                                                     work->options.alignment);
}

static rp_status copy_intervals(const struct work *work)
{
    const struct rpi_intervals *from = &work->recording->intervals;
    struct rpi_intervals *to = &work->layout->intervals;
    size_t count = from->count;
    if (!count)
        return RP_OK;
    size_t text = from->id[count - 1] + strlen(from->text + from->id[count - 1]) + 1;
    to->count = from->count;
    to->text = rpi_malloc(text);
    to->id = rpi_reallocarray(NULL, count, sizeof *to->id);
    to->lower = rpi_reallocarray(NULL, count, sizeof *to->lower);
    to->upper = rpi_reallocarray(NULL, count, sizeof *to->upper);
    to->bytes = rpi_reallocarray(NULL, count, sizeof *to->bytes);
    if (!to->text || !to->id || !to->lower || !to->upper || !to->bytes)
        return no_memory(work, text);
    memcpy(to->text, from->text, text);
    memcpy(to->id, from->id, count * sizeof *to->id);
    memcpy(to->lower, from->lower, count * sizeof *to->lower);
    memcpy(to->upper, from->upper, count * sizeof *to->upper);
    memcpy(to->bytes, from->bytes, count * sizeof *to->bytes);
    return RP_OK;
}

static rp_status describe_drawing(const struct work *work)
{
    char *name = stem(work->recording->file);
    rp_status status =
        name ? rpi_layout_describe(&work->layout->drawing, work->recording, name, work->err)
             : no_memory(work, 1);
    rpi_free(name);
    if (status != RP_OK)
        return status;
    return rpi_drawing_find_peaks(&work->layout->drawing, work->options.alignment, work->err);
}

static rp_status make_layout(struct work *work)
{
    struct rp_layout *layout = work->layout;
    rp_status status = RP_OK;
    for (size_t c = 0; status == RP_OK && c < layout->capture_count; c++)
        status = describe_capture(work, c);
    if (status == RP_OK)
        status = plan_parts(work);
    if (status == RP_OK)
        status = compare_with_c10(work);
    if (status == RP_OK)
        status = copy_intervals(work);
    if (status == RP_OK)
        status = describe_drawing(work);
    for (size_t c = 0; status == RP_OK && c < layout->capture_count; c++)
        fill_capture(work, c);
    if (status == RP_OK)
        rpi_layout_place(layout);
    return status;
}

static rp_status open_layout(struct work *work)
{
    const struct rp_recording *recording = work->recording;
    size_t count = recording->csv ? 1 : recording->captures.count;
    struct rp_layout *layout = work->layout = rpi_calloc(1, sizeof *layout);
    if (!layout)
        return no_memory(work, sizeof *layout);
    layout->csv = recording->csv;
    layout->alignment = work->options.alignment;
    layout->file = rpi_strdup(recording->file);
    layout->captures = rpi_calloc(count, sizeof *layout->captures);
    layout->capture_count = layout->captures ? count : 0;
    layout->info.captures = count;
    work->parts = rpi_calloc(count, sizeof *work->parts);
    if (!layout->file || !layout->captures || !work->parts)
        return no_memory(work, count * sizeof *work->parts);
    return RP_OK;
}

static void finish_parts(const struct work *work)
{
    for (size_t c = 0; work->parts && c < work->layout->capture_count; c++) {
        rpi_lifetimes_finish(&work->parts[c].lifetimes);
        rpi_free(work->parts[c].kept);
        rpi_free(work->parts[c].offsets);
    }
    rpi_free(work->parts);
}

rp_status rp_recording_plan(const struct rp_recording *recording,
                            const struct rp_plan_options *options, struct rp_layout **out_layout,
                            struct rp_error *err)
{
    if (!recording || !out_layout)
        return rpi_refuse(err, "rp_recording_plan", !recording ? "recording" : "out_layout");
    struct work work = {.recording = recording, .err = err};
    rp_status status = take_options(options, recording->csv, &work.options, err);
    if (status != RP_OK)
        return status;
    status = open_layout(&work);
    if (status == RP_OK)
        status = make_layout(&work);
    if (work.layout)
        finish_parts(&work);
    if (status == RP_OK)
        *out_layout = work.layout;
    else
        rp_layout_destroy(work.layout);
    return status;
}

void rp_layout_destroy(struct rp_layout *layout)
{
    if (!layout)
        return;
    for (size_t c = 0; c < layout->capture_count; c++) {
        rpi_free(layout->captures[c].name);
        rpi_free(layout->captures[c].ids);
        rpi_free(layout->captures[c].offsets);
    }
    rpi_free(layout->captures);
    rpi_drawing_finish(&layout->drawing);
    rpi_free(layout->intervals.text);
    rpi_free(layout->intervals.id);
    rpi_free(layout->intervals.lower);
    rpi_free(layout->intervals.upper);
    rpi_free(layout->intervals.bytes);
    rpi_free(layout->file);
    rpi_free(layout);
}

void rp_layout_info(const struct rp_layout *layout, struct rp_layout_info *out_info)
{
    if (!layout || !out_info) {
        rpi_give_nothing(out_info);
        return;
    }
    rpi_give(out_info, &layout->info, sizeof layout->info, __func__);
}

void rp_layout_capture(const struct rp_layout *layout, size_t index,
                       struct rp_layout_capture *out_capture)
{
    if (!layout || !out_capture) {
        rpi_give_nothing(out_capture);
        return;
    }
    assert(index < layout->capture_count);
    const struct rp_layout_capture *info = &layout->captures[index].info;
    rpi_give(out_capture, info, sizeof *info, __func__);
}
