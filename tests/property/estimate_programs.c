/* SPDX-License-Identifier: MIT
 *
 * Random programs, estimated and then captured: what the captures take must be what was estimated,
 * to the byte, and only one chunk of device memory may have been taken before.
 *
 * A group is some programs, each a callable, in pools of random kinds within a pool of a random
 * kind. Some are captured before the estimate. Programs do the same in each of their runs.
 *
 *     estimate_programs [--groups N] [--first SEED] [--driver host|cuda]
 */
#include "property/callable.h"

#include "graph/callable/callable.h"
#include "walkers.h"

#include <inttypes.h>

enum { MEMBERS_MOST = 6, POOLS = 3 };

struct group {
    struct rpt_fixture f;
    uint64_t seed, random;
    struct rp_pool *top, *pools[POOLS];
    CUevent events[BLOCKS_MOST];
    struct member {
        struct program program;
        struct subject subject;
        struct rp_callable *callable;
        struct rp_arg args[3];
        struct rp_inputs inputs;
    } member[MEMBERS_MOST];
    int members;
};

struct totals {
    uint64_t groups, programs, bytes, bound, searched;
};

static struct rp_pool *make_pool(struct group *g, struct rp_pool *parent)
{
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    struct rp_pool *pool;
    options.kind = (enum rp_pool_kind)below(&g->random, 3);
    options.parent = parent;
    options.plan_budget_ms = 2; /* so that some searches are cut short */
    RPT_OK(&g->f, rp_pool_create(g->f.device, &options, &pool, &g->f.err));
    return pool;
}

static void draw(struct group *g, uint64_t seed)
{
    do
        program_generate(&g->member[g->members].program, seed++);
    while (g->member[g->members].program.difference != SAME);
}

static void open_group(struct group *g, const struct rp_driver *driver, uint64_t seed)
{
    *g = (struct group){.seed = seed, .random = seed};
    rpt_open_on(&g->f, driver, NULL);
    g->top = make_pool(g, NULL);
    for (int i = 0; i < POOLS; i++)
        g->pools[i] = make_pool(g, i ? g->pools[below(&g->random, i)] : g->top);
    for (int i = 0; i < BLOCKS_MOST; i++)
        assert_int_equal(driver->cuEventCreate(&g->events[i], CU_EVENT_DISABLE_TIMING), 0);
    for (int count = 1 + below(&g->random, MEMBERS_MOST); g->members < count; g->members++) {
        struct member *m = &g->member[g->members];
        struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
        draw(g, next_random(&g->random));
        m->subject = (struct subject){
            .program = &m->program, .f = &g->f, .events = g->events, .alignment = 512};
        options.pool = g->pools[below(&g->random, POOLS)];
        RPT_OK(&g->f, rp_callable_create(g->f.device, &options, subject_run, &m->subject,
                                         &m->callable, &g->f.err));
        m->args[0] = rpt_arg(0, WIDTH, RP_ARG_IN);
        m->args[1] = rpt_arg(0, WIDTH, RP_ARG_INOUT);
        m->args[2] = rpt_arg(0, WIDTH, RP_ARG_OUT);
        m->inputs = (struct rp_inputs){.args = m->args, .arg_count = 3};
    }
}

static void close_group(struct group *g)
{
    for (int i = 0; i < g->members; i++)
        rp_callable_destroy(g->member[i].callable);
    for (int i = 0; i < BLOCKS_MOST; i++)
        g->f.driver->cuEventDestroy(g->events[i]);
    for (int i = POOLS; i-- > 0;)
        rp_pool_destroy(g->pools[i]);
    rp_pool_destroy(g->top);
    rpt_close(&g->f);
}

static bool capture(struct group *g, int i)
{
    struct member *m = &g->member[i];
    struct rp_shape_info shape = {.size = sizeof shape};
    struct rp_graph_info graph = {.size = sizeof graph};
    m->subject.runs = 0;
    RPT_OK(&g->f, rp_callable_capture(m->callable, &m->inputs, 1, NULL, NULL, NULL, &g->f.err));
    if (!rp_callable_shape_info(m->callable, 0, &shape) || !shape.graph) {
        fprintf(stderr, "group %" PRIu64 ": program %d was not captured: %s\n", g->seed, i,
                shape.reason);
        return false;
    }
    rp_graph_info(shape.graph, &graph);
    const char *wrong = rpt_walk(g->top);
    if (!wrong && !rpi_shapes_are_valid(&m->callable->shapes))
        wrong = "rpi_shapes_are_valid";
    if (wrong)
        fprintf(stderr, "group %" PRIu64 ": program %d: %s does not hold\n", g->seed, i, wrong);
    return !wrong && !graph.diverged_blocks;
}

