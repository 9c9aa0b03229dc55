/* SPDX-License-Identifier: MIT
 *
 * Online placement: hand-made cases; random programs on several streams, where every answer is held
 * against a slow reference that walks all segments and asks plain reachability; and host memory
 * that fails anywhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memory/place/place.h"

struct fixture {
    struct rpi_order *order;
    struct rpi_place place;
    struct rpi_frontier frontier;
};

static void open_place(struct fixture *f, uint64_t alignment, uint64_t height)
{
    *f = (struct fixture){0};
    assert_int_equal(rpi_order_create(&f->order, NULL), RP_OK);
    rpi_place_init(&f->place, f->order, alignment, height);
}

static void close_place(struct fixture *f)
{
    rpi_place_finish(&f->place);
    rpi_frontier_finish(&f->frontier);
    rpi_order_destroy(f->order);
}

static uint32_t add_node(struct fixture *f, const uint32_t *predecessors, size_t count)
{
    uint32_t node = 0;
    assert_int_equal(rpi_order_add(f->order, predecessors, count, &node, NULL), RP_OK);
    return node;
}

static void look_from(struct fixture *f, uint32_t stream, const uint32_t *nodes, size_t count)
{
    assert_int_equal(rpi_frontier_set(&f->frontier, f->order, nodes, count, NULL), RP_OK);
    assert_int_equal(rpi_place_look(&f->place, stream, &f->frontier, NULL), RP_OK);
}

static uint32_t take(struct fixture *f, uint64_t offset, uint64_t bytes)
{
    uint32_t block = 0;
    assert_int_equal(rpi_place_take(&f->place, offset, bytes, &block, NULL), RP_OK);
    assert_true(rpi_place_is_valid(&f->place));
    return block;
}

static void dead_blocks_give_their_memory(void **state)
{
    (void)state;
    struct fixture f;
    open_place(&f, 512, 4096);
    uint32_t first = add_node(&f, NULL, 0), second = add_node(&f, &first, 1);
    uint32_t other = add_node(&f, NULL, 0);
    look_from(&f, 0, NULL, 0);
    assert_int_equal(rpi_place_find(&f.place, 1024), 0);
    uint32_t a = take(&f, 0, 1024);
    look_from(&f, 0, &second, 1);
    assert_false(rpi_place_fits(&f.place, 512, 512)); /* alive */
    assert_int_equal(rpi_place_free(&f.place, a, &first, 1, NULL), RP_OK);
    look_from(&f, 0, &second, 1);
    assert_true(rpi_place_fits(&f.place, 512, 512));
    look_from(&f, 1, &other, 1);
    assert_false(rpi_place_fits(&f.place, 512, 512)); /* not ordered after it */
    assert_true(rpi_place_fits(&f.place, 1024, 512));
    uint32_t both[] = {other, first};
    look_from(&f, 1, both, 2);
    assert_true(rpi_place_fits(&f.place, 512, 512)); /* joined now */
    close_place(&f);
}

static void free_without_nodes_is_dead_for_nobody(void **state)
{
    (void)state;
    struct fixture f;
    open_place(&f, 1, 0);
    uint32_t node = add_node(&f, NULL, 0);
    uint32_t a = take(&f, 0, 100);
    assert_int_equal(rpi_place_free(&f.place, a, NULL, 0, NULL), RP_OK);
    look_from(&f, 0, &node, 1);
    assert_false(rpi_place_fits(&f.place, 99, 1));
    assert_int_equal(rpi_place_find(&f.place, 8), 100);
    close_place(&f);
}

