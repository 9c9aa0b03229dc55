/* SPDX-License-Identifier: MIT
 *
 * How the cost of ordering and placing grows with a capture.
 *
 *     bench_order [--json] [NODES...]          default: 1000 10000 100000 1000000
 *
 * Programs on 8 streams by the rules of `reprise bench sweep` are written as recordings, without a
 * driver, until they have so many nodes. Then, each timed as the thread's own time:
 *
 *     order   the chains built node by node; at each allocation the frontier of its terminals, and
 *             for each of the last 8 frees the question whether all its nodes come before it
 *     walk    c10's way with the same questions: a visited set for each stream, extended from the
 *             terminals (recording/c10_walk.h). Both ways must give the same answers
 *     place   the order and online placement of all blocks
 *
 * An operation is an allocation or a free. Small programs are run repeatedly, the median counts.
 */
#include "base/clock.h"
#include "recording/c10_walk.h"
#include "recording/placements.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS = 8, ASKED = 8, MOST_RUNS = 41 };
static const double enough_ns = 400e6; /* of one method's runs together */
#define MIB ((uint64_t)1 << 20)

static void must(bool done)
{
    if (!done) {
        fputs("bench_order: out of host memory\n", stderr);
        exit(1);
    }
}

/* ---- Programs ------------------------------------------------------------------------------ */

struct program {
    struct rpi_capture_record record;
    uint32_t terminals[STREAMS][STREAMS + 1]; /* what the stream's next node comes after */
    size_t terminal_count[STREAMS];
    struct {
        RPI_VEC(uint32_t);
    } alive;
    struct {
        RPI_VEC(uint32_t); /* by block: the stream that reads it */
    } reader;
    uint64_t random;
};

static uint32_t below(struct program *p, uint32_t count)
{
    uint64_t z = p->random += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (uint32_t)(((z ^ z >> 31) >> 32) * count >> 32);
}

static uint32_t another(struct program *p, uint32_t stream)
{
    uint32_t other = below(p, STREAMS - 1);
    return other + (other >= stream);
}

static void add_node(struct program *p, uint32_t stream)
{
    struct rpi_predecessors *all = &p->record.predecessors;
    size_t count = p->terminal_count[stream];
    uint32_t node;
    must(rpi_order_add(p->record.order, p->terminals[stream], count, &node, NULL) == RP_OK);
    for (size_t i = 0; i < count; i++)
        must(rpi_vec_push(&all->nodes, p->terminals[stream][i]));
    must(rpi_vec_push(&all->ends, (uint32_t)all->nodes.count));
    p->terminals[stream][0] = node;
    p->terminal_count[stream] = 1;
}

/* As a stream that waits for an event: the terminals of both, without those that others hold. */
static void join(struct program *p, uint32_t waiter, uint32_t other)
{
    uint32_t all[2 * STREAMS + 2];
    size_t count = 0, kept = 0;
    for (size_t i = 0; i < p->terminal_count[waiter]; i++)
        all[count++] = p->terminals[waiter][i];
    for (size_t i = 0; i < p->terminal_count[other]; i++)
        all[count++] = p->terminals[other][i];
    for (size_t i = 0; i < count; i++) {
        bool held = false;
        for (size_t j = 0; j < count && !held; j++)
            held = j != i && rpi_order_reaches(p->record.order, all[i], all[j]) &&
                   (all[i] != all[j] || j < i);
        if (!held && kept <= STREAMS)
            p->terminals[waiter][kept++] = all[i];
    }
    p->terminal_count[waiter] = kept;
}

static void free_one(struct program *p)
{
    if (!p->alive.count)
        return;
    size_t victim = below(p, (uint32_t)p->alive.count);
    uint32_t block = p->alive.data[victim], nodes[2 * STREAMS + 2];
    uint32_t streams[2] = {p->record.blocks.data[block].stream, p->reader.data[block]};
    size_t count = 0;
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < p->terminal_count[streams[s]]; i++)
            nodes[count++] = p->terminals[streams[s]][i];
    must(rpi_capture_record_free(&p->record, block, nodes, count, NULL) == RP_OK);
    p->alive.data[victim] = p->alive.data[--p->alive.count];
}

