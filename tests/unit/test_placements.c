/* SPDX-License-Identifier: MIT
 *
 * The ways of placing a recording: layouts of random recordings against reachability found by
 * walking the graph, the check itself against layouts that are wrong, c10's walk against the order,
 * and a callable on several streams compared through the driver.
 */
#define RP_UNSTABLE
#include "graph_fixture.h"

#include "memory/order/lifetimes.h"
#include "recording/c10.h"
#include "recording/c10_walk.h"
#include "recording/placements.h"
#include "reprise_tools.h"

enum { MOST_NODES = 400, MOST_BLOCKS = 100, STREAMS = 4 };

/* A recording in the making, and which node comes before which, found without the order. */
struct random_record {
    struct rpi_capture_record record;
    bool before[MOST_NODES][MOST_NODES]; /* [u][v]: u is v or comes before it */
    uint32_t last[STREAMS];
    uint32_t alive[MOST_BLOCKS], reader[MOST_BLOCKS];
    size_t alive_count;
};

static uint32_t pick(uint32_t count)
{
    return (uint32_t)rand() % count;
}

static uint32_t add_node(struct random_record *r, const uint32_t *predecessors, size_t count)
{
    struct rpi_predecessors *all = &r->record.predecessors;
    uint32_t node;
    assert_int_equal(rpi_order_add(r->record.order, predecessors, count, &node, NULL), RP_OK);
    assert_true(node < MOST_NODES);
    r->before[node][node] = true;
    for (size_t i = 0; i < count; i++) {
        assert_true(rpi_vec_push(&all->nodes, predecessors[i]));
        for (uint32_t u = 0; u < node; u++)
            r->before[u][node] |= r->before[u][predecessors[i]];
    }
    assert_true(rpi_vec_push(&all->ends, (uint32_t)all->nodes.count));
    return node;
}

static void free_random(struct random_record *r)
{
    size_t victim = pick((uint32_t)r->alive_count);
    uint32_t block = r->alive[victim];
    uint32_t nodes[] = {r->last[r->record.blocks.data[block].stream], r->last[r->reader[block]]};
    assert_int_equal(rpi_capture_record_free(&r->record, block, nodes, 2, NULL), RP_OK);
    r->alive[victim] = r->alive[--r->alive_count];
}

static void alloc_random(struct random_record *r)
{
    uint32_t s = pick(STREAMS), reader = pick(STREAMS), block;
    uint64_t bytes = pick(12) ? 1000 * (1 + (uint64_t)pick(5000)) : 0;
    assert_int_equal(rpi_capture_record_alloc(&r->record, (int64_t)r->record.blocks.count, bytes, s,
                                              &r->last[s], 1, &block, NULL),
                     RP_OK);
    r->last[s] = add_node(r, &r->last[s], 1);
    uint32_t pair[] = {r->last[reader], r->last[s]};
    r->last[reader] = add_node(r, pair, 2);
    assert_int_equal(rpi_capture_record_use(&r->record, block, reader, NULL), RP_OK);
    r->reader[block] = reader;
    r->alive[r->alive_count++] = block;
}

static void make_random(struct random_record *r, unsigned seed)
{
    memset(r, 0, sizeof *r);
    srand(seed);
    assert_int_equal(rpi_capture_record_init(&r->record, "random", NULL), RP_OK);
    r->last[0] = add_node(r, NULL, 0);
    for (uint32_t s = 1; s < STREAMS; s++)
        r->last[s] = add_node(r, &r->last[0], 1);
    while (r->record.blocks.count < MOST_BLOCKS) {
        uint32_t what = pick(10);
        if (what < 4 && r->alive_count)
            free_random(r);
        else if (what < 5 && rpi_order_nodes(r->record.order) < MOST_NODES - 2 * MOST_BLOCKS)
            r->last[0] = add_node(r, r->last, 1 + pick(STREAMS));
        else
            alloc_random(r);
    }
}

/* Of two blocks that overlap the earlier must be freed, and all its free's nodes come before one of
 * the later one's. */