static void smallest_gap_is_chosen(void **state)
{
    (void)state;
    struct fixture f;
    open_place(&f, 16, 1008);
    uint32_t node = add_node(&f, NULL, 0);
    look_from(&f, 0, NULL, 0);
    take(&f, 0, 100);
    uint32_t wide = take(&f, 112, 300);
    take(&f, 416, 100);
    uint32_t narrow = take(&f, 528, 120);
    take(&f, 656, 100);
    assert_int_equal(rpi_place_free(&f.place, wide, &node, 1, NULL), RP_OK);
    assert_int_equal(rpi_place_free(&f.place, narrow, &node, 1, NULL), RP_OK);
    look_from(&f, 0, &node, 1);
    assert_int_equal(rpi_place_find(&f.place, 120), 528);
    assert_int_equal(rpi_place_find(&f.place, 130), 768); /* 240 at the top */
    assert_int_equal(rpi_place_find(&f.place, 290), 112);
    assert_int_equal(rpi_place_find(&f.place, 310), 768); /* grows */
    assert_int_equal(rpi_place_find(&f.place, UINT64_MAX - 10), UINT64_MAX);
    close_place(&f);
}

/* Gaps of 160 at 576 and 400 at 112: the tight one for 60, the low one for 50. */
static void what_fits_nowhere_well_is_kept_low(void **state)
{
    (void)state;
    struct fixture f;
    open_place(&f, 16, 832);
    uint32_t node = add_node(&f, NULL, 0);
    look_from(&f, 0, NULL, 0);
    take(&f, 0, 112);
    uint32_t wide = take(&f, 112, 400);
    take(&f, 512, 64);
    uint32_t narrow = take(&f, 576, 160);
    take(&f, 736, 96);
    assert_int_equal(rpi_place_free(&f.place, wide, &node, 1, NULL), RP_OK);
    assert_int_equal(rpi_place_free(&f.place, narrow, &node, 1, NULL), RP_OK);
    look_from(&f, 0, &node, 1);
    assert_int_equal(rpi_place_find(&f.place, 160), 576);
    assert_int_equal(rpi_place_find(&f.place, 60), 576);
    assert_int_equal(rpi_place_find(&f.place, 50), 112);
    assert_int_equal(rpi_place_find(&f.place, 170), 112);
    close_place(&f);
}

/* What two streams freed side by side is one gap for who comes after both, and for nobody else. */
static void gaps_join_for_who_may_take_both(void **state)
{
    (void)state;
    struct fixture f;
    open_place(&f, 1, 0);
    uint32_t a = add_node(&f, NULL, 0), b = add_node(&f, NULL, 0);
    uint32_t first = take(&f, 0, 100), second = take(&f, 100, 50);
    take(&f, 150, 10);
    assert_int_equal(rpi_place_free(&f.place, first, &a, 1, NULL), RP_OK);
    assert_int_equal(rpi_place_free(&f.place, second, &b, 1, NULL), RP_OK);
    look_from(&f, 0, &a, 1);
    assert_int_equal(rpi_place_find(&f.place, 100), 0);
    assert_int_equal(rpi_place_find(&f.place, 101), 160);
    look_from(&f, 1, &b, 1);
    assert_int_equal(rpi_place_find(&f.place, 50), 100);
    assert_int_equal(rpi_place_find(&f.place, 51), 160);
    uint32_t both[] = {a, b};
    look_from(&f, 1, both, 2);
    assert_int_equal(rpi_place_find(&f.place, 150), 0);
    take(&f, 80, 40);
    look_from(&f, 0, both, 2);
    assert_int_equal(rpi_place_find(&f.place, 80), 0);
    assert_int_equal(rpi_place_find(&f.place, 30), 120);
    close_place(&f);
}

/* A stream whose dependencies were set by hand comes after less than before. */
static void a_frontier_may_go_back(void **state)
{
    (void)state;
    struct fixture f;
    open_place(&f, 1, 0);
    uint32_t first = add_node(&f, NULL, 0), second = add_node(&f, &first, 1);
    uint32_t a = take(&f, 0, 10);
    assert_int_equal(rpi_place_free(&f.place, a, &second, 1, NULL), RP_OK);
    look_from(&f, 0, &second, 1);
    assert_int_equal(rpi_place_find(&f.place, 10), 0);
    look_from(&f, 0, &first, 1);
    assert_int_equal(rpi_place_find(&f.place, 10), 10);
    look_from(&f, 0, &second, 1);
    assert_int_equal(rpi_place_find(&f.place, 10), 0);
    assert_true(rpi_place_is_valid(&f.place));
    close_place(&f);
}