static struct rp_estimate_info estimate(struct group *g)
{
    struct rp_callable *callables[MEMBERS_MOST];
    struct rp_inputs inputs[MEMBERS_MOST];
    struct rp_estimate *made;
    struct rp_estimate_info info = {.size = sizeof info};
    for (int i = 0; i < g->members; i++) {
        callables[i] = g->member[i].callable;
        inputs[i] = g->member[i].inputs;
        g->member[i].subject.runs = 0;
    }
    RPT_OK(&g->f, rp_estimate(callables, inputs, (size_t)g->members, &made, &g->f.err));
    rp_estimate_info(made, &info);
    rp_estimate_destroy(made);
    return info;
}

static bool run_group(const struct rp_driver *driver, uint64_t seed, struct totals *totals)
{
    static struct group group;
    struct group *g = &group;
    struct rp_pool_info before = {.size = sizeof before}, taken = {.size = sizeof taken};
    open_group(g, driver, seed);
    int captured = below(&g->random, g->members);
    bool passed = true;
    for (int i = 0; passed && i < captured; i++)
        passed = capture(g, i);
    rp_pool_info(g->top, &before);
    struct rp_estimate_info info = estimate(g);
    rp_pool_info(g->top, &taken);
    passed &= taken.mapped_bytes == before.mapped_bytes && taken.graphs == before.graphs;
    for (int i = captured; passed && i < g->members; i++)
        passed = capture(g, i);
    rp_pool_info(g->top, &taken);
    bool right = passed && !info.failed && info.planned_bytes == taken.planned_bytes &&
                 info.mapped_bytes == taken.mapped_bytes &&
                 info.lower_bound_bytes == taken.lower_bound_bytes;
    if (!right)
        fprintf(stderr,
                "group %" PRIu64 ": estimated %" PRIu64 " planned, %" PRIu64
                " mapped, bound %" PRIu64 "; taken %" PRIu64 ", %" PRIu64 ", %" PRIu64 "\n",
                seed, info.planned_bytes, info.mapped_bytes, info.lower_bound_bytes,
                taken.planned_bytes, taken.mapped_bytes, taken.lower_bound_bytes);
    totals->groups++;
    totals->programs += (uint64_t)g->members;
    totals->bytes += taken.planned_bytes;
    totals->bound += taken.lower_bound_bytes;
    totals->searched += taken.planned_bytes != taken.lower_bound_bytes;
    close_group(g);
    return right;
}

int main(int argc, char **argv)
{
    uint64_t groups = 100, first = 1;
    const struct rp_driver *driver = rpi_driver_host();
    struct totals totals = {0};
    struct rp_error err = {0};
    bool passed = true;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--groups"))
            groups = strtoull(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--first"))
            first = strtoull(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--driver") && !strcmp(argv[i + 1], "cuda")) {
            if (rpi_driver_libcuda(&driver, &err) != RP_OK) {
                fprintf(stderr, "skipped: %s\n", err.message);
                return 77;
            }
        } else if (strcmp(argv[i], "--driver") != 0 || strcmp(argv[i + 1], "host") != 0) {
            fprintf(stderr, "usage: estimate_programs [--groups N] [--first SEED] "
                            "[--driver host|cuda]\n");
            return 2;
        }
    }
    for (uint64_t seed = first; passed && seed < first + groups; seed++)
        passed = run_group(driver, seed, &totals);
    printf("%" PRIu64 " groups of %" PRIu64 " programs: %s; %" PRIu64 " bytes, %.4f of the bound, "
           "%" PRIu64 " groups above it\n",
           totals.groups, totals.programs, passed ? "every estimate right" : "WRONG", totals.bytes,
           totals.bound ? (double)totals.bytes / (double)totals.bound : 1, totals.searched);
    return passed ? 0 : 1;
}
