/* SPDX-License-Identifier: MIT
 *
 * Soaks the heap on the host driver: threads that allocate, use, free and pass on blocks of random
 * sizes on random streams, with work on the device in them, while driver calls and host allocations
 * are made to fail at random, limits come and go, the history is switched on and off and the cache
 * is emptied; heaps differ in their options. Every two seconds, or more often in a short soak, all
 * stop and the books are compared, to the byte: with what the threads hold, with a recount of the
 * heap, with what the driver says is mapped. The driver's race check sees memory that is reused, or unmapped, too early.
 *
 *     usage: soak_heap [--seconds N | --minutes N, default 10 seconds] [--threads N, default 3]
 *                      [--seed N, default 1]
 *
 * Exit 0 when all agreed, 1 with a line for what did not.
 */
#include "base/clock.h"
#include "driver/host/host.h"
#include "memory/heap/heap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    STREAMS = 5,
    SLOTS = 48,
    MOST_THREADS = 16,
    PASSED_ON = 64,
    EPOCH_MS = 2000, /* or less, where a soak is too short for a heap's */
    HEAP_EPOCHS = 5
};
#define MIB           ((uint64_t)1 << 20)
#define DEVICE_BYTES  (400 * MIB)
#define OVERSIZE_FROM (21 * MIB)

struct block {
    uint64_t address, requested, bytes;
};

struct worker {
    pthread_t id;
    CUevent event;
    uint64_t random;
    struct block live[SLOTS];
    uint64_t operations, refused;
};

static struct {
    const struct rp_driver *driver; /* without faults, for the work itself */
    CUcontext context;
    CUstream streams[STREAMS];
    struct rp_heap *heap;
    struct worker workers[MOST_THREADS];
    int threads;
    unsigned epoch_ms;
    struct block passed_on[PASSED_ON]; /* guarded by passing */
    pthread_mutex_t passing;
    _Atomic bool stop, inject;
    _Atomic uint64_t memory_calls;
    _Atomic int64_t stacks, injected;
    _Atomic bool wrong;
} soak = {.passing = PTHREAD_MUTEX_INITIALIZER};

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

static void expect(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "soak_heap: %s\n", what);
    atomic_store(&soak.wrong, true);
}

/* ---- What is made to fail --------------------------------------------------------------------*/

static bool memory_fails(void)
{
    uint64_t call = atomic_fetch_add(&soak.memory_calls, 1);
    bool fails = atomic_load(&soak.inject) && call % 997 == 0;
    atomic_fetch_add(&soak.injected, fails);
    return fails;
}

static void *failing_malloc(size_t bytes, void *user)
{
    (void)user;
    return memory_fails() ? NULL : malloc(bytes);
}

static void *failing_realloc(void *pointer, size_t bytes, void *user)
{
    (void)user;
    return memory_fails() ? NULL : realloc(pointer, bytes);
}

static void plain_free(void *pointer, void *user)
{
    (void)user;
    free(pointer);
}

static void *inject(void *argument)
{
    uint64_t random = *(uint64_t *)argument;
    while (!atomic_load(&soak.stop)) {
        usleep((unsigned)(500 + next_random(&random) % 3000));
        if (!atomic_load(&soak.inject))
            continue;
        atomic_fetch_add(&soak.injected, rpi_driver_fault_hit() != NULL);
        rpi_driver_fault_at(next_random(&random) % 40, next_random(&random) % 2
                                                           ? CUDA_ERROR_OUT_OF_MEMORY
                                                           : CUDA_ERROR_UNKNOWN);
    }
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    return NULL;
}

static uint64_t capture_stack(void *user)
{
    (void)user;
    atomic_fetch_add(&soak.stacks, 1);
    return 5;
}

static void release_stack(uint64_t stack, void *user)
{
    (void)user;
    atomic_fetch_sub(&soak.stacks, stack == 5);
}

/* ---- The work --------------------------------------------------------------------------------*/

static uint64_t random_bytes(uint64_t r)
{
    switch (r % 16) {
    case 0:
        return 1 + (r >> 8) % (24 * MIB);
    case 1:
        return 1 + (r >> 8) % (3 * MIB);
    case 2:
    case 3:
        return 1 + (r >> 8) % MIB;
    default:
        return 1 + (r >> 8) % 30000;
    }
}

