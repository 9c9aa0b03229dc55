/* SPDX-License-Identifier: MIT
 *
 * The calls in iterations that a capture would not survive, each with the operator and the Python
 * frame that made it. One place of the program is one obstacle, however often it is passed.
 */
#include "base/status.h"
#include "profile/advice.h"
#include "profile/stacks.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    enum rpi_obstacle_class class;
} calls[] = {
#define X(name, class) {name, RPI_OBSTACLE_##class},
#include "profile/obstacles.def"
#undef X
};

static const struct {
    const char *name;
    enum rpi_obstacle_class class;
    const char *mend;
} ops[] = {
#define X(name, class, mend) {name, RPI_OBSTACLE_##class, mend},
#include "explain/operators.def"
#undef X
};

/* The names under which the explanations know them. */
static const char *const keys[RPI_OBSTACLE_CLASSES] = {
    [RPI_OBSTACLE_NONE] = "",
    [RPI_OBSTACLE_HOST_READ] = "host-read",
    [RPI_OBSTACLE_DATA_SHAPE] = "data-shape",
    [RPI_OBSTACLE_SYNC] = "synchronisation",
    [RPI_OBSTACLE_COPY_OUT] = "copy-out",
    [RPI_OBSTACLE_COPY_IN] = "copy-in",
    [RPI_OBSTACLE_PINNED] = "pinned-memory",
    [RPI_OBSTACLE_ALLOCATION] = "allocation",
};

const char *rpi_obstacle_text(enum rpi_obstacle_class class)
{
    return rp_explain(keys[class])->title;
}

const char *rpi_obstacle_key(enum rpi_obstacle_class class)
{
    return keys[class];
}

/* ---- Which calls --------------------------------------------------------------------------- */

static enum rpi_obstacle_class class_of_call(const char *name)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(name, calls[i].name))
            return calls[i].class;
    return RPI_OBSTACLE_NONE;
}

static enum rpi_obstacle_class class_of_copy(const char *name)
{
    if (strstr(name, "DtoH") || strstr(name, "Device -> P"))
        return RPI_OBSTACLE_COPY_OUT;
    return strstr(name, "HtoD") ? RPI_OBSTACLE_COPY_IN : RPI_OBSTACLE_NONE;
}

struct finder {
    struct rp_advice *advice;
    struct rpi_idmap class_of_name;
    uint8_t *class_of_work_call; /* by call: what the copy that it launched is */
    const char *mends[RPI_OBSTACLE_CLASSES];
    struct rpi_moments moments;
};

/* The class of a call's name, looked up once for each name. */
static bool name_class(struct finder *f, uint32_t name, enum rpi_obstacle_class *out)
{
    uint32_t known = rpi_idmap_get(&f->class_of_name, name);
    if (known == RPI_ABSENT) {
        known = class_of_call(rpi_name(&f->advice->trace, name));
        if (!rpi_idmap_set(&f->class_of_name, name, known))
            return false;
    }
    *out = (enum rpi_obstacle_class)known;
    return true;
}

static bool mark_copies(struct finder *f)
{
    const struct rpi_trace *trace = &f->advice->trace;
    f->class_of_work_call = rpi_calloc(trace->calls.count + 1, 1);
    if (!f->class_of_work_call)
        return false;
    for (size_t i = 0; i < trace->work.count; i++) {
        const struct rpi_event *work = &trace->work.data[i];
        if (work->kind == RPI_WORK_COPY && work->link != RPI_NO_LINK && !work->in_graph)
            f->class_of_work_call[work->link] = (uint8_t)class_of_copy(rpi_name(trace, work->name));
    }
    return true;
}

static bool gather(struct finder *f)
{
    const struct rpi_trace *trace = &f->advice->trace;
    for (uint32_t i = 0; i < trace->calls.count; i++) {
        const struct rpi_event *call = &trace->calls.data[i];
        enum rpi_obstacle_class class = f->class_of_work_call[i];
        if (class == RPI_OBSTACLE_NONE && !name_class(f, call->name, &class))
            return false;
        if (class == RPI_OBSTACLE_NONE ||
            rpi_advice_iteration_at(f->advice, call->start) == RPI_NO_LINK)
            continue;
        f->advice->allocations += class == RPI_OBSTACLE_ALLOCATION;
        struct rpi_moment moment = {call->start, call->lane, i};
        if (!rpi_vec_push(&f->moments, moment))
            return false;
    }
    return true;
}

/* ---- Whose ---------------------------------------------------------------------------------- */

