/* SPDX-License-Identifier: MIT
 *
 * Sequences of random captures that keep some of their blocks: the height of the pool beside its
 * bound, as JSON. Each capture is planned when it is added, as in a pool, around what is there.
 *
 *     bench_pool [--seeds N, default 20] [--budget-ms N a capture, default 50]
 *
 * A shape is a number of captures, of blocks in each, of streams, and of blocks that are kept on
 * the average; the ratios are of height to bound over the seeds. Every layout is checked block by
 * block.
 */
#include "problems.h"

#include "memory/pool/pool_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 512, MOST_BLOCKS = 200, MOST_CAPTURES = 12, MOST_SEEDS = 1000 };

static const struct shape {
    uint32_t captures, blocks, streams;
    double kept;
} shapes[] = {
    {2, 5, 1, 1},    {4, 5, 1, 2},    {12, 5, 1, 1},   {2, 20, 1, 4},
    {4, 20, 1, 4},   {12, 20, 1, 4},  {4, 20, 3, 4},   {12, 20, 3, 2},
    {2, 50, 1, 10},  {4, 50, 1, 10},  {4, 50, 3, 10},  {12, 50, 3, 5},
    {2, 200, 1, 20}, {4, 200, 1, 20}, {4, 200, 3, 20}, {12, 200, 3, 10},
};

struct capture {
    struct rpi_pool_member member;
    struct rpi_lifetimes x;
    bool kept[MOST_BLOCKS + 1];
    uint64_t offsets[MOST_BLOCKS];
};

struct outcome {
    double ratio, ms;
};

static void expect(rp_status status, const struct rp_error *err)
{
    if (status == RP_OK)
        return;
    fprintf(stderr, "bench_pool: %s\n", err->message);
    exit(1);
}

static void add_range(struct rpi_ranges *ranges, uint64_t from, uint64_t to)
{
    if (!rpi_vec_push(ranges, ((struct rpi_range){from, to})))
        exit(1);
}

static void occupy(struct capture *c)
{
    c->member.node.kind = RPI_COMPOSE_CAPTURE;
    for (uint32_t i = 0; i < c->x.count; i++) {
        uint64_t end = c->offsets[i] + c->x.bytes[i];
        add_range(&c->member.all, c->offsets[i], end);
        if (!c->kept[i])
            continue;
        add_range(&c->member.kept, c->offsets[i], end);
        c->member.kept_bytes += c->x.bytes[i];
    }
    rpi_ranges_join(&c->member.all);
    rpi_ranges_join(&c->member.kept);
}

/* No block lies over another of its capture that it may live beside, or over what earlier captures
 * keep. */
static bool is_valid(const struct capture *captures, uint32_t last)
{
    const struct capture *c = &captures[last];
    uint64_t height = 0;
    for (uint32_t i = 0; i < c->x.count; i++) {
        uint64_t end = c->offsets[i] + c->x.bytes[i];
        height = height < end ? end : height;
        for (uint32_t k = 0; k < last; k++)
            if (rpi_ranges_overlap(&captures[k].member.kept, c->offsets[i], end))
                return false;
    }
    return layout_is_valid(&c->x, c->offsets, height);
}

static struct outcome run(const struct shape *shape, uint64_t seed, double budget_ms)
{
    static struct capture captures[MOST_CAPTURES];
    struct rpi_pool_group group = {.node = {.kind = RPI_COMPOSE_SEQUENCE}};
    struct rpi_pool pool = {.root = &group, .alignment = ALIGNMENT};
    struct outcome outcome = {0};
    struct rp_error err;
    memset(captures, 0, sizeof captures);
    for (uint32_t i = 0; i < shape->captures; i++) {
        struct capture *c = &captures[i];
        struct program program = {.streams = shape->streams,
                                  .blocks = shape->blocks,
                                  .p_free = 0.45,
                                  .p_join = 0.15,
                                  .seed = seed * MOST_CAPTURES + i + 1,
                                  .p_keep = shape->kept / shape->blocks};
        struct rpi_plan_options options = {
            .alignment = ALIGNMENT, .budget_ms = budget_ms, .timed = true, .threads = 1};
        struct rpi_pool_obstacles obstacles;
        struct rpi_plan_result result;
        random_capture(&program, ALIGNMENT, &c->x, c->kept);
        expect(rpi_pool_obstacles(&pool, &group, &obstacles, &err), &err);
        expect(rpi_pool_plan(&c->x, c->kept, &obstacles, &options, c->offsets, &result, &err),
               &err);
        rpi_pool_obstacles_finish(&obstacles);
        occupy(c);
        if (!is_valid(captures, i)) {
            fprintf(stderr, "bench_pool: a layout is wrong\n");
            exit(1);
        }
        c->member.lower_bound = result.lower_bound;
        rpi_pool_add(&pool, &group, &c->member.node);
        outcome.ms += result.ms / shape->captures;
    }
    outcome.ratio =
        (double)rpi_pool_height(&group.node) / (double)rpi_pool_lower_bound(&pool, &group.node);
    for (uint32_t i = 0; i < shape->captures; i++) {
        rpi_pool_member_finish(&captures[i].member);
        rpi_lifetimes_finish(&captures[i].x);
    }
    return outcome;
}

static int by_ratio(const void *left, const void *right)
{
    double a = ((const struct outcome *)left)->ratio, b = ((const struct outcome *)right)->ratio;
    return (a > b) - (a < b);
}

int main(int count, char **arguments)
{
    static struct outcome outcomes[MOST_SEEDS];
    unsigned seeds = 20;
    double budget_ms = 50;
    for (int i = 1; i + 1 < count; i += 2) {
        if (!strcmp(arguments[i], "--seeds"))
            seeds = (unsigned)strtoul(arguments[i + 1], NULL, 10);
        else if (!strcmp(arguments[i], "--budget-ms"))
            budget_ms = strtod(arguments[i + 1], NULL);
        else
            seeds = 0;
    }
    if (count % 2 == 0 || seeds < 1 || seeds > MOST_SEEDS) {
        fprintf(stderr, "usage: bench_pool [--seeds N] [--budget-ms N]\n");
        return 2;
    }
    printf("[");
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const struct shape *shape = &shapes[s];
        double ms = 0, sum = 0;
        for (unsigned seed = 0; seed < seeds; seed++) {
            outcomes[seed] = run(shape, seed + 1, budget_ms);
            ms += outcomes[seed].ms / seeds;
            sum += outcomes[seed].ratio / seeds;
        }
        qsort(outcomes, seeds, sizeof *outcomes, by_ratio);
        printf("%s\n  {\"captures\": %u, \"blocks\": %u, \"streams\": %u, \"kept\": %.0f, "
               "\"mean\": %.4f, \"median\": %.4f, \"p90\": %.4f, \"worst\": %.4f, "
               "\"ms_a_capture\": %.1f}",
               s ? "," : "", shape->captures, shape->blocks, shape->streams, shape->kept, sum,
               outcomes[seeds / 2].ratio, outcomes[seeds * 9 / 10].ratio, outcomes[seeds - 1].ratio,
               ms);
        fflush(stdout);
    }
    printf("\n]\n");
    return 0;
}