/* Device work in the block: a fill on a stream that the heap knows of. */
static void touch(const struct block *block, CUstream stream, uint64_t r)
{
    uint64_t bytes = block->requested < 65536 ? block->requested : 65536;
    soak.driver->cuMemsetD8Async(block->address, (unsigned char)r, bytes, stream);
}

/* Work on another stream, after what the block's own stream was given, as any program has to. */
static void use_elsewhere(struct worker *w, const struct block *block, CUstream stream,
                          CUstream other)
{
    if (rp_heap_use(soak.heap, block->address, other, NULL) == RP_OK &&
        soak.driver->cuEventRecord(w->event, stream) == CUDA_SUCCESS &&
        soak.driver->cuStreamWaitEvent(other, w->event, 0) == CUDA_SUCCESS)
        touch(block, other, 1);
}

static void allocate(struct worker *w, struct block *slot, uint64_t r)
{
    struct rp_error err = {0};
    struct block new = {.requested = random_bytes(next_random(&w->random))};
    CUstream stream = soak.streams[r % STREAMS];
    rp_status status = rp_heap_alloc(soak.heap, new.requested, stream, &new.address, &err);
    if (status != RP_OK) {
        expect(err.status == status && err.message[0], "an error without a message");
        w->refused++;
        return;
    }
    struct rp_heap_block found = {.size = sizeof found};
    expect(rp_heap_find(soak.heap, new.address, &found, NULL) == RP_OK &&
               found.address == new.address &&found.requested == new.requested,
           "a block is not found");
    new.bytes = found.bytes;
    touch(&new, stream, r);
    if (r >> 8 & 1)
        use_elsewhere(w, &new, stream, soak.streams[(r >> 16) % STREAMS]);
    *slot = new;
}

static void release(struct worker *w, struct block *slot, uint64_t r)
{
    struct block old = *slot;
    *slot = (struct block){0};
    if (r >> 60 == 3) {
        size_t i = (r >> 32) % PASSED_ON;
        pthread_mutex_lock(&soak.passing);
        struct block other = soak.passed_on[i];
        soak.passed_on[i] = old;
        pthread_mutex_unlock(&soak.passing);
        old = other;
    }
    expect(rp_heap_free(soak.heap, old.address, NULL) == RP_OK, "a block can't be freed");
    if (r >> 56 == 7)
        expect(rp_heap_free(soak.heap, old.address + 1, NULL) != RP_OK, "a wrong address is freed");
    w->operations++;
}

static void disturb(uint64_t r)
{
    switch (r % 8) {
    case 0:
        rp_heap_empty_cache(soak.heap, NULL);
        break;
    case 1:
        rp_heap_set_limit(soak.heap, (100 + (r >> 8) % 400) * MIB);
        break;
    case 2:
        rp_heap_record_history(soak.heap, (r >> 8) % 3 * 100, NULL);
        break;
    case 3: {
        struct rp_heap_snapshot *snapshot = NULL;
        if (rp_heap_snapshot_create(soak.heap, &snapshot, NULL) == RP_OK)
            rp_heap_snapshot_json(snapshot);
        rp_heap_snapshot_destroy(snapshot);
        break;
    }
    case 4:
        rp_heap_reset_peak(soak.heap);
        break;
    default:
        rp_heap_set_limit(soak.heap, 0);
    }
}

static void *work(void *argument)
{
    struct worker *w = argument;
    soak.driver->cuCtxSetCurrent(soak.context);
    while (!atomic_load(&soak.stop)) {
        uint64_t r = next_random(&w->random);
        struct block *slot = &w->live[(r >> 24) % SLOTS];
        if (slot->address)
            release(w, slot, r);
        else
            allocate(w, slot, r);
        if (r % 2048 == 1)
            disturb(next_random(&w->random));
    }
    return NULL;
}

/* ---- The books -------------------------------------------------------------------------------*/

static int64_t stat(const char *name)
{
    int64_t value = -1;
    expect(rp_heap_stat(soak.heap, name, &value, NULL) == RP_OK, name);
    return value;
}