/* ---- The reference ------------------------------------------------------------------------- */

enum { MOST_BLOCKS = 400, MOST_NODES = 4 };

struct laid {
    uint64_t offset, end;
    uint32_t nodes[MOST_NODES]; /* of its free */
    uint32_t node_count;
    bool freed;
};

/* Every block that was ever laid, the last one on top. */
struct reference {
    const struct rpi_order *order;
    uint64_t alignment, height;
    struct laid laid[MOST_BLOCKS];
    size_t count;
};

static bool comes_after(const struct reference *r, const struct laid *block,
                        const uint32_t *terminals, size_t count)
{
    for (uint32_t n = 0; n < block->node_count; n++) {
        bool reached = false;
        for (size_t t = 0; t < count; t++)
            reached |= rpi_order_reaches(r->order, block->nodes[n], terminals[t]);
        if (!reached)
            return false;
    }
    return block->freed && block->node_count;
}

/* The last block laid over an offset; NULL: none. */
static const struct laid *owner_of(const struct reference *r, uint64_t offset)
{
    for (size_t i = r->count; i-- > 0;)
        if (r->laid[i].offset <= offset && offset < r->laid[i].end)
            return &r->laid[i];
    return NULL;
}

static bool may_take(const struct reference *r, uint64_t offset, const uint32_t *terminals,
                     size_t count)
{
    const struct laid *owner = owner_of(r, offset);
    return !owner || comes_after(r, owner, terminals, count);
}

static bool reference_fits(const struct reference *r, uint64_t offset, uint64_t bytes,
                           const uint32_t *terminals, size_t count)
{
    for (uint64_t at = offset; at < offset + bytes && at < r->height; at += r->alignment)
        if (!may_take(r, at, terminals, count))
            return false;
    return true;
}

static uint64_t reference_find(const struct reference *r, uint64_t bytes, const uint32_t *terminals,
                               size_t count)
{
    uint64_t best = UINT64_MAX, best_gap = UINT64_MAX, lowest = UINT64_MAX, start = 0;
    for (uint64_t at = 0;; at += r->alignment) {
        bool ends = at >= r->height || !may_take(r, at, terminals, count);
        if (ends && at - start >= bytes && at - start < best_gap) {
            best = start;
            best_gap = at - start;
        }
        if (ends && at - start >= bytes && lowest == UINT64_MAX)
            lowest = start;
        if (at >= r->height)
            return best == UINT64_MAX ? start : best_gap > 3 * bytes ? lowest : best;
        if (ends)
            start = at + r->alignment;
    }
}

/* ---- Random programs ----------------------------------------------------------------------- */

enum { ALIGNMENT = 8, MOST_STREAMS = 80 };

struct program {
    struct fixture f;
    struct reference r;
    uint32_t last[MOST_STREAMS]; /* terminal of each stream */
    uint32_t root, streams;
    uint32_t live[MOST_BLOCKS];
    size_t alive;
};

static uint32_t pick(uint32_t count)
{
    return (uint32_t)rand() % count;
}

static void step_free(struct program *p)
{
    if (!p->alive)
        return;
    size_t victim = pick((uint32_t)p->alive);
    uint32_t block = p->live[victim], nodes[MOST_NODES];
    struct laid *laid = &p->r.laid[block];
    uint32_t count = pick(20) ? 1 + pick(MOST_NODES) : 0;
    for (uint32_t n = 0; n < count; n++)
        laid->nodes[n] = nodes[n] = p->last[pick(p->streams)];
    laid->node_count = count;
    laid->freed = true;
    assert_int_equal(rpi_place_free(&p->f.place, block, nodes, count, NULL), RP_OK);
    p->live[victim] = p->live[--p->alive];
}

