/* SPDX-License-Identifier: MIT */
#include "check/findings.h"

#include "base/caller.h"
#include "base/hostmem.h"
#include "base/refuse.h"
#include "base/sized.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#if __has_include(<execinfo.h>)
#include <execinfo.h>
static int take_frames(void **frames, int most)
{
    return backtrace(frames, most);
}
#else
static int take_frames(void **frames, int most)
{
    (void)frames;
    (void)most;
    return 0;
}
#endif

void rpi_stack_take(struct rpi_stack *stack, const void *caller)
{
    enum { MOST = 64 };
    void *frames[MOST];
    int count = take_frames(frames, MOST), first = 0;
    while (first < count && frames[first] != caller)
        first++;
    stack->count = 0;
    for (int i = first; i < count && stack->count < RPI_FRAMES; i++)
        stack->frame[stack->count++] = frames[i];
    if (!stack->count)
        stack->frame[stack->count++] = caller;
}

static bool is_same(const struct rpi_finding *f, const char *kind, const char *operation,
                    const struct rpi_stack *stack)
{
    const void *caller = stack && stack->count ? stack->frame[0] : NULL;
    const void *known = f->frames ? f->frame[0] : NULL;
    return caller == known && strcmp(f->kind, kind) == 0 && strcmp(f->operation, operation) == 0;
}

struct rpi_finding *rpi_findings_note(struct rp_findings *findings, const char *kind,
                                      const char *operation, const struct rpi_stack *stack)
{
    for (size_t i = 0; i < findings->all.count; i++) {
        struct rpi_finding *known = findings->all.data[i];
        if (!is_same(known, kind, operation, stack))
            continue;
        known->count++;
        return NULL;
    }
    struct rpi_finding *made = rpi_calloc(1, sizeof *made);
    if (!made || !rpi_vec_push(&findings->all, made)) {
        rpi_free(made);
        findings->no_memory = true;
        return NULL;
    }
    made->kind = kind;
    made->count = 1;
    snprintf(made->operation, sizeof made->operation, "%s", operation);
    for (size_t i = 0; stack && i < stack->count; i++) {
        made->frame[i] = stack->frame[i];
        rpi_caller_describe(stack->frame[i], made->where[i], sizeof made->where[i]);
    }
    made->frames = stack ? stack->count : 0;
    return made;
}

void rp_findings_destroy(struct rp_findings *findings)
{
    if (!findings)
        return;
    for (size_t i = 0; i < findings->all.count; i++)
        rpi_free(findings->all.data[i]);
    rpi_vec_finish(&findings->all);
    rpi_free(findings);
}

size_t rp_findings_count(const struct rp_findings *findings)
{
    if (!findings)
        return 0;
    return findings->all.count;
}

int rp_findings_obstacle(const struct rp_findings *findings, size_t index,
                         struct rp_obstacle *out_obstacle)
{
    if (!findings || !out_obstacle)
        return 0;
    if (index >= findings->all.count)
        return 0;
    const struct rpi_finding *f = findings->all.data[index];
    struct rp_obstacle told = {
        .kind = f->kind,
        .operation = f->operation,
        .what = f->what,
        .mend = f->mend,
        .driver_code = f->driver_code,
        .driver_name = f->driver_code ? rpi_result_name((CUresult)f->driver_code) : NULL,
        .where = f->where[0],
        .places = f->frames,
        .count = f->count,
    };
    return rpi_give(out_obstacle, &told, sizeof told, __func__);
}

int rp_findings_place(const struct rp_findings *findings, size_t index, size_t depth,
                      struct rp_place *out_place)
{
    if (!findings || !out_place)
        return 0;
    if (index >= findings->all.count || depth >= findings->all.data[index]->frames)
        return 0;
    const struct rpi_finding *f = findings->all.data[index];
    const char *call = (const char *)f->frame[depth] - 1; /* what it returns to is behind it */
    Dl_info info = {.dli_fname = NULL};
    bool known = dladdr(call, &info) && info.dli_fname;
    out_place->text = f->where[depth];
    out_place->file = known ? info.dli_fname : NULL;
    out_place->offset = known ? (uint64_t)(call - (const char *)info.dli_fbase) : 0;
    return 1;
}