/* All threads have stopped and nothing fails any more. */
static void compare(void)
{
    int64_t blocks = 0, requested = 0, bytes = 0;
    struct rpi_host_statistics driver;
    for (int i = 0; i < soak.threads + 1; i++) {
        for (int k = 0; k < (i < soak.threads ? SLOTS : PASSED_ON); k++) {
            struct block block = i < soak.threads ? soak.workers[i].live[k] : soak.passed_on[k];
            blocks += block.address != 0;
            requested += (int64_t)block.requested;
            bytes += (int64_t)block.bytes;
        }
    }
    expect(rpi_heap_is_valid(soak.heap), "the heap is not valid");
    expect(soak.driver->cuCtxSynchronize() == CUDA_SUCCESS, "the context does not synchronise");
    expect(rp_heap_empty_cache(soak.heap, NULL) == RP_OK, "the cache can't be emptied");
    expect(rpi_heap_is_valid(soak.heap), "the heap is not valid once emptied");
    expect(stat("allocation.all.current") == blocks, "blocks do not agree");
    expect(stat("active.all.current") == blocks, "blocks still wait");
    expect(stat("requested_bytes.all.current") == requested, "requested bytes do not agree");
    expect(stat("allocated_bytes.all.current") == bytes, "allocated bytes do not agree");
    expect(stat("allocation.all.allocated") - stat("allocation.all.freed") == blocks,
           "allocations less frees do not agree");
    rpi_host_statistics(&driver);
    expect(stat("reserved_bytes.all.current") == (int64_t)driver.physical_bytes,
           "reserved bytes are not the driver's");
    expect(stat("segment.all.current") == (int64_t)driver.chunks, "segments are not the driver's");
    struct rpi_host_race race;
    if (driver.races && rpi_host_races(&race, 1))
        fprintf(stderr, "soak_heap: %s and %s at 0x%" PRIx64 ", %" PRIu64 " bytes\n", race.first,
                race.second, race.address, race.bytes);
    expect(driver.races == 0, "memory was used too early");
}

static void empty_out(void)
{
    for (int i = 0; i < soak.threads; i++)
        for (int k = 0; k < SLOTS; k++)
            rp_heap_free(soak.heap, soak.workers[i].live[k].address, NULL);
    for (int k = 0; k < PASSED_ON; k++)
        rp_heap_free(soak.heap, soak.passed_on[k].address, NULL);
    memset(soak.passed_on, 0, sizeof soak.passed_on);
    for (int i = 0; i < soak.threads; i++)
        memset(soak.workers[i].live, 0, sizeof soak.workers[i].live);
    compare();
    expect(stat("reserved_bytes.all.current") == 0, "memory is left in an empty heap");
    rp_heap_destroy(soak.heap);
    struct rpi_host_statistics driver;
    rpi_host_statistics(&driver);
    expect(driver.reservations == 0 && driver.events == (size_t)soak.threads,
           "addresses or events are left");
    expect(atomic_load(&soak.stacks) == 0, "stacks are left");
}

static void start(pthread_t *thread, void *(*function)(void *), void *argument)
{
    int failed = pthread_create(thread, NULL, function, argument);
    if (!failed)
        return;
    fprintf(stderr, "soak_heap: a thread can't be started: %s\n", strerror(failed));
    exit(1);
}

static void epoch(uint64_t seed)
{
    pthread_t injector;
    atomic_store(&soak.stop, false);
    atomic_store(&soak.inject, true);
    start(&injector, inject, &seed);
    for (int i = 0; i < soak.threads; i++)
        start(&soak.workers[i].id, work, &soak.workers[i]);
    usleep(soak.epoch_ms * 1000);
    atomic_store(&soak.stop, true);
    for (int i = 0; i < soak.threads; i++)
        pthread_join(soak.workers[i].id, NULL);
    pthread_join(injector, NULL);
    atomic_store(&soak.inject, false);
    compare();
}