static void lay(struct program *p, uint64_t offset, uint64_t bytes)
{
    uint32_t block = take(&p->f, offset, bytes);
    assert_int_equal(block, p->r.count);
    uint64_t end = offset + (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    p->r.laid[p->r.count++] = (struct laid){.offset = offset, .end = end};
    p->r.height = p->r.height < end ? end : p->r.height;
    assert_int_equal(p->f.place.height, p->r.height);
    p->live[p->alive++] = block;
}

static void step_alloc(struct program *p)
{
    uint32_t s = pick(p->streams), terminals[2] = {p->last[s], p->last[pick(p->streams)]};
    size_t count = pick(8) ? 1 : 2;
    if (!pick(60))
        terminals[0] = p->root; /* set by hand: it goes back */
    uint64_t bytes = 1 + pick(200);
    look_from(&p->f, s, terminals, count);
    for (int i = 0; i < 3; i++) {
        uint64_t at = ALIGNMENT * (uint64_t)pick((uint32_t)(p->r.height / ALIGNMENT) + 4);
        bool fits = rpi_place_fits(&p->f.place, at, bytes);
        assert_int_equal(fits, reference_fits(&p->r, at, bytes, terminals, count));
        if (fits && !pick(4)) {
            lay(p, at, bytes); /* as a plan does: anywhere it fits */
            return;
        }
    }
    uint64_t offset = rpi_place_find(&p->f.place, bytes);
    assert_int_equal(offset, reference_find(&p->r, bytes, terminals, count));
    lay(p, offset, bytes);
}

static void step_order(struct program *p)
{
    uint32_t s = pick(p->streams), pair[2] = {p->last[s], p->last[pick(p->streams)]};
    p->last[s] = add_node(&p->f, pair, pick(3) ? 1 : 2);
}

static void random_program(unsigned seed, uint32_t streams, size_t blocks)
{
    static struct program p;
    memset(&p, 0, sizeof p);
    srand(seed);
    uint64_t height = ALIGNMENT * (uint64_t)pick(60);
    open_place(&p.f, ALIGNMENT, height);
    p.r.order = p.f.order;
    p.r.alignment = ALIGNMENT;
    p.r.height = height;
    p.streams = streams;
    p.root = add_node(&p.f, NULL, 0);
    for (uint32_t s = 0; s < streams; s++)
        p.last[s] = add_node(&p.f, &p.root, 1);
    while (p.r.count < blocks) {
        uint32_t what = pick(10);
        if (what < 3)
            step_order(&p);
        else if (what < 6)
            step_free(&p);
        else
            step_alloc(&p);
    }
    close_place(&p.f);
}

static void answers_are_the_references(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 250; seed++)
        random_program(seed, 1 + seed % 6, 80);
    random_program(1000, 3, MOST_BLOCKS);
}

/* More streams than views: the least recent are made anew. */
static void many_streams_take_turns(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 3; seed++)
        random_program(seed, MOST_STREAMS, 300);
}

/* ---- The set ------------------------------------------------------------------------------- */

static void the_set_is_sorted(void **state)
{
    (void)state;
    enum { SIZES = 40, OFFSETS = 100 };
    static bool in[SIZES][OFFSETS];
    struct rpi_gap_set set = {0};
    memset(in, 0, sizeof in);
    srand(7);
    for (int step = 0; step < 60000; step++) {
        uint32_t b = pick(SIZES), o = pick(OFFSETS);
        bool grows = step / 15000 % 2 == 0;
        if (!in[b][o] && (grows || !pick(4))) {
            assert_true(rpi_gap_set_reserve(&set, 1));
            rpi_gap_set_insert(&set, (struct rpi_gap){b, o, b * OFFSETS + o});
            in[b][o] = true;
        } else if (in[b][o] && (!grows || !pick(4))) {
            rpi_gap_set_remove(&set, b, o);
            in[b][o] = false;
        }
        uint32_t from = pick(SIZES * OFFSETS), next = from, last = from;
        while (next < SIZES * OFFSETS && !in[next / OFFSETS][next % OFFSETS])
            next++;
        while (last < SIZES * OFFSETS && !in[last / OFFSETS][last % OFFSETS])
            last--; /* wraps below 0 */
        const struct rpi_gap *gap = rpi_gap_set_first_from(&set, from / OFFSETS, from % OFFSETS);
        assert_int_equal(gap ? gap->segment : SIZES * OFFSETS, next);
        gap = rpi_gap_set_last_to(&set, from / OFFSETS, from % OFFSETS);
        assert_int_equal(gap ? gap->segment : UINT32_MAX, last);
        if (step % 100 == 0)
            assert_true(rpi_gap_set_is_valid(&set));
        gap = rpi_gap_set_lowest_from(&set, b);
        for (o = 0, next = SIZES; o < OFFSETS && next == SIZES; o++)
            for (next = b; next < SIZES && !in[next][o];)
                next++;
        assert_int_equal(gap ? gap->segment : SIZES,
                         next == SIZES ? SIZES : next * OFFSETS + o - 1);
    }
    rpi_gap_set_finish(&set);
}

