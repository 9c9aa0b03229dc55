/* SPDX-License-Identifier: MIT
 *
 * Each worker allocates blocks of random sizes on streams of its own, fills each with a pattern by
 * a memset on the block's stream, and when it frees one has the block's bytes looked at: most by
 * copies of its start, its end and a part between to a log outside the heap, enqueued just before
 * the free and compared much later, so that nothing waits in between; some by a copy of the whole
 * block to the host. Many blocks are read on another stream too, behind work that takes a while,
 * and freed (with rp_heap_use) before that has begun: memory that is given to anybody too early is
 * filled with another pattern under the reader's eyes.
 *
 * Rounds differ in the heap's options: plain; a limit that is too low for what is asked, with
 * garbage collection; a low limit, with idle streams' memory lent early. At the end of a round the
 * statistics have to be what is live, to the byte, and an empty heap holds nothing.
 */
#include "device_check.h"

#include "base/clock.h"
#include "memory/heap/heap.h"
#include "workloads.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_THREADS = 16,
    STREAMS = 3,
    SLOTS = 128,
    LOOKS = 1024, /* of the log */
    WINDOW = 4096,
    WHOLE = 1 << 20, /* most bytes compared of one block at once */
    ROUND_MS = 1500,
    DELAYS = 4 /* memsets before a read on another stream */
};
#define MIB           ((uint64_t)1 << 20)
#define SCRATCH_BYTES (16 * MIB) /* a stream */

struct live {
    uint64_t address, requested;
    CUstream stream;
    unsigned char mark;
};

struct look {
    unsigned char mark;
    uint32_t bytes;
};

struct worker {
    const struct device_check *check;
    struct rp_heap *heap;
    pthread_t id;
    CUstream streams[STREAMS];
    CUevent event;
    CUdeviceptr log, scratch;
    unsigned char *host; /* as large as the log, and at least WHOLE */
    struct look looks[LOOKS];
    size_t look_count;
    struct live live[SLOTS];
    uint64_t random, end_ns;
    struct device_check_result result;
    bool failed; /* a driver call that the check makes itself failed */
};

static void complain(struct worker *w, const char *what)
{
    if (w->result.wrong++ == 0)
        fprintf(stderr, "device_heap: %s\n", what);
}

static bool did(struct worker *w, CUresult result, const char *function)
{
    if (result == CUDA_SUCCESS)
        return true;
    if (!w->failed)
        fprintf(stderr, "device_heap: %s: %s\n", function, rpi_result_name(result));
    w->failed = true;
    return false;
}

/* ---- What blocks hold ------------------------------------------------------------------------*/

static void compare(struct worker *w, const unsigned char *bytes, size_t count, unsigned char mark)
{
    size_t bad = 0;
    for (size_t i = 0; i < count; i++)
        bad += bytes[i] != mark;
    w->result.bytes_compared += count;
    if (!bad)
        return;
    if (!w->result.wrong)
        fprintf(stderr, "device_heap: %zu of %zu bytes of a block are not its own\n", bad, count);
    w->result.wrong += bad;
}

static void read_log(struct worker *w)
{
    const struct rp_driver *driver = w->check->driver;
    for (int i = 0; i < STREAMS; i++)
        if (!did(w, driver->cuStreamSynchronize(w->streams[i]), "cuStreamSynchronize"))
            return;
    if (w->look_count &&
        did(w, driver->cuMemcpyDtoH(w->host, w->log, w->look_count * WINDOW), "cuMemcpyDtoH"))
        for (size_t i = 0; i < w->look_count; i++)
            compare(w, w->host + i * WINDOW, w->looks[i].bytes, w->looks[i].mark);
    w->look_count = 0;
}

/* Copies up to a window of the block, on a stream, to where it is compared later. */
static void look(struct worker *w, const struct live *block, uint64_t offset, CUstream stream)
{
    uint64_t bytes = block->requested - offset < WINDOW ? block->requested - offset : WINDOW;
    if (w->look_count == LOOKS)
        read_log(w);
    CUdeviceptr to = w->log + w->look_count * WINDOW;
    if (did(w, w->check->driver->cuMemcpyDtoDAsync(to, block->address + offset, bytes, stream),
            "cuMemcpyDtoDAsync"))
        w->looks[w->look_count++] = (struct look){block->mark, (uint32_t)bytes};
}

static void look_at_parts(struct worker *w, const struct live *block, uint64_t r)
{
    look(w, block, 0, block->stream);
    if (block->requested <= WINDOW)
        return;
    look(w, block, block->requested - WINDOW, block->stream);
    look(w, block, r % block->requested, block->stream);
}

static void look_at_all(struct worker *w, const struct live *block, uint64_t r)
{
    const struct rp_driver *driver = w->check->driver;
    uint64_t bytes = block->requested < WHOLE ? block->requested : WHOLE;
    uint64_t offset = r % (block->requested - bytes + 1);
    if (did(w, driver->cuMemcpyDtoHAsync(w->host, block->address + offset, bytes, block->stream),
            "cuMemcpyDtoHAsync") &&
        did(w, driver->cuStreamSynchronize(block->stream), "cuStreamSynchronize"))
        compare(w, w->host, bytes, block->mark);
}