static void write_and_read(struct program *p, uint32_t writer)
{
    static const uint64_t sizes[] = {1 * MIB, 3 * MIB, 5 * MIB, 8 * MIB, 16 * MIB};
    uint32_t block, reader = another(p, writer);
    must(rpi_capture_record_alloc(&p->record, (int64_t)p->record.blocks.count, sizes[below(p, 5)],
                                  writer, p->terminals[writer], p->terminal_count[writer], &block,
                                  NULL) == RP_OK);
    must(rpi_vec_push(&p->alive, block) && rpi_vec_push(&p->reader, reader));
    add_node(p, writer);
    join(p, reader, writer);
    add_node(p, reader);
    must(rpi_capture_record_use(&p->record, block, reader, NULL) == RP_OK);
}

static void write_program(struct program *p, uint32_t nodes, uint32_t free_percent,
                          uint32_t join_percent)
{
    memset(p, 0, sizeof *p);
    p->random = 1;
    must(rpi_capture_record_init(&p->record, "program", NULL) == RP_OK);
    add_node(p, 0);
    for (uint32_t s = 1; s < STREAMS; s++)
        join(p, s, 0);
    while (rpi_order_nodes(p->record.order) < nodes) {
        uint32_t stream = below(p, STREAMS), what = below(p, 100);
        if (what < free_percent)
            free_one(p);
        else if (what < free_percent + join_percent)
            join(p, stream, another(p, stream));
        else
            write_and_read(p, stream);
    }
    while (p->alive.count)
        free_one(p);
}

static void free_program(struct program *p)
{
    rpi_capture_record_finish(&p->record);
    rpi_vec_finish(&p->alive);
    rpi_vec_finish(&p->reader);
}

/* ---- Methods ------------------------------------------------------------------------------- */

/* Answers are summed up, so that the methods can be compared and nothing is left out. */
typedef uint64_t (*method)(const struct rpi_capture_record *record);

/* The last frees before an allocation. */
struct recent {
    const struct rpi_event *frees[ASKED];
    size_t count;
};

static void remember(struct recent *recent, const struct rpi_event *event)
{
    recent->frees[recent->count++ % ASKED] = event;
}

static size_t recent_count(const struct recent *recent)
{
    return recent->count < ASKED ? recent->count : ASKED;
}

static void grow_order(struct rpi_order *order, const struct rpi_capture_record *record,
                       const struct rpi_event *event)
{
    const struct rpi_predecessors *all = &record->predecessors;
    for (uint32_t n = 0; n < event->node_count; n++) {
        uint32_t wanted = record->event_nodes.data[event->first_node + n], node;
        while ((node = rpi_order_nodes(order)) <= wanted) {
            uint32_t first = node ? all->ends.data[node - 1] : 0;
            must(rpi_order_add(order, all->nodes.data + first, all->ends.data[node] - first, &node,
                               NULL) == RP_OK);
        }
    }
}

static uint64_t run_order(const struct rpi_capture_record *record)
{
    struct rpi_order *order = NULL;
    struct rpi_frontier frontier = {0};
    struct recent recent = {.count = 0};
    uint64_t answers = 0;
    must(rpi_order_create(&order, NULL) == RP_OK);
    for (size_t i = 0; i < record->events.count; i++) {
        const struct rpi_event *event = &record->events.data[i];
        if (event->kind == RPI_EVENT_USE)
            continue;
        grow_order(order, record, event);
        if (event->kind == RPI_EVENT_FREE) {
            remember(&recent, event);
            continue;
        }
        must(rpi_frontier_set(&frontier, order, record->event_nodes.data + event->first_node,
                              event->node_count, NULL) == RP_OK);
        for (size_t f = 0; f < recent_count(&recent); f++) {
            bool dead = true;
            for (uint32_t n = 0; dead && n < recent.frees[f]->node_count; n++)
                dead = rpi_frontier_holds(
                    &frontier, order, record->event_nodes.data[recent.frees[f]->first_node + n]);
            answers += dead;
        }
    }
    rpi_frontier_finish(&frontier);
    rpi_order_destroy(order);
    return answers;
}