/* ---- Host memory that fails ---------------------------------------------------------------- */

static long allocations_left; /* then one fails */

static bool fails(void)
{
    return allocations_left >= 0 && allocations_left-- == 0;
}

static void *try_malloc(size_t bytes, void *user)
{
    (void)user;
    return fails() ? NULL : malloc(bytes);
}

static void *try_realloc(void *pointer, size_t bytes, void *user)
{
    (void)user;
    return fails() ? NULL : realloc(pointer, bytes);
}

static void plain_free(void *pointer, void *user)
{
    (void)user;
    free(pointer);
}

/* The same program with allocation N failing; each call that fails is made again. */
static void program_that_fails(long n, uint64_t *out_height, bool *out_failed)
{
    struct fixture f;
    uint32_t last[3], live[60], alive = 0;
    allocations_left = -1;
    open_place(&f, 8, 64);
    srand(5);
    for (int s = 0; s < 3; s++)
        last[s] = add_node(&f, NULL, 0);
    allocations_left = n;
    *out_failed = false;
    for (int i = 0; i < 120; i++) {
        uint32_t s = pick(3), pair[2] = {last[s], last[pick(3)]};
        rp_status status = RP_OK;
        do {
            status = rpi_order_add(f.order, pair, pick(2) + 1, &last[s], NULL);
        } while (status != RP_OK);
        if (alive > 20 || (alive && pick(2))) {
            uint32_t victim = pick(alive);
            while (rpi_place_free(&f.place, live[victim], &last[s], 1, NULL) != RP_OK)
                *out_failed = true;
            live[victim] = live[--alive];
            continue;
        }
        uint64_t bytes = 8 + pick(100);
        while (rpi_frontier_set(&f.frontier, f.order, &last[s], 1, NULL) != RP_OK)
            *out_failed = true;
        while (rpi_place_look(&f.place, s, &f.frontier, NULL) != RP_OK)
            *out_failed = true;
        uint64_t offset = rpi_place_find(&f.place, bytes);
        while (rpi_place_take(&f.place, offset, bytes, &live[alive], NULL) != RP_OK)
            *out_failed = true;
        alive++;
        assert_true(rpi_place_is_valid(&f.place));
    }
    *out_height = f.place.height;
    allocations_left = -1;
    close_place(&f);
}

static void a_failure_changes_nothing(void **state)
{
    (void)state;
    static const struct rp_host_memory functions = {try_malloc, try_realloc, plain_free, NULL};
    uint64_t right, height;
    bool failed;
    rp_set_host_memory(&functions);
    program_that_fails(-1, &right, &failed);
    size_t failures = 0;
    for (long n = 0; n < 400; n++) {
        program_that_fails(n, &height, &failed);
        failures += failed;
        if (failed)
            assert_int_equal(height, right);
    }
    rp_set_host_memory(NULL);
    assert_true(failures > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dead_blocks_give_their_memory),
        cmocka_unit_test(free_without_nodes_is_dead_for_nobody),
        cmocka_unit_test(smallest_gap_is_chosen),
        cmocka_unit_test(what_fits_nowhere_well_is_kept_low),
        cmocka_unit_test(gaps_join_for_who_may_take_both),
        cmocka_unit_test(a_frontier_may_go_back),
        cmocka_unit_test(answers_are_the_references),
        cmocka_unit_test(many_streams_take_turns),
        cmocka_unit_test(the_set_is_sorted),
        cmocka_unit_test(a_failure_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