static bool may_share(const struct random_record *r, uint32_t earlier, uint32_t later)
{
    const struct rpi_capture_record *record = &r->record;
    const struct rpi_block *a = &record->blocks.data[earlier], *b = &record->blocks.data[later];
    if (a->free_event == RPI_NO_EVENT || a->free_event > b->alloc_event)
        return false;
    const struct rpi_event *freed = &record->events.data[a->free_event];
    const struct rpi_event *alloc = &record->events.data[b->alloc_event];
    for (uint32_t i = 0; i < freed->node_count; i++) {
        bool reached = false;
        for (uint32_t j = 0; j < alloc->node_count; j++)
            reached |= r->before[record->event_nodes.data[freed->first_node + i]]
                                [record->event_nodes.data[alloc->first_node + j]];
        if (!reached)
            return false;
    }
    return true;
}

static bool is_right(const struct random_record *r, const uint64_t *offsets, uint64_t height)
{
    const struct rpi_block *blocks = r->record.blocks.data;
    for (uint32_t b = 0; b < r->record.blocks.count; b++) {
        if (blocks[b].bytes && (offsets[b] % 512 || offsets[b] + blocks[b].bytes > height))
            return false;
        for (uint32_t a = 0; a < b; a++)
            if (blocks[a].bytes && blocks[b].bytes && offsets[a] < offsets[b] + blocks[b].bytes &&
                offsets[b] < offsets[a] + blocks[a].bytes && !may_share(r, a, b))
                return false;
    }
    return true;
}

static void layouts_are_right(void **state)
{
    (void)state;
    static struct random_record r;
    for (unsigned seed = 1; seed <= 40; seed++) {
        make_random(&r, seed);
        uint64_t offsets[MOST_BLOCKS], bound;
        struct rpi_placement online, planned;
        assert_int_equal(rpi_placement_online(&r.record, 512, offsets, &online, NULL), RP_OK);
        assert_true(is_right(&r, offsets, online.bytes));
        assert_int_equal(rpi_placement_check(&r.record, offsets, 512, "place", NULL), RP_OK);
        struct rpi_plan_options options = {.alignment = 512, .budget_ms = 5, .threads = 1};
        assert_int_equal(
            rpi_placement_planned(&r.record, &options, offsets, &bound, &planned, NULL), RP_OK);
        assert_true(is_right(&r, offsets, planned.bytes));
        assert_int_equal(rpi_placement_check(&r.record, offsets, 512, "plan", NULL), RP_OK);
        assert_true(bound <= planned.bytes && bound <= online.bytes);
        rpi_capture_record_finish(&r.record);
    }
}

/* Any layout: the check says the same of it as the walk through the graph. */
static void wrong_layouts_are_found(void **state)
{
    (void)state;
    static struct random_record r;
    size_t wrong = 0;
    for (unsigned seed = 1; seed <= 40; seed++) {
        make_random(&r, seed);
        uint64_t offsets[MOST_BLOCKS];
        struct rpi_placement online;
        assert_int_equal(rpi_placement_online(&r.record, 512, offsets, &online, NULL), RP_OK);
        offsets[pick(MOST_BLOCKS)] = 512 * (uint64_t)pick(100000);
        struct rp_error err;
        rp_status status = rpi_placement_check(&r.record, offsets, 512, "place", &err);
        assert_int_equal(status == RP_OK, is_right(&r, offsets, UINT64_MAX));
        if (status != RP_OK)
            assert_non_null(strstr(err.message, "alive together"));
        wrong += status != RP_OK;
        rpi_capture_record_finish(&r.record);
    }
    assert_in_range(wrong, 5, 39);
}

static uint64_t hold(struct random_record *r, enum rpi_c10_policy policy)
{
    struct rpi_c10 *c10 = NULL;
    assert_int_equal(rpi_c10_create(policy, &c10, NULL), RP_OK);
    assert_int_equal(rpi_c10_capture(c10, &r->record, false, NULL), RP_OK);
    uint64_t bytes = rpi_c10_reserved(c10);
    rpi_c10_destroy(c10);
    return bytes;
}

