/* SPDX-License-Identifier: MIT
 *
 * The heap on a device: what allocations and frees cost in host time, and whether blocks hold what
 * was written into them (device_check.c). Prints JSON on standard output.
 *
 *     usage: device_heap [--driver cuda|host] [--device N] [--pairs N, default 1000000]
 *                        [--seconds N of checks, default 20] [--threads N, default 2] [--seed N]
 *
 * Pairs of an allocation and a free, in nanoseconds of wall time, medians of rounds with the lowest
 * and highest: the workloads of workloads.h on one stream; "streams" is "small" with a stream
 * chosen at random for each block, of four; in "used" every other block is named to a second stream
 * with rp_heap_use, so that its free records an event and the block waits for it. Beside them, for
 * scale, pairs of the driver's own cuMemAlloc and cuMemFree.
 *
 * Exit 0 when all blocks and books were right, 1 when not, 2 for usage, 77 without such a device.
 */
#include "device_check.h"

#include "base/clock.h"
#include "graph/objects/objects.h"
#include "reprise_heap.h"
#include "workloads.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS = 4, ROUNDS = 7, DRIVER_PAIRS = 200 };

struct settings {
    struct rp_device_options device;
    uint64_t pairs, seconds, threads, seed;
};

struct timing {
    const struct rp_driver *driver;
    struct rp_heap *heap;
    CUstream streams[STREAMS];
    bool failed;
};

enum spread { ONE_STREAM, ALL_STREAMS, USED_ELSEWHERE };

static double time_workload(struct timing *t, const struct workload *workload, enum spread spread,
                            uint64_t pairs)
{
    uint64_t slots[MOST_SLOTS] = {0}, random = 0x9e3779b97f4a7c15u;
    uint64_t start = rpi_clock_ns();
    for (uint64_t i = 0; i < pairs; i++) {
        uint64_t r = next_random(&random), *slot = &slots[(r >> 40) % workload->slots];
        CUstream stream = t->streams[spread == ALL_STREAMS ? (r >> 56) % STREAMS : 0];
        t->failed |= rp_heap_free(t->heap, *slot, NULL) != RP_OK;
        t->failed |= rp_heap_alloc(t->heap, workload->bytes(r), stream, slot, NULL) != RP_OK;
        if (spread == USED_ELSEWHERE && i % 2)
            t->failed |= rp_heap_use(t->heap, *slot, t->streams[1], NULL) != RP_OK;
    }
    double ns = (double)(rpi_clock_ns() - start) / (double)pairs;
    for (size_t i = 0; i < workload->slots; i++)
        t->failed |= rp_heap_free(t->heap, slots[i], NULL) != RP_OK;
    return ns;
}

static double time_driver(struct timing *t, uint64_t bytes)
{
    uint64_t start = rpi_clock_ns();
    for (int i = 0; i < DRIVER_PAIRS; i++) {
        CUdeviceptr address = 0;
        t->failed |= t->driver->cuMemAlloc(&address, bytes) != CUDA_SUCCESS;
        t->failed |= t->driver->cuMemFree(address) != CUDA_SUCCESS;
    }
    return (double)(rpi_clock_ns() - start) / DRIVER_PAIRS;
}

static int by_size(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void report(const char *who, const char *what, double ns[ROUNDS])
{
    static bool again;
    qsort(ns, ROUNDS, sizeof *ns, by_size);
    printf("%s\n    {\"allocator\": \"%s\", \"workload\": \"%s\", \"ns_per_pair\": %.1f, "
           "\"low\": %.1f, \"high\": %.1f}",
           again ? "," : "", who, what, ns[ROUNDS / 2], ns[0], ns[ROUNDS - 1]);
    again = true;
}

static void time_all(struct timing *t, uint64_t pairs)
{
    static const struct {
        const char *name;
        size_t workload;
        enum spread spread;
        unsigned divide;
    } cases[] = {{"pair", 0, ONE_STREAM, 1},     {"small", 1, ONE_STREAM, 1},
                 {"mixed", 2, ONE_STREAM, 1},    {"large", 3, ONE_STREAM, 4},
                 {"streams", 1, ALL_STREAMS, 1}, {"used", 1, USED_ELSEWHERE, 20}};
    double ns[ROUNDS];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t steps = pairs / cases[i].divide + 1;
        time_workload(t, &workloads[cases[i].workload], cases[i].spread, steps / 10 + 1);
        for (int round = 0; round < ROUNDS; round++)
            ns[round] = time_workload(t, &workloads[cases[i].workload], cases[i].spread, steps);
        report("reprise", cases[i].name, ns);
    }
    for (int large = 0; large < 2; large++) {
        for (int round = 0; round < ROUNDS; round++)
            ns[round] = time_driver(t, large ? 8u << 20 : 4096);
        report("cuMemAlloc", large ? "8 MiB" : "4 KiB", ns);
    }
}

