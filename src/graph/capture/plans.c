/* SPDX-License-Identifier: MIT */
#include "graph/capture/plans.h"

#include "base/hostmem.h"

#include <assert.h>
#include <string.h>

enum { MOST_PLANS = 4096 };

/* The problem and its plan as one text of bytes: equal bytes, equal problem. */
struct rpi_made_plan {
    size_t problem_bytes;
    uint64_t hash; /* of the problem */
    unsigned char *problem;
    uint64_t *offsets;
    uint32_t count;
    struct rpi_plan_result result;
};

/* ---- A problem as bytes -------------------------------------------------------------------- */

struct bytes {
    unsigned char *at; /* NULL: only counts */
    size_t used;
};

static void put(struct bytes *to, const void *from, size_t bytes)
{
    if (to->at && bytes)
        memcpy(to->at + to->used, from, bytes);
    to->used += bytes;
}

static void put_ranges(struct bytes *to, const struct rpi_ranges *ranges)
{
    put(to, &ranges->count, sizeof ranges->count);
    put(to, ranges->data, ranges->count * sizeof *ranges->data);
}

static void put_problem(struct bytes *to, const struct rpi_problem *problem)
{
    const struct rpi_lifetimes *l = problem->lifetimes;
    size_t count = l->count;
    put(to, &l->count, sizeof l->count);
    put(to, &l->lanes, sizeof l->lanes);
    put(to, l->bytes, count * sizeof *l->bytes);
    put(to, l->lane, count * sizeof *l->lane);
    put(to, l->rank, count * sizeof *l->rank);
    put(to, l->first, count * l->lanes * sizeof *l->first);
    put(to, problem->kept, count * sizeof *problem->kept);
    put_ranges(to, &problem->obstacles->always);
    put_ranges(to, &problem->obstacles->later);
}

/* FNV-1a, a word at a time. */
static uint64_t hash_of(const unsigned char *at, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, at + i, bytes - i < sizeof word ? bytes - i : sizeof word);
        hash = (hash ^ word) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    return hash;
}

static void free_plan(struct rpi_made_plan *plan)
{
    if (!plan)
        return;
    rpi_free(plan->problem);
    rpi_free(plan->offsets);
    rpi_free(plan);
}

/* NULL for want of memory. */
static struct rpi_made_plan *make_plan(const struct rpi_problem *problem)
{
    struct bytes bytes = {0};
    put_problem(&bytes, problem);
    struct rpi_made_plan *plan = rpi_calloc(1, sizeof *plan);
    if (!plan)
        return NULL;
    plan->count = problem->lifetimes->count;
    plan->problem_bytes = bytes.used;
    plan->problem = rpi_malloc(bytes.used);
    plan->offsets = rpi_reallocarray(NULL, plan->count + (size_t)1, sizeof *plan->offsets);
    if (!plan->problem || !plan->offsets) {
        free_plan(plan);
        return NULL;
    }
    bytes = (struct bytes){.at = plan->problem};
    put_problem(&bytes, problem);
    plan->hash = hash_of(plan->problem, plan->problem_bytes);
    return plan;
}

/* ---- The list ------------------------------------------------------------------------------ */

static bool is_same(const struct rpi_made_plan *a, const struct rpi_made_plan *b)
{
    assert(a->problem && b->problem);
    return a->hash == b->hash && a->problem_bytes == b->problem_bytes &&
           memcmp(a->problem, b->problem, a->problem_bytes) == 0;
}

bool rpi_plans_find(const struct rpi_plans *plans, const struct rpi_problem *problem,
                    uint64_t *out_offsets, struct rpi_plan_result *out_result)
{
    if (!plans->made.count)
        return false;
    struct rpi_made_plan *wanted = make_plan(problem);
    size_t i = 0;
    while (wanted && i < plans->made.count && !is_same(wanted, plans->made.data[i]))
        i++;
    bool found = wanted && i < plans->made.count;
    if (found) {
        memcpy(out_offsets, plans->made.data[i]->offsets, wanted->count * sizeof *out_offsets);
        *out_result = plans->made.data[i]->result;
    }
    free_plan(wanted);
    return found;
}

void rpi_plans_keep(struct rpi_plans *plans, const struct rpi_problem *problem,
                    const uint64_t *offsets, const struct rpi_plan_result *result)
{
    assert(plans->made.count <= MOST_PLANS);
    struct rpi_made_plan *plan = make_plan(problem);
    if (!plan)
        return;
    memcpy(plan->offsets, offsets, plan->count * sizeof *offsets);
    plan->result = *result;
    if (plans->made.count == MOST_PLANS) {
        free_plan(plans->made.data[0]);
        plans->made.count--;
        memmove(plans->made.data, plans->made.data + 1,
                plans->made.count * sizeof *plans->made.data);
    }
    if (!rpi_vec_push(&plans->made, plan))
        free_plan(plan);
}

void rpi_plans_finish(struct rpi_plans *plans)
{
    for (size_t i = 0; i < plans->made.count; i++)
        free_plan(plans->made.data[i]);
    rpi_vec_finish(&plans->made);
}