static uint64_t run_walk(const struct rpi_capture_record *record)
{
    struct rpi_c10_walk walk = {.predecessors = &record->predecessors};
    struct recent recent = {.count = 0};
    uint64_t answers = 0;
    for (size_t i = 0; i < record->events.count; i++) {
        const struct rpi_event *event = &record->events.data[i];
        if (event->kind == RPI_EVENT_FREE)
            remember(&recent, event);
        if (event->kind != RPI_EVENT_ALLOC)
            continue;
        must(rpi_c10_walk_extend(&walk, event->stream, record->event_nodes.data + event->first_node,
                                 event->node_count));
        for (size_t f = 0; f < recent_count(&recent); f++) {
            bool dead = true;
            for (uint32_t n = 0; dead && n < recent.frees[f]->node_count; n++)
                dead =
                    rpi_c10_walk_holds(&walk, event->stream,
                                       record->event_nodes.data[recent.frees[f]->first_node + n]);
            answers += dead;
        }
    }
    rpi_c10_walk_finish(&walk);
    return answers;
}

static uint64_t run_place(const struct rpi_capture_record *record)
{
    uint64_t *offsets = calloc(record->blocks.count, sizeof *offsets);
    struct rpi_placement placement;
    must(offsets && rpi_placement_online(record, 512, offsets, &placement, NULL) == RP_OK);
    free(offsets);
    return placement.bytes;
}

/* ---- Measuring ----------------------------------------------------------------------------- */

static int compare_times(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

/* Nanoseconds for an operation. */
static double measure(const struct program *p, method run, uint64_t *out_answer)
{
    double times[MOST_RUNS] = {0}, sum = 0;
    size_t runs = 0, operations = 0;
    for (size_t i = 0; i < p->record.events.count; i++)
        operations += p->record.events.data[i].kind != RPI_EVENT_USE;
    while (runs < 3 || (runs < MOST_RUNS && sum < enough_ns)) {
        uint64_t start = rpi_clock_thread_ns();
        *out_answer = run(&p->record);
        times[runs] = (double)(rpi_clock_thread_ns() - start);
        sum += times[runs++];
    }
    qsort(times, runs, sizeof *times, compare_times);
    return times[runs / 2] / (double)operations;
}

static void bench(uint32_t nodes, uint32_t free_percent, uint32_t join_percent, bool json)
{
    struct program p;
    uint64_t by_order, by_walk, height;
    write_program(&p, nodes, free_percent, join_percent);
    double order = measure(&p, run_order, &by_order);
    double walk = measure(&p, run_walk, &by_walk);
    double place = measure(&p, run_place, &height);
    if (by_order != by_walk) {
        fprintf(stderr, "bench_order: the order says yes %llu times, the walk %llu times\n",
                (unsigned long long)by_order, (unsigned long long)by_walk);
        exit(1);
    }
    static bool followed;
    if (json)
        printf("%s\n {\"nodes\":%u,\"streams\":%d,\"p_free\":%.2f,\"p_join\":%.2f,\"chains\":%u,"
               "\"order_ns_per_op\":%.1f,\"walk_ns_per_op\":%.1f,\"place_ns_per_op\":%.1f}",
               followed ? "," : "[", nodes, STREAMS, free_percent / 100.0, join_percent / 100.0,
               rpi_order_chains(p.record.order), order, walk, place);
    else
        printf("%9u nodes  %.2f/%.2f  order %6.1f  walk %6.1f  place %6.1f  ns an operation\n",
               nodes, free_percent / 100.0, join_percent / 100.0, order, walk, place);
    followed = true;
    fflush(stdout);
    free_program(&p);
}

int main(int argc, char **argv)
{
    static const uint32_t sizes[] = {1000, 10000, 100000, 1000000};
    static const uint32_t pairs[][2] = {{40, 10}, {45, 30}, {30, 20}, {42, 20}};
    bool json = argc > 1 && !strcmp(argv[1], "--json");
    int first = json ? 2 : 1;
    for (size_t pair = 0; pair < 4; pair++) {
        for (size_t s = 0; first == argc && s < sizeof sizes / sizeof *sizes; s++)
            bench(sizes[s], pairs[pair][0], pairs[pair][1], json);
        for (int i = first; i < argc; i++)
            bench((uint32_t)strtoul(argv[i], NULL, 10), pairs[pair][0], pairs[pair][1], json);
    }
    if (json)
        puts("\n]");
    return 0;
}