/* Work on another stream, behind what the block's own was given and behind a delay. */
static void look_elsewhere(struct worker *w, const struct live *block, size_t stream, uint64_t r)
{
    const struct rp_driver *driver = w->check->driver;
    CUstream other = w->streams[stream];
    CUdeviceptr scratch = w->scratch + stream * SCRATCH_BYTES;
    if (rp_heap_use(w->heap, block->address, other, NULL) != RP_OK)
        complain(w, "a block can't be used on another stream");
    if (!did(w, driver->cuEventRecord(w->event, block->stream), "cuEventRecord") ||
        !did(w, driver->cuStreamWaitEvent(other, w->event, 0), "cuStreamWaitEvent"))
        return;
    for (int i = 0; i < DELAYS; i++)
        did(w, driver->cuMemsetD8Async(scratch, (unsigned char)i, SCRATCH_BYTES, other),
            "cuMemsetD8Async");
    look(w, block, r % block->requested, other);
    w->result.uses++;
}

/* ---- The programs ----------------------------------------------------------------------------*/

static uint64_t random_bytes(uint64_t r)
{
    switch (r % 16) {
    case 0:
        return 1 + (r >> 8) % (24 * MIB);
    case 1:
    case 2:
        return 1 + (r >> 8) % (2 * MIB);
    default:
        return 1 + (r >> 8) % 65536;
    }
}

static bool overlaps(const struct worker *w, const struct live *block)
{
    for (int i = 0; i < SLOTS; i++)
        if (w->live[i].address && block->address < w->live[i].address + w->live[i].requested &&
            w->live[i].address < block->address + block->requested)
            return true;
    return false;
}

static void allocate(struct worker *w, struct live *slot, uint64_t r)
{
    struct rp_error err = {0};
    struct live made = {.requested = random_bytes(next_random(&w->random)),
                        .stream = w->streams[r % STREAMS],
                        .mark = (unsigned char)(r >> 16)};
    rp_status status = rp_heap_alloc(w->heap, made.requested, made.stream, &made.address, &err);
    if (status != RP_OK) {
        if ((status != RP_ERROR_LIMIT && status != RP_ERROR_OUT_OF_DEVICE_MEMORY) ||
            !err.message[0])
            complain(w, "a request failed for another reason than want of memory");
        w->result.refused++;
        return;
    }
    if (made.address % 512 || overlaps(w, &made))
        complain(w, "a block lies where it should not");
    did(w, w->check->driver->cuMemsetD8Async(made.address, made.mark, made.requested, made.stream),
        "cuMemsetD8Async");
    w->result.allocations++;
    w->result.bytes_filled += made.requested;
    *slot = made;
}

static void release(struct worker *w, struct live *slot, uint64_t r)
{
    struct live old = *slot;
    *slot = (struct live){0};
    if (r >> 60 == 0)
        look_at_all(w, &old, r >> 8);
    else
        look_at_parts(w, &old, r >> 8);
    size_t other = (r >> 40) % STREAMS;
    if (r >> 58 & 1 && w->streams[other] != old.stream)
        look_elsewhere(w, &old, other, r >> 16);
    if (rp_heap_free(w->heap, old.address, NULL) != RP_OK)
        complain(w, "a block can't be freed");
}

static void *work(void *argument)
{
    struct worker *w = argument;
    const struct device_check *check = w->check;
    if (rp_device_push(check->device, NULL) != RP_OK) {
        w->failed = true;
        return NULL;
    }
    while (!w->failed && !w->result.wrong && rpi_clock_ns() < w->end_ns) {
        uint64_t r = next_random(&w->random);
        struct live *slot = &w->live[(r >> 24) % SLOTS];
        if (slot->address)
            release(w, slot, r);
        else
            allocate(w, slot, r);
        if (r % 4096 == 1 && rp_heap_empty_cache(w->heap, NULL) != RP_OK)
            complain(w, "the cache can't be emptied");
    }
    read_log(w);
    rp_device_pop(check->device);
    return NULL;
}

/* ---- Rounds ----------------------------------------------------------------------------------*/

static void same(struct worker *w, const char *name, int64_t want)
{
    int64_t value = -1;
    char text[160];
    if (rp_heap_stat(w->heap, name, &value, NULL) == RP_OK && value == want)
        return;
    snprintf(text, sizeof text, "%s is %" PRId64 ", not %" PRId64, name, value, want);
    complain(w, text);
}

/* All workers have stopped; what is found is the first one's. */
static void compare_books(struct worker *workers, unsigned count)
{
    int64_t blocks = 0, requested = 0, bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        for (int k = 0; k < SLOTS; k++) {
            blocks += workers[i].live[k].address != 0;
            requested += (int64_t)workers[i].live[k].requested;
            bytes += (int64_t)rpi_round_up(workers[i].live[k].requested, RPI_HEAP_GRAIN);
        }
    }
    if (rp_heap_empty_cache(workers[0].heap, NULL) != RP_OK || !rpi_heap_is_valid(workers[0].heap))
        complain(&workers[0], "the heap is not valid");
    same(&workers[0], "allocation.all.current", blocks);
    same(&workers[0], "active.all.current", blocks);
    same(&workers[0], "requested_bytes.all.current", requested);
    same(&workers[0], "allocated_bytes.all.current", bytes);
}