static bool measure(struct rp_device *device, uint64_t pairs)
{
    struct timing t = {.driver = device->driver};
    struct rp_error err = {0};
    bool made = rp_heap_create(device, NULL, &t.heap, &err) == RP_OK;
    for (int i = 0; made && i < STREAMS; i++)
        made = t.driver->cuStreamCreate(&t.streams[i], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    if (made)
        time_all(&t, pairs);
    if (!made || t.failed)
        fprintf(stderr, "device_heap: a request failed %s\n", err.message);
    rp_heap_destroy(t.heap);
    for (int i = 0; i < STREAMS; i++)
        if (t.streams[i])
            t.driver->cuStreamDestroy(t.streams[i]);
    return made && !t.failed;
}

static bool read_settings(int count, char **arguments, struct settings *out)
{
    *out = (struct settings){RP_DEVICE_OPTIONS_INIT, 1000000, 20, 2, 1};
    for (int i = 1; i + 1 < count; i += 2) {
        uint64_t number = strtoull(arguments[i + 1], NULL, 10);
        if (!strcmp(arguments[i], "--driver"))
            out->device.driver = arguments[i + 1];
        else if (!strcmp(arguments[i], "--device"))
            out->device.ordinal = (int)number;
        else if (!strcmp(arguments[i], "--pairs") && number)
            out->pairs = number;
        else if (!strcmp(arguments[i], "--seconds"))
            out->seconds = number;
        else if (!strcmp(arguments[i], "--threads") && number >= 1 && number <= 16)
            out->threads = number;
        else if (!strcmp(arguments[i], "--seed"))
            out->seed = number;
        else
            return false;
    }
    return count % 2 == 1;
}

static bool run(struct rp_device *device, const struct settings *settings)
{
    struct rp_device_info info = {.size = sizeof info};
    rp_device_info(device, &info);
    printf("{\n  \"driver\": \"%s\", \"device\": \"%s\", \"driver_version\": %d, "
           "\"reprise\": \"%s\",\n  \"pairs\": %" PRIu64 ", \"rounds\": %d,\n  \"results\": [",
           info.driver, info.name, info.driver_version, rp_version(), settings->pairs, ROUNDS);
    bool right = measure(device, settings->pairs);
    const struct device_check check = {.driver = device->driver,
                                       .device = device,
                                       .threads = (unsigned)settings->threads,
                                       .seconds = (double)settings->seconds,
                                       .seed = settings->seed};
    struct device_check_result result;
    right &= device_check_run(&check, &result) && !result.wrong;
    rp_device_info(device, &info);
    right &= info.host_races == 0;
    printf("\n  ],\n  \"check\": {\"right\": %s, \"threads\": %u, \"seed\": %" PRIu64
           ", \"seconds\": %.1f, \"rounds\": %" PRIu64 ", \"allocations\": %" PRIu64
           ", \"refused\": %" PRIu64 ", \"read_on_other_streams\": %" PRIu64
           ", \"bytes_filled\": %" PRIu64 ", \"bytes_compared\": %" PRIu64 ", \"wrong\": %" PRIu64
           "}\n}\n",
           right ? "true" : "false", check.threads, check.seed, result.seconds, result.rounds,
           result.allocations, result.refused, result.uses, result.bytes_filled,
           result.bytes_compared, result.wrong);
    return right && !fflush(stdout);
}

int main(int count, char **arguments)
{
    struct settings settings;
    struct rp_device *device = NULL;
    struct rp_error err;
    if (!read_settings(count, arguments, &settings)) {
        fprintf(stderr, "usage: device_heap [--driver cuda|host] [--device N] [--pairs N] "
                        "[--seconds N] [--threads 1 to 16] [--seed N]\n");
        return 2;
    }
    if (rp_device_open(&settings.device, &device, &err) != RP_OK ||
        rp_device_push(device, &err) != RP_OK) {
        fprintf(stderr, "device_heap: %s\n", err.message);
        rp_device_destroy(device);
        return 77;
    }
    bool right = run(device, &settings);
    rp_device_pop(device);
    rp_device_destroy(device);
    return right ? 0 : 1;
}