/* What c10 finds by walking is what the order knows. */
static void the_walk_finds_what_the_order_knows(void **state)
{
    (void)state;
    static struct random_record r;
    size_t less = 0;
    for (unsigned seed = 1; seed <= 40; seed++) {
        make_random(&r, seed);
        struct rpi_c10_walk walk = {.predecessors = &r.record.predecessors};
        uint32_t nodes = rpi_order_nodes(r.record.order);
        for (int i = 0; i < 30; i++) {
            uint32_t terminals[2] = {pick(nodes), pick(nodes)}, node = pick(nodes);
            uint32_t stream = (uint32_t)i; /* a set of its own: sets only grow */
            assert_true(rpi_c10_walk_extend(&walk, stream, terminals, 2));
            assert_int_equal(rpi_c10_walk_holds(&walk, stream, node),
                             r.before[node][terminals[0]] || r.before[node][terminals[1]]);
        }
        rpi_c10_walk_finish(&walk);
        uint64_t walked = hold(&r, RPI_C10_REUSE);
        less += walked < hold(&r, RPI_C10_DEFAULT);
        r.record.predecessors.ends.count = 0; /* from here on the order answers */
        assert_int_equal(hold(&r, RPI_C10_REUSE), walked);
        rpi_capture_record_finish(&r.record);
    }
    assert_true(less > 0);
}

/* ---- Through the driver -------------------------------------------------------------------- */

/* Three blocks one after the other on stream 0, each read on another stream that is joined before
 * the next: one block's memory is enough. */
static rp_status three_in_turn(struct rp_call *call, void *user, struct rp_error *err)
{
    struct rpt_fixture *f = user;
    CUstream own = rp_call_stream(call);
    rp_status status = RP_OK;
    for (int i = 0; status == RP_OK && i < 3; i++) {
        uint64_t block, result;
        uint32_t count = 1 << 20;
        status = rp_call_alloc(call, count * sizeof(float), own, &block, err);
        if (status == RP_OK)
            status = rp_call_alloc(call, count * sizeof(float), f->streams[0], &result, err);
        if (status == RP_OK)
            status = rpt_fill(f, own, block, 1, count, err);
        if (status == RP_OK)
            status = rpt_join(f, own, f->streams[0], err);
        if (status == RP_OK)
            status = rpt_scale(f, f->streams[0], result, block, 2, count, err);
        if (status == RP_OK)
            status = rp_call_use(call, block, f->streams[0], err);
        if (status == RP_OK)
            status = rp_call_free(call, block, err);
        if (status == RP_OK)
            status = rp_call_free(call, result, err);
        if (status == RP_OK)
            status = rpt_join(f, f->streams[0], own, err);
    }
    return status;
}

static void a_callable_is_compared(void **state)
{
    (void)state;
    struct rpt_fixture f;
    struct rp_placements found;
    const uint64_t block = 4 << 20;
    rpt_open(&f);
    RPT_OK(&f, rp_compare_placements(f.pool, three_in_turn, &f, NULL, 0, &found, &f.err));
    assert_int_equal(found.blocks, 6);
    assert_int_equal(found.operations, 12);
    assert_int_equal(found.nodes, 6);
    assert_int_equal(found.lower_bound_bytes, 2 * block);
    assert_int_equal(found.plan.bytes, 2 * block);
    assert_int_equal(found.place.bytes, 2 * block);
    assert_int_equal(found.c10_reuse.bytes, 40 << 20);
    assert_int_equal(found.c10_default.bytes, 40 << 20);
    assert_true(found.place.ns_per_op > 0 && found.plan.ns_per_op > 0);
    assert_true(found.c10_default.ns_per_op > 0 && found.c10_reuse.ns_per_op > 0);
    struct rp_pool_info info = {.size = sizeof info};
    rp_pool_info(f.pool, &info);
    assert_int_equal(info.mapped_bytes, 0);
    assert_int_equal(rp_compare_placements(f.pool, NULL, &f, NULL, 0, &found, &f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    rpt_close(&f);
}

static rp_status nothing_at_all(struct rp_call *call, void *user, struct rp_error *err)
{
    (void)call;
    (void)user;
    (void)err;
    return RP_OK;
}

static void nothing_takes_nothing(void **state)
{
    (void)state;
    struct rpt_fixture f;
    struct rp_placements found;
    rpt_open(&f);
    RPT_OK(&f, rp_compare_placements(f.pool, nothing_at_all, &f, NULL, 0, &found, &f.err));
    assert_int_equal(found.blocks, 0);
    assert_int_equal(found.place.bytes, 0);
    assert_int_equal(found.plan.bytes, 0);
    assert_int_equal(found.c10_reuse.bytes, 0);
    rpt_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_are_right),
        cmocka_unit_test(wrong_layouts_are_found),
        cmocka_unit_test(the_walk_finds_what_the_order_knows),
        cmocka_unit_test(a_callable_is_compared),
        cmocka_unit_test(nothing_takes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
