/* SPDX-License-Identifier: MIT
 *
 * Callables for `reprise check`, on any driver: `copies` is clean; each other one has an obstacle
 * and a mended form, NAME_mended. They copy argument 0 to argument 1 through memory of the run,
 * with copies and fills alone.
 */
#include "reprise.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct CUevent_st;
typedef struct CUstream_st *stream_t;
typedef struct CUevent_st *event_t;

enum { BYTES = 4096, WORDS = BYTES / 4, NON_BLOCKING = 1, NO_TIMING = 2 };

/* X(name, (parameters)): the driver's functions that are used. */
#define FUNCTIONS(X)                                                                               \
    X(cuMemcpyDtoDAsync, (uint64_t to, uint64_t from, size_t bytes, stream_t stream))              \
    X(cuMemsetD32Async, (uint64_t to, unsigned value, size_t count, stream_t stream))              \
    X(cuMemsetD32, (uint64_t to, unsigned value, size_t count))                                    \
    X(cuMemcpyDtoH, (void *to, uint64_t from, size_t bytes))                                       \
    X(cuMemcpyDtoHAsync, (void *to, uint64_t from, size_t bytes, stream_t stream))                 \
    X(cuMemAlloc, (uint64_t * address, size_t bytes))                                              \
    X(cuMemFree, (uint64_t address))                                                               \
    X(cuMemAllocHost, (void **pointer, size_t bytes))                                              \
    X(cuMemFreeHost, (void *pointer))                                                              \
    X(cuStreamCreate, (stream_t * stream, unsigned flags))                                         \
    X(cuStreamSynchronize, (stream_t stream))                                                      \
    X(cuStreamQuery, (stream_t stream))                                                            \
    X(cuStreamWaitEvent, (stream_t stream, event_t event, unsigned flags))                         \
    X(cuStreamIsCapturing, (stream_t stream, int *state))                                          \
    X(cuEventCreate, (event_t * event, unsigned flags))                                            \
    X(cuEventRecord, (event_t event, stream_t stream))

#define X(name, params) static unsigned(*name) params;
FUNCTIONS(X)
#undef X

static stream_t side;
static event_t event, outer;
static void *pinned;
static unsigned calls, value;
static uint64_t first_in, last_block;

/* The first call is an eager one: what is made here is not made in a capture. */
static int prepare(struct rp_device *device)
{
    if (pinned)
        return 0;
#define X(name, params) name = (unsigned(*) params)rp_device_function(device, #name);
    FUNCTIONS(X)
#undef X
    return cuStreamCreate(&side, NON_BLOCKING) || cuEventCreate(&event, NO_TIMING) ||
           cuEventCreate(&outer, NO_TIMING) || cuEventRecord(outer, side) ||
           cuMemAllocHost(&pinned, BYTES);
}

static int captures(stream_t stream)
{
    int state = 0;
    cuStreamIsCapturing(stream, &state);
    return state != 0;
}

/* One run: what an obstacle needs to know of it. */
struct run {
    struct rp_call *call;
    struct rp_error *err;
    stream_t stream;
    uint64_t in, out, block;
    int mended;
};

/* Nonzero: a driver call failed. */
typedef unsigned (*obstacle)(struct run *run);

static rp_status copy_with(struct rp_call *call, void *user, struct rp_error *err,
                           obstacle obstruct, int mended)
{
    struct run run = {.call = call, .err = err, .stream = rp_call_stream(call), .mended = mended};
    if (prepare(user))
        return RP_ERROR_DRIVER;
    run.in = rp_call_arg(call, 0);
    run.out = rp_call_arg(call, 1);
    calls++;
    first_in = first_in ? first_in : run.in;
    rp_status status = rp_call_alloc(call, 2 * BYTES, run.stream, &run.block, err);
    if (status != RP_OK)
        return status;
    if (cuMemcpyDtoDAsync(run.block, run.in, BYTES, run.stream) ||
        cuMemcpyDtoDAsync(run.out, run.block, BYTES, run.stream))
        return RP_ERROR_DRIVER;
    if (obstruct && obstruct(&run))
        return RP_ERROR_DRIVER;
    return run.block ? rp_call_free(call, run.block, err) : RP_OK;
}

RP_API rp_status copies(struct rp_call *call, void *user, struct rp_error *err);
RP_API rp_status copies(struct rp_call *call, void *user, struct rp_error *err)
{
    return copy_with(call, user, err, NULL, 0);
}

