/* SPDX-License-Identifier: MIT
 *
 * Random recorded captures for tests: streams that fork, join, allocate and free, as a recording,
 * and the lifetimes read from it.
 */
#ifndef REPRISE_TESTS_RANDOM_LIFETIMES_H
#define REPRISE_TESTS_RANDOM_LIFETIMES_H

#include "memory/order/lifetimes.h"

#include <cmocka.h>

#define RANDOM_STREAMS 8

struct random_shape {
    uint32_t steps, streams; /* streams at most RANDOM_STREAMS */
    uint32_t most;           /* blocks */
};

static inline uint64_t random_next(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline uint32_t random_below(uint64_t *seed, uint32_t limit)
{
    return (uint32_t)(random_next(seed) % limit);
}

struct random_program {
    struct rpi_capture_record *record;
    uint64_t seed;
    uint32_t streams;
    uint32_t last[RANDOM_STREAMS]; /* node each stream ends in; RPI_NEVER: none yet */
    uint32_t live[4096], live_count;
    uint32_t made;
};

static inline void random_work(struct random_program *p, uint32_t stream, uint32_t also)
{
    uint32_t before[2], count = 0;
    if (p->last[stream] != RPI_NEVER)
        before[count++] = p->last[stream];
    if (also != RPI_NEVER)
        before[count++] = also;
    assert_int_equal(rpi_order_add(p->record->order, before, count, &p->last[stream], NULL), RP_OK);
}

static inline void random_alloc(struct random_program *p, uint32_t stream)
{
    uint32_t block, *last = &p->last[stream];
    uint64_t bytes = 1 + random_below(&p->seed, random_below(&p->seed, 4) ? 9 : 60);
    assert_int_equal(rpi_capture_record_alloc(p->record, p->made++, bytes, stream, last,
                                              *last != RPI_NEVER, &block, NULL),
                     RP_OK);
    random_work(p, stream, RPI_NEVER);
    p->live[p->live_count++] = block;
}

/* Frees a live block at the end of its own stream and of up to one more. */
static inline void random_free(struct random_program *p, uint32_t stream)
{
    uint32_t at = random_below(&p->seed, p->live_count), block = p->live[at];
    uint32_t own = p->record->blocks.data[block].stream, nodes[2], count = 0;
    p->live[at] = p->live[--p->live_count];
    nodes[count++] = p->last[own];
    if (stream != own && p->last[stream] != RPI_NEVER)
        nodes[count++] = p->last[stream];
    assert_int_equal(rpi_capture_record_free(p->record, block, nodes, count, NULL), RP_OK);
}

static inline void random_record(struct rpi_capture_record *record,
                                 const struct random_shape *shape, uint64_t seed)
{
    static struct random_program p;
    p = (struct random_program){.record = record, .seed = seed, .streams = shape->streams};
    assert_int_equal(rpi_capture_record_init(record, "random", NULL), RP_OK);
    record->streams = shape->streams;
    for (uint32_t i = 0; i < RANDOM_STREAMS; i++)
        p.last[i] = RPI_NEVER;
    for (uint32_t i = 0; i < shape->steps; i++) {
        uint32_t stream = random_below(&p.seed, p.streams), dice = random_below(&p.seed, 100);
        if (dice < 45 && p.made < shape->most && p.live_count < 4096)
            random_alloc(&p, stream);
        else if (dice < 80 && p.live_count)
            random_free(&p, stream);
        else
            random_work(&p, stream, p.last[random_below(&p.seed, p.streams)]);
    }
}

static inline void random_lifetimes(struct rpi_lifetimes *out, const struct random_shape *shape,
                                    uint64_t seed)
{
    struct rpi_capture_record record;
    random_record(&record, shape, seed);
    assert_int_equal(rpi_lifetimes_from_record(&record, 1, out, NULL), RP_OK);
    rpi_capture_record_finish(&record);
}

#endif