static void free_all(struct worker *w)
{
    for (int k = 0; k < SLOTS; k++)
        if (rp_heap_free(w->heap, w->live[k].address, NULL) != RP_OK)
            complain(w, "a block can't be freed");
    memset(w->live, 0, sizeof w->live);
}

static struct rp_heap *make_heap(const struct device_check *check, uint64_t round)
{
    struct rp_heap *heap = NULL;
    struct rp_error err;
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    options.limit_bytes = round % 3 ? 96 * MIB * check->threads : 0;
    options.gc_threshold = round % 3 == 1 ? 0.7 : 0;
    options.share_early = round % 3 == 2;
    if (rp_heap_create(check->device, &options, &heap, &err) != RP_OK)
        fprintf(stderr, "device_heap: %s\n", err.message);
    return heap;
}

static bool run_round(const struct device_check *check, struct worker *workers, uint64_t round)
{
    struct rp_heap *heap = make_heap(check, round);
    bool done = heap != NULL;
    unsigned started = 0;
    for (; done && started < check->threads; started++) {
        workers[started].heap = heap;
        workers[started].end_ns = rpi_clock_ns() + (uint64_t)ROUND_MS * 1000000;
        done = pthread_create(&workers[started].id, NULL, work, &workers[started]) == 0;
    }
    for (unsigned i = 0; i < started; i++)
        pthread_join(workers[i].id, NULL);
    if (done) {
        compare_books(workers, check->threads);
        for (unsigned i = 0; i < check->threads; i++)
            free_all(&workers[i]);
        compare_books(workers, check->threads);
        same(&workers[0], "reserved_bytes.all.current", 0);
    }
    rp_heap_destroy(heap);
    return done;
}

static bool open_worker(const struct device_check *check, struct worker *w, unsigned index)
{
    const struct rp_driver *driver = check->driver;
    w->check = check;
    w->random = (check->seed * MOST_THREADS + index + 1) * 0x9e3779b97f4a7c15u;
    const size_t log_bytes = (size_t)LOOKS * WINDOW;
    w->host = malloc(log_bytes > WHOLE ? log_bytes : WHOLE);
    if (!w->host || !did(w, driver->cuMemAlloc(&w->log, log_bytes), "cuMemAlloc") ||
        !did(w, driver->cuMemAlloc(&w->scratch, STREAMS * SCRATCH_BYTES), "cuMemAlloc") ||
        !did(w, driver->cuEventCreate(&w->event, CU_EVENT_DISABLE_TIMING), "cuEventCreate"))
        return false;
    for (int i = 0; i < STREAMS; i++)
        if (!did(w, driver->cuStreamCreate(&w->streams[i], CU_STREAM_NON_BLOCKING),
                 "cuStreamCreate"))
            return false;
    return true;
}

static void close_worker(struct worker *w)
{
    const struct rp_driver *driver = w->check->driver;
    for (int i = 0; i < STREAMS; i++)
        if (w->streams[i])
            driver->cuStreamDestroy(w->streams[i]);
    if (w->event)
        driver->cuEventDestroy(w->event);
    if (w->log)
        driver->cuMemFree(w->log);
    if (w->scratch)
        driver->cuMemFree(w->scratch);
    free(w->host);
}

static void add_up(const struct worker *workers, unsigned count, struct device_check_result *out)
{
    for (unsigned i = 0; i < count; i++) {
        const struct device_check_result *result = &workers[i].result;
        out->allocations += result->allocations;
        out->uses += result->uses;
        out->refused += result->refused;
        out->bytes_filled += result->bytes_filled;
        out->bytes_compared += result->bytes_compared;
        out->wrong += result->wrong;
    }
}

bool device_check_run(const struct device_check *check, struct device_check_result *out_result)
{
    uint64_t start = rpi_clock_ns(), round = 0;
    struct worker *workers = calloc(MOST_THREADS, sizeof *workers);
    bool done = workers && check->threads <= MOST_THREADS;
    for (unsigned i = 0; done && i < check->threads; i++)
        done = open_worker(check, &workers[i], i);
    struct device_check_result result = {0};
    while (done && !result.wrong && rpi_ms_since(start) < check->seconds * 1000) {
        done = run_round(check, workers, round++);
        memset(&result, 0, sizeof result);
        add_up(workers, check->threads, &result);
        for (unsigned i = 0; i < check->threads; i++)
            done = done && !workers[i].failed;
    }
    for (unsigned i = 0; workers && i < check->threads; i++)
        if (workers[i].check)
            close_worker(&workers[i]);
    free(workers);
    result.rounds = round;
    result.seconds = rpi_ms_since(start) / 1000;
    *out_result = result;
    return done;
}
