/* SPDX-License-Identifier: MIT
 *
 * Why the device stood idle inside iterations. A gap lies between the end of all work so far and
 * the start of the next. When the next was launched before the gap began, it is the device's own;
 * otherwise the CPU was late, and what it did in the middle of the time it was late is blamed for
 * the whole gap: over hundreds of gaps that is a fair sample.
 */
#include "base/status.h"
#include "profile/advice.h"
#include "profile/stacks.h"

#include <assert.h>
#include <string.h>

bool rpi_tally_add(struct rpi_tally *tally, uint32_t name, uint64_t ns)
{
    assert(name);
    uint32_t at = rpi_idmap_get(&tally->index, name);
    if (at == RPI_ABSENT) {
        struct rpi_share share = {.name = name};
        at = (uint32_t)tally->shares.count;
        if (!rpi_vec_push(&tally->shares, share) || !rpi_idmap_set(&tally->index, name, at))
            return false;
    }
    tally->shares.data[at].ns += ns;
    tally->shares.data[at].count++;
    return true;
}

void rpi_tally_finish(struct rpi_tally *tally, struct rpi_share *out, size_t most)
{
    assert(most);
    memset(out, 0, most * sizeof *out);
    for (size_t i = 0; i < tally->shares.count; i++) {
        struct rpi_share share = tally->shares.data[i];
        for (size_t place = 0; place < most; place++) {
            if (share.ns <= out[place].ns)
                continue;
            struct rpi_share pushed = out[place];
            out[place] = share;
            share = pushed;
        }
    }
    rpi_idmap_finish(&tally->index);
    rpi_vec_finish(&tally->shares);
}

struct gap {
    uint64_t ns;
    bool in_call, waiting;
    uint32_t call; /* name */
};

struct explainer {
    struct rp_advice *advice;
    struct rpi_moments moments; /* what: index into gaps */
    struct {
        RPI_VEC(struct gap);
    } gaps;
    struct rpi_tally names;
};

static void blame(struct rp_advice *advice, enum rpi_gap_class class, uint64_t ns)
{
    assert(class < RPI_GAP_CLASSES);
    advice->gap_ns[class] += ns;
    advice->gap_count[class]++;
}

/* The gap before `work`, which lasted from `idle`. */
static bool note_gap(struct explainer *e, const struct rpi_event *work, uint64_t idle)
{
    assert(work->start > idle);
    const struct rpi_trace *trace = &e->advice->trace;
    struct gap gap = {.ns = work->start - idle};
    const struct rpi_event *call =
        work->link == RPI_NO_LINK ? NULL : &trace->calls.data[work->link];
    if (!call || call->start <= idle) {
        blame(e->advice, RPI_GAP_QUEUED, gap.ns);
        return true;
    }
    uint64_t launched = rpi_event_end(call) < work->start ? rpi_event_end(call) : work->start;
    struct rpi_moment moment = {idle + (launched - idle) / 2, call->lane, (uint32_t)e->gaps.count};
    return rpi_vec_push(&e->gaps, gap) && rpi_vec_push(&e->moments, moment);
}

static bool gather_gaps(struct explainer *e)
{
    const struct rp_advice *advice = e->advice;
    for (size_t i = 0; i < advice->iterations.count; i++) {
        const struct rpi_iteration *iteration = &advice->iterations.data[i];
        uint64_t until = 0;
        for (uint32_t w = 0; w < iteration->work_count; w++) {
            const struct rpi_event *work =
                &advice->trace.work.data[advice->order[iteration->first_work + w]];
            if (until && work->start > until && !note_gap(e, work, until))
                return false;
            until = rpi_event_end(work) > until ? rpi_event_end(work) : until;
        }
    }
    return true;
}

/* First pass: which call the thread was in. */
static bool visit_call(void *user, const struct rpi_moment *moment, const uint32_t *calls,
                       size_t depth)
{
    assert(moment->what < ((struct explainer *)user)->gaps.count);
    struct explainer *e = user;
    struct gap *gap = &e->gaps.data[moment->what];
    if (!depth)
        return true;
    gap->in_call = true;
    gap->call = e->advice->trace.calls.data[calls[depth - 1]].name;
    gap->waiting = strstr(rpi_name(&e->advice->trace, gap->call), "Synchronize") != NULL;
    return true;
}

/* Second pass: which frame. */
static bool visit_frame(void *user, const struct rpi_moment *moment, const uint32_t *frames,
                        size_t depth)
{
    assert(moment->what < ((struct explainer *)user)->gaps.count);
    struct explainer *e = user;
    const struct gap *gap = &e->gaps.data[moment->what];
    const struct rpi_event *frame = depth ? &e->advice->trace.frames.data[frames[depth - 1]] : NULL;
    enum rpi_gap_class class = gap->waiting                           ? RPI_GAP_WAIT
                               : gap->in_call                         ? RPI_GAP_RUNTIME
                               : frame && frame->kind == RPI_FRAME_OP ? RPI_GAP_OP
                                                                      : RPI_GAP_PYTHON;
    blame(e->advice, class, gap->ns);
    uint32_t name = gap->in_call ? gap->call : frame ? frame->name : 0;
    return !name || rpi_tally_add(&e->names, name, gap->ns);
}

rp_status rpi_advice_explain_gaps(struct rp_advice *advice, struct rp_error *err)
{
    struct explainer e = {.advice = advice};
    rp_status status =
        gather_gaps(&e) ? RP_OK : rpi_error_host_memory(err, "advise", advice->trace.work.count);
    if (status == RP_OK)
        status = rpi_stacks_visit(&advice->trace.calls, &e.moments, visit_call, &e, err);
    if (status == RP_OK)
        status = rpi_stacks_visit(&advice->trace.frames, &e.moments, visit_frame, &e, err);
    rpi_tally_finish(&e.names, advice->gap_names, RPI_MOST_SHARES);
    rpi_vec_finish(&e.gaps);
    rpi_vec_finish(&e.moments);
    return status;
}