/* Frames of the program itself: not built in, not of PyTorch, not of Python's own files. */
static bool is_own_frame(const char *name)
{
    static const char *const foreign[] = {
        "torch/", "<built-in", "nn.Module: ", "contextlib.py", "threading.py", "<frozen"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (!strncmp(name, foreign[i], strlen(foreign[i])))
            return false;
    return !strstr(name, "site-packages/torch/") && !strstr(name, "dist-packages/torch/");
}

struct place {
    uint32_t op, python, caller, module; /* names */
    uint64_t op_start;
    size_t listed; /* index into ops, or their count */
};

static size_t find_op(const char *name)
{
    size_t i = 0;
    while (i < sizeof ops / sizeof *ops && strcmp(name, ops[i].name) != 0)
        i++;
    return i;
}

/* From the innermost frame outwards. */
static struct place find_place(const struct rpi_trace *trace, const uint32_t *frames, size_t depth)
{
    struct place place = {.listed = sizeof ops / sizeof *ops};
    uint32_t any_python = 0;
    for (size_t i = depth; i-- > 0;) {
        const struct rpi_event *frame = &trace->frames.data[frames[i]];
        const char *name = rpi_name(trace, frame->name);
        if (frame->kind == RPI_FRAME_OP) {
            size_t listed = find_op(name);
            if (!place.op || listed < sizeof ops / sizeof *ops) {
                place.op = frame->name;
                place.op_start = frame->start;
                place.listed = listed;
            }
        } else if (frame->kind == RPI_FRAME_PYTHON) {
            any_python = any_python ? any_python : frame->name;
            if (!place.module && !strncmp(name, "nn.Module: ", 11))
                place.module = frame->name;
            if (!is_own_frame(name))
                continue;
            if (!place.python)
                place.python = frame->name;
            else if (!place.caller)
                place.caller = frame->name;
        }
    }
    place.python = place.python ? place.python : any_python;
    return place;
}

static struct rpi_obstacle *find_obstacle(struct rp_advice *advice, const struct rpi_obstacle *like)
{
    for (size_t i = 0; i < advice->obstacles.count; i++) {
        struct rpi_obstacle *o = &advice->obstacles.data[i];
        bool same_call = like->op ? o->op == like->op : o->call == like->call;
        if (same_call && !o->op == !like->op && o->python == like->python &&
            o->caller == like->caller)
            return o;
    }
    if (advice->obstacles.count == RPI_MOST_OBSTACLES || !rpi_vec_push(&advice->obstacles, *like))
        return NULL;
    return &advice->obstacles.data[advice->obstacles.count - 1];
}

/* When the first and last work of an iteration was launched. */
static void launch_range(const struct rp_advice *advice, const struct rpi_iteration *iteration,
                         uint64_t *first, uint64_t *last)
{
    *first = UINT64_MAX;
    *last = 0;
    for (uint32_t i = 0; i < iteration->work_count; i++) {
        const struct rpi_event *work =
            &advice->trace.work.data[advice->order[iteration->first_work + i]];
        if (work->kind != RPI_WORK_KERNEL)
            continue;
        uint64_t at = rpi_advice_launch_time(&advice->trace, work);
        *first = at < *first ? at : *first;
        *last = at > *last ? at : *last;
    }
}

struct visit {
    struct finder *finder;
    uint32_t ranged; /* the iteration whose range this is */
    uint64_t first, last;
};

static bool note_position(struct visit *v, struct rpi_obstacle *o, uint32_t at, uint64_t time)
{
    struct rp_advice *advice = v->finder->advice;
    if (v->ranged != at)
        launch_range(advice, &advice->iterations.data[at], &v->first, &v->last);
    v->ranged = at;
    o->count++;
    o->before += time < v->first;
    o->after += time > v->last;
    bool within = time >= v->first && time <= v->last;
    o->within += within;
    o->iterations += o->last_iteration != at + 1;
    o->last_iteration = at + 1;
    return !within || at != advice->typical || o->class >= RPI_OBSTACLE_COPY_IN ||
           rpi_vec_push(&advice->cuts, time);
}

static bool visit_call(void *user, const struct rpi_moment *moment, const uint32_t *frames,
                       size_t depth)
{
    struct visit *v = user;
    struct finder *f = v->finder;
    const struct rpi_trace *trace = &f->advice->trace;
    const struct rpi_event *call = &trace->calls.data[moment->what];
    struct place place = find_place(trace, frames, depth);
    enum rpi_obstacle_class class = f->class_of_work_call[moment->what];
    if (class == RPI_OBSTACLE_NONE && !name_class(f, call->name, &class))
        return false;
    bool listed = place.listed < sizeof ops / sizeof *ops && class <= RPI_OBSTACLE_COPY_OUT;
    struct rpi_obstacle like = {
        .class = listed ? ops[place.listed].class : class,
        .call = call->name,
        .op = place.op,
        .python = place.python,
        .caller = place.caller,
        .module = place.module,
        .mend = listed ? ops[place.listed].mend : f->mends[class],
        .last_op = UINT64_MAX,
    };
    struct rpi_obstacle *o = find_obstacle(f->advice, &like);
    if (!o)
        return f->advice->obstacles.count == RPI_MOST_OBSTACLES;
    if (like.class < o->class) { /* a copy and the wait for it are one, and the wait is graver */
        o->class = like.class;
        o->mend = like.mend;
    }
    o->modules += place.module && o->last_module != place.module &&
                  rpi_advice_iteration_at(f->advice, call->start) == f->advice->typical;
    o->last_module = place.module;
    o->wait_ns += strstr(rpi_name(trace, call->name), "Synchronize") ? call->span : 0;
    if (place.op && o->last_op == place.op_start)
        return true;
    o->last_op = place.op ? place.op_start : UINT64_MAX;
    return note_position(v, o, rpi_advice_iteration_at(f->advice, call->start), call->start);
}

bool rpi_obstacle_is_regular(const struct rp_advice *advice, const struct rpi_obstacle *obstacle)
{
    return 2 * obstacle->iterations > advice->iterations.count;
}

/* Whoever profiles waits for the device before the first iteration and after the last, and the
 * marks of profiler.step() lie around that. It is no part of an iteration. */
static bool is_of_measurement(const struct rp_advice *advice, const struct rpi_obstacle *o)
{
    size_t count = advice->iterations.count;
    bool opens = o->last_iteration == 1 && o->before == o->count;
    bool closes = o->last_iteration == count && o->after == o->count;
    return count > 1 && o->iterations == 1 && o->class == RPI_OBSTACLE_SYNC && !o->op &&
           (opens || closes);
}

static void drop_measurement(struct rp_advice *advice)
{
    size_t kept = 0;
    for (size_t i = 0; i < advice->obstacles.count; i++) {
        struct rpi_obstacle o = advice->obstacles.data[i];
        if (is_of_measurement(advice, &o)) {
            advice->measuring_waits += o.count;
            advice->measuring_call = o.call;
        } else {
            advice->obstacles.data[kept++] = o;
        }
    }
    advice->obstacles.count = kept;
}

/* Those between kernels first, then by class, then the most frequent. */
static int graver(const void *left, const void *right)
{
    const struct rpi_obstacle *a = left, *b = right;
    if (!a->within != !b->within)
        return a->within ? -1 : 1;
    bool light_a = a->class >= RPI_OBSTACLE_COPY_IN, light_b = b->class >= RPI_OBSTACLE_COPY_IN;
    if (light_a != light_b)
        return light_a ? 1 : -1;
    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    return a->class != b->class ? (a->class < b->class ? -1 : 1)
                                : (a->op > b->op) - (a->op < b->op);
}

static int compare_times(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

rp_status rpi_advice_find_obstacles(struct rp_advice *advice, struct rp_error *err)
{
    struct finder finder = {.advice = advice};
    struct visit visit = {.finder = &finder, .ranged = RPI_NO_LINK};
    for (int i = RPI_OBSTACLE_NONE + 1; i < RPI_OBSTACLE_CLASSES; i++)
        finder.mends[i] = rp_explain(keys[i])->mends[0];
    rp_status status = RP_OK;
    if (!mark_copies(&finder) || !gather(&finder))
        status = rpi_error_host_memory(err, "advise", advice->trace.calls.count);
    if (status == RP_OK)
        status = rpi_stacks_visit(&advice->trace.frames, &finder.moments, visit_call, &visit, err);
    if (status == RP_OK)
        drop_measurement(advice);
    if (status == RP_OK && advice->obstacles.count)
        qsort(advice->obstacles.data, advice->obstacles.count, sizeof *advice->obstacles.data,
              graver);
    if (status == RP_OK && advice->cuts.count)
        qsort(advice->cuts.data, advice->cuts.count, sizeof *advice->cuts.data, compare_times);
    rpi_idmap_finish(&finder.class_of_name);
    rpi_free(finder.class_of_work_call);
    rpi_vec_finish(&finder.moments);
    return status;
}