static bool open_driver(void)
{
    struct rpi_host_options host;
    rpi_host_options(&host);
    host.total_bytes = DEVICE_BYTES;
    rpi_host_configure(&host);
    const struct rp_driver *driver = rpi_driver_host();
    soak.driver = driver;
    if (!driver || driver->cuInit(0) || driver->cuDevicePrimaryCtxRetain(&soak.context, 0) ||
        driver->cuCtxSetCurrent(soak.context))
        return false;
    for (int i = 0; i < STREAMS; i++)
        if (driver->cuStreamCreate(&soak.streams[i], CU_STREAM_NON_BLOCKING))
            return false;
    return true;
}

static bool open_heap(uint64_t round)
{
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    options.gc_threshold = round % 2 ? 0.6 : 0;
    options.share_early = round % 3 == 1;
    options.max_split_bytes = round % 4 == 2 ? OVERSIZE_FROM : 0;
    for (int i = 0; round % 5 == 3 && i < RP_HEAP_ROUNDINGS; i++)
        options.roundup_power2_divisions[i] = 1u << i % 5;
    options.frames = (struct rp_heap_frames){capture_stack, release_stack, NULL, NULL};
    struct rp_error err = {.message = ""};
    rp_status status = rpi_heap_create_on(rpi_driver_fault(soak.driver), 0, soak.context,
                                          DEVICE_BYTES, &options, &soak.heap, &err);
    expect(status == RP_OK, err.message);
    return status == RP_OK;
}

static int report(uint64_t start)
{
    uint64_t operations = 0, refused = 0;
    for (int i = 0; i < soak.threads; i++) {
        operations += soak.workers[i].operations;
        refused += soak.workers[i].refused;
    }
    bool wrong = atomic_load(&soak.wrong);
    printf("%8.0f s  %" PRIu64 " blocks, %" PRIu64 " requests refused, %" PRId64
           " calls made to fail%s\n",
           (double)(rpi_clock_ns() - start) * 1e-9, operations, refused,
           atomic_load(&soak.injected), wrong ? ": WRONG" : ", books exact");
    fflush(stdout);
    return wrong;
}

int main(int count, char **arguments)
{
    static const struct rp_host_memory memory = {failing_malloc, failing_realloc, plain_free, NULL};
    uint64_t seconds = 10, seed = 1;
    soak.threads = 3;
    for (int i = 1; i + 1 < count; i += 2) {
        uint64_t value = strtoull(arguments[i + 1], NULL, 10);
        if (!strcmp(arguments[i], "--seconds"))
            seconds = value;
        else if (!strcmp(arguments[i], "--minutes"))
            seconds = 60 * value;
        else if (!strcmp(arguments[i], "--threads") && value >= 1 && value <= MOST_THREADS)
            soak.threads = (int)value;
        else if (!strcmp(arguments[i], "--seed"))
            seed = value;
        else
            count = 0;
    }
    if (count % 2 == 0) {
        fprintf(stderr, "usage: soak_heap [--seconds N | --minutes N] [--threads N] [--seed N]\n");
        return 2;
    }
    rp_set_host_memory(&memory);
    if (!open_driver())
        return 1;
    for (int i = 0; i < soak.threads; i++)
        if (soak.driver->cuEventCreate(&soak.workers[i].event, CU_EVENT_DISABLE_TIMING))
            return 1;
    for (int i = 0; i < soak.threads; i++)
        soak.workers[i].random = (seed * MOST_THREADS + (uint64_t)i + 1) * 0x9e3779b97f4a7c15u;
    soak.epoch_ms = seconds * 1000 < EPOCH_MS * HEAP_EPOCHS
                        ? (unsigned)(seconds * 1000 / HEAP_EPOCHS)
                        : EPOCH_MS;
    uint64_t begun = rpi_clock_ns(), told = begun;
    for (uint64_t round = 0; rpi_clock_ns() - begun < seconds * 1000000000; round++) {
        if (!open_heap(round + seed))
            return 1;
        for (int i = 0; i < HEAP_EPOCHS && !atomic_load(&soak.wrong); i++)
            epoch(seed + round * 1000003 + (uint64_t)i + 1);
        empty_out();
        if (atomic_load(&soak.wrong))
            break;
        if (rpi_clock_ns() - told > 60000000000u) {
            told = rpi_clock_ns();
            report(begun);
        }
    }
    return report(begun);
}
