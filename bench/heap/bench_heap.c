/* SPDX-License-Identifier: MIT
 *
 * How many requests a second the heap serves, on the host driver, beside mimalloc on the same
 * sequences. mimalloc gives host memory and is there for scale: no figure of it is a goal.
 *
 *     usage: bench_heap [--json FILE] [--rounds N] [--pairs N] [--only WORKLOAD]
 *
 * A pair is an allocation and a free; workloads.h has what is asked for. Every thread has a stream
 * of its own.
 *
 * Each figure is the median of the rounds, with the lowest and highest beside it. Rates are by wall
 * clock over all threads; "cpu_ns" is processor time for a pair, which a busy machine disturbs
 * less.
 */
#include "base/clock.h"
#include "driver/driver.h"
#include "reprise.h"
#include "reprise_heap.h"
#include "workloads.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef MIMALLOC_VERSION
#include <mimalloc.h>
#endif

enum { MOST_THREADS = 2, MOST_ROUNDS = 99 };

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct worker {
    const struct workload *workload;
    struct rp_heap *heap; /* NULL: mimalloc */
    CUstream stream;
    uint64_t seed, pairs;
    pthread_barrier_t *start;
    uint64_t begin, end; /* its own clock: nobody may be late to look */
    double cpu;
    bool failed;
};

static void run_heap(struct worker *w)
{
    uint64_t slots[MOST_SLOTS] = {0}, random = w->seed;
    size_t count = w->workload->slots;
    for (uint64_t i = 0; i < w->pairs; i++) {
        uint64_t r = next_random(&random), *slot = &slots[(r >> 40) % count];
        w->failed |= rp_heap_free(w->heap, *slot, NULL) != RP_OK;
        w->failed |= rp_heap_alloc(w->heap, w->workload->bytes(r), w->stream, slot, NULL) != RP_OK;
    }
    for (size_t i = 0; i < count; i++)
        w->failed |= rp_heap_free(w->heap, slots[i], NULL) != RP_OK;
}

#ifdef MIMALLOC_VERSION
static void run_mimalloc(struct worker *w)
{
    void *slots[MOST_SLOTS] = {NULL};
    uint64_t random = w->seed;
    size_t count = w->workload->slots;
    for (uint64_t i = 0; i < w->pairs; i++) {
        uint64_t r = next_random(&random);
        void **slot = &slots[(r >> 40) % count];
        mi_free(*slot);
        *slot = mi_malloc(w->workload->bytes(r));
        w->failed |= !*slot;
    }
    for (size_t i = 0; i < count; i++)
        mi_free(slots[i]);
}
#endif

static void *work(void *argument)
{
    struct worker *w = argument;
    pthread_barrier_wait(w->start);
    w->begin = rpi_clock_ns();
    double start = cpu_seconds();
    if (w->heap)
        run_heap(w);
#ifdef MIMALLOC_VERSION
    else
        run_mimalloc(w);
#endif
    w->cpu = cpu_seconds() - start;
    w->end = rpi_clock_ns();
    return NULL;
}

struct sample {
    double rate, cpu_ns;
};

static struct sample measure(const struct workload *workload, struct rp_heap *heap,
                             const CUstream *streams, int threads, uint64_t pairs)
{
    struct worker workers[MOST_THREADS];
    pthread_t ids[MOST_THREADS];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        workers[i] = (struct worker){.workload = workload,
                                     .heap = heap,
                                     .stream = streams[i],
                                     .seed = 0x9e3779b97f4a7c15u * (uint64_t)(i + 1),
                                     .pairs = pairs / workload->divide,
                                     .start = &start};
        if (pthread_create(&ids[i], NULL, work, &workers[i]) != 0)
            exit(1);
    }
    uint64_t begin = UINT64_MAX, end = 0;
    double cpu = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        cpu += workers[i].cpu;
        begin = workers[i].begin < begin ? workers[i].begin : begin;
        end = workers[i].end > end ? workers[i].end : end;
        if (workers[i].failed) {
            fprintf(stderr, "bench_heap: a request failed\n");
            exit(1);
        }
    }
    double seconds = (double)(end - begin) * 1e-9;
    size_t each = pairs / workload->divide;
    double done = (double)each * threads;
    pthread_barrier_destroy(&start);
    return (struct sample){done / seconds, cpu * 1e9 / done};
}

static int by_rate(const void *a, const void *b)
{
    double x = ((const struct sample *)a)->rate, y = ((const struct sample *)b)->rate;
    return (x > y) - (x < y);
}

static int by_cpu(const void *a, const void *b)
{
    double x = ((const struct sample *)a)->cpu_ns, y = ((const struct sample *)b)->cpu_ns;
    return (x > y) - (x < y);
}

struct settings {
    const char *json, *only;
    int rounds;
    uint64_t pairs;
};