/* Exports NAME and NAME_mended around the function NAME_obstacle that follows. */
#define SUBJECT(name)                                                                              \
    static unsigned name##_obstacle(struct run *run);                                              \
    RP_API rp_status name(struct rp_call *call, void *user, struct rp_error *err);                 \
    RP_API rp_status name##_mended(struct rp_call *call, void *user, struct rp_error *err);        \
    rp_status name(struct rp_call *call, void *user, struct rp_error *err)                         \
    {                                                                                              \
        return copy_with(call, user, err, name##_obstacle, 0);                                     \
    }                                                                                              \
    rp_status name##_mended(struct rp_call *call, void *user, struct rp_error *err)                \
    {                                                                                              \
        return copy_with(call, user, err, name##_obstacle, 1);                                     \
    }                                                                                              \
    static unsigned name##_obstacle(struct run *run)

SUBJECT(waits)
{
    return run->mended ? 0 : cuStreamSynchronize(run->stream);
}

SUBJECT(asks)
{
    enum { NOT_READY = 600 };
    unsigned result = run->mended ? 0 : cuStreamQuery(run->stream);
    return result == NOT_READY ? 0 : result;
}

SUBJECT(reads_back)
{
    return run->mended ? cuMemcpyDtoHAsync(pinned, run->out, BYTES, run->stream)
                       : cuMemcpyDtoH(pinned, run->out, BYTES);
}

SUBJECT(allocates)
{
    uint64_t memory = 0;
    if (run->mended)
        return rp_call_alloc(run->call, BYTES, run->stream, &memory, run->err) ||
               rp_call_free(run->call, memory, run->err);
    return cuMemAlloc(&memory, BYTES) || cuMemFree(memory);
}

SUBJECT(pins)
{
    void *memory = pinned;
    if (run->mended)
        return 0; /* what is there already */
    return cuMemAllocHost(&memory, BYTES) || cuMemFreeHost(memory);
}

SUBJECT(legacy)
{
    return cuMemsetD32Async(run->block + BYTES, 0, WORDS, run->mended ? run->stream : NULL);
}

SUBJECT(fills_at_once)
{
    uint64_t to = run->block + BYTES;
    return run->mended ? cuMemsetD32Async(to, 0, WORDS, run->stream) : cuMemsetD32(to, 0, WORDS);
}

SUBJECT(outside)
{
    return cuMemsetD32Async(run->block + BYTES, 0, WORDS, run->mended ? run->stream : side);
}

SUBJECT(unjoined)
{
    unsigned failed = cuEventRecord(event, run->stream) || cuStreamWaitEvent(side, event, 0) ||
                      cuMemsetD32Async(run->block + BYTES, 0, WORDS, side);
    if (!failed && run->mended)
        failed = cuEventRecord(event, side) || cuStreamWaitEvent(run->stream, event, 0);
    return failed;
}

SUBJECT(waits_for_outside)
{
    if (run->mended)
        return cuEventRecord(event, run->stream) || cuStreamWaitEvent(run->stream, event, 0);
    return cuStreamWaitEvent(run->stream, outer, 0);
}

SUBJECT(frees_early)
{
    uint64_t block = run->block;
    unsigned failed = 0;
    if (run->mended)
        return cuMemcpyDtoDAsync(run->out, block, BYTES, run->stream);
    failed = rp_call_free(run->call, block, run->err) != RP_OK;
    run->block = 0;
    return failed || cuMemcpyDtoDAsync(run->out, block, BYTES, run->stream);
}

SUBJECT(counts)
{
    return cuMemsetD32Async(run->block + BYTES, run->mended ? 0 : calls, WORDS, run->stream);
}

SUBJECT(keeps)
{
    uint64_t kept = run->mended || !last_block || !captures(run->stream) ? run->block : last_block;
    last_block = run->block;
    return cuMemsetD32Async(kept + BYTES, 0, WORDS, run->stream);
}

SUBJECT(bakes)
{
    return cuMemcpyDtoDAsync(run->out, run->mended ? run->in : first_in, BYTES, run->stream);
}

SUBJECT(freezes)
{
    if (run->mended)
        return cuMemcpyDtoDAsync(run->out, run->in, 4, run->stream);
    if (!captures(run->stream)) { /* when it is allowed: and the graph has what was read last */
        unsigned failed =
            cuStreamSynchronize(run->stream) || cuMemcpyDtoH(&value, run->in, sizeof value);
        if (failed)
            return failed;
    }
    return cuMemsetD32Async(run->out, value, 1, run->stream);
}

/* ---- Callables that end their process ------------------------------------------------------- */

SUBJECT(exits)
{
    if (!run->mended)
        exit(0);
    return 0;
}

SUBJECT(exits_captured)
{
    if (!run->mended && captures(run->stream))
        exit(0);
    return 0;
}

/* ---- Callables that print and fork ---------------------------------------------------------- */

SUBJECT(prints)
{
    if (!run->mended)
        printf("{\"obstacles\": 3}\n");
    return 0;
}

/* The process that it starts returns too. */
SUBJECT(forks)
{
    pid_t child = run->mended ? 1 : fork();
    if (child > 0 && !run->mended)
        waitpid(child, NULL, 0);
    return child <= 0;
}

/* As without a sanitizer's handler. */
static unsigned crash(int number)
{
    signal(number, SIG_DFL);
    return (unsigned)raise(number);
}

SUBJECT(crashes)
{
    return run->mended ? 0 : crash(SIGSEGV);
}

SUBJECT(aborts)
{
    return run->mended ? 0 : crash(SIGABRT);
}