static void report(FILE *json, const char *allocator, const char *workload, int threads,
                   struct sample *samples, int rounds)
{
    static bool again;
    qsort(samples, (size_t)rounds, sizeof *samples, by_rate);
    double low = samples[0].rate, rate = samples[rounds / 2].rate, high = samples[rounds - 1].rate;
    qsort(samples, (size_t)rounds, sizeof *samples, by_cpu);
    double cpu = samples[rounds / 2].cpu_ns, least = samples[0].cpu_ns;
    printf("%-10s %-8s %7d %10.1f %10.1f %10.1f %9.1f\n", workload, allocator, threads, rate * 1e-6,
           low * 1e-6, high * 1e-6, cpu);
    fflush(stdout);
    if (!json)
        return;
    fprintf(json,
            "%s\n    {\"workload\": \"%s\", \"allocator\": \"%s\", \"threads\": %d, "
            "\"pairs_per_s\": %.0f, \"pairs_per_s_low\": %.0f, \"pairs_per_s_high\": %.0f, "
            "\"cpu_ns\": %.1f, \"cpu_ns_low\": %.1f}",
            again ? "," : "", workload, allocator, threads, rate, low, high, cpu, least);
    again = true;
}

static void machine(FILE *json, const struct settings *settings)
{
    char line[256], model[256] = "unknown";
    FILE *info = fopen("/proc/cpuinfo", "r");
    while (info && fgets(line, sizeof line, info))
        if (sscanf(line, "model name : %255[^\n]", model) == 1)
            break;
    if (info)
        fclose(info);
    double load[1] = {0};
    getloadavg(load, 1); /* of the minute before: what else the machine was doing */
    char date[32];
    time_t now = time(NULL);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    fprintf(json,
            "{\n  \"date\": \"%s\", \"machine\": \"%s\", \"cores\": %ld, \"compiler\": \"%s\",\n"
            "  \"reprise\": \"%s\", \"mimalloc\": %s, \"driver\": \"host\",\n"
            "  \"load_before\": %.1f, \"rounds\": %d, \"pairs\": %" PRIu64 ",\n  \"results\": [",
            date, model, sysconf(_SC_NPROCESSORS_ONLN), __VERSION__, rp_version(),
#ifdef MIMALLOC_VERSION
            "\"" MIMALLOC_VERSION "\"",
#else
            "null",
#endif
            load[0], settings->rounds, settings->pairs);
}

static void run_all(FILE *json, struct rp_heap *heap, const CUstream *streams,
                    const struct settings *settings)
{
    struct sample samples[2][MOST_ROUNDS];
    printf("%-10s %-8s %7s %10s %10s %10s %9s\n", "workload", "who", "threads", "Mpairs/s", "low",
           "high", "cpu ns");
    for (size_t w = 0; w < sizeof workloads / sizeof *workloads; w++) {
        if (settings->only && strcmp(settings->only, workloads[w].name) != 0)
            continue;
        for (int threads = 1; threads <= MOST_THREADS; threads++) {
            for (int round = 0; round < settings->rounds; round++) {
                samples[0][round] = measure(&workloads[w], heap, streams, threads, settings->pairs);
#ifdef MIMALLOC_VERSION
                samples[1][round] = measure(&workloads[w], NULL, streams, threads, settings->pairs);
#endif
            }
            report(json, "reprise", workloads[w].name, threads, samples[0], settings->rounds);
#ifdef MIMALLOC_VERSION
            report(json, "mimalloc", workloads[w].name, threads, samples[1], settings->rounds);
#endif
        }
    }
#ifndef MIMALLOC_VERSION
    printf("mimalloc's rows are left out: it was not found when this was configured "
           "(libmimalloc-dev)\n");
#endif
}

static int read_settings(int count, char **arguments, struct settings *out)
{
    *out = (struct settings){NULL, NULL, 7, 4000000};
    for (int i = 1; i < count; i++) {
        if (!strcmp(arguments[i], "--json") && i + 1 < count)
            out->json = arguments[++i];
        else if (!strcmp(arguments[i], "--only") && i + 1 < count)
            out->only = arguments[++i];
        else if (!strcmp(arguments[i], "--rounds") && i + 1 < count)
            out->rounds = atoi(arguments[++i]);
        else if (!strcmp(arguments[i], "--pairs") && i + 1 < count)
            out->pairs = strtoull(arguments[++i], NULL, 10);
        else
            return 0;
    }
    return out->rounds >= 1 && out->rounds <= MOST_ROUNDS && out->pairs > 0;
}

int main(int count, char **arguments)
{
    struct settings settings;
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    struct rp_device *device = NULL;
    struct rp_heap *heap = NULL;
    struct rp_error err;
    CUstream streams[MOST_THREADS];
    FILE *json = NULL;
    if (!read_settings(count, arguments, &settings)) {
        fprintf(stderr,
                "usage: bench_heap [--json FILE] [--rounds N] [--pairs N] [--only WORKLOAD]\n");
        return 2;
    }
    options.driver = "host";
    if (rp_device_open(&options, &device, &err) != RP_OK ||
        rp_heap_create(device, NULL, &heap, &err) != RP_OK) {
        fprintf(stderr, "bench_heap: %s\n", err.message);
        return 1;
    }
    rp_device_push(device, NULL);
    for (int i = 0; i < MOST_THREADS; i++)
        rpi_driver_host()->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING);
    rp_device_pop(device);
    if (settings.json && !(json = fopen(settings.json, "w"))) {
        perror(settings.json);
        return 1;
    }
    if (json)
        machine(json, &settings);
    run_all(json, heap, streams, &settings);
    if (json && (fprintf(json, "\n  ]\n}\n") < 0 || fclose(json) != 0))
        return 1;
    rp_heap_destroy(heap);
    rp_device_destroy(device);
    return 0;
}
