/* SPDX-License-Identifier: MIT
 *
 * What a step of the planner's budget takes: each problem is planned with the default budget, and
 * the steps are set beside the time that the thread ran, as JSON. The recordings that are named,
 * then random programs of 50 to 20,000 blocks on one to eight streams, so that each part of the
 * planner has problems that it does not finish. Run it on an idle machine.
 *
 *     bench_budget FILE...
 */
#include "problems.h"

#include "base/clock.h"
#include "memory/plan/plan.h"

#include "reprise.h"
#include "reprise_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 512

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void print_result(const char *name, size_t blocks, uint32_t lanes, uint64_t height,
                         uint64_t bound, bool stopped, uint64_t steps, double cpu_ms)
{
    static bool more;
    printf("%s\n    {\"name\": \"%s\", \"blocks\": %zu, \"streams\": %u, \"height_bytes\": %llu, "
           "\"bound_bytes\": %llu, \"stopped\": %s, \"steps\": %llu, \"cpu_ms\": %.2f}",
           more ? "," : "", name, blocks, lanes, (unsigned long long)height,
           (unsigned long long)bound, stopped ? "true" : "false", (unsigned long long)steps,
           cpu_ms);
    fflush(stdout);
    more = true;
}

static void plan_random(uint32_t lanes, uint32_t blocks, uint64_t seed)
{
    struct program program = {lanes, blocks, 0.42, lanes > 1 ? 0.20 : 0.0, seed, 0};
    struct rpi_lifetimes x;
    struct rp_error err;
    char name[64];
    random_streams(&program, ALIGNMENT, &x);
    struct rpi_meter meter = rpi_meter_start(false);
    struct rpi_plan_options options = {.alignment = ALIGNMENT, .threads = 1, .meter = &meter};
    rpi_plan_set_budget(&options, 0);
    struct rpi_plan_result result = {0};
    uint64_t *offsets = must(malloc(((size_t)x.count + 1) * sizeof *offsets));
    uint64_t start = rpi_clock_thread_ns();
    if (rpi_plan(&x, &options, offsets, &result, &err) ||
        !layout_is_valid(&x, offsets, result.height)) {
        fprintf(stderr, "bench_budget: no layout, or an invalid one\n");
        exit(1);
    }
    double cpu_ms = (double)(rpi_clock_thread_ns() - start) * 1e-6;
    snprintf(name, sizeof name, "random, %u streams, seed %llu", lanes, (unsigned long long)seed);
    print_result(name, x.count, lanes, result.height, result.lower_bound, result.stopped,
                 meter.steps, cpu_ms);
    free(offsets);
    rpi_lifetimes_finish(&x);
}

static void plan_file(const char *path)
{
    struct rp_recording *recording = NULL;
    struct rp_layout *layout = NULL;
    struct rp_error err;
    if (rp_recording_load(path, &recording, &err)) {
        fprintf(stderr, "bench_budget: %s\n", err.message);
        exit(2);
    }
    uint64_t start = rpi_clock_thread_ns();
    if (rp_recording_plan(recording, NULL, &layout, &err)) {
        fprintf(stderr, "bench_budget: %s\n", err.message);
        exit(2);
    }
    double cpu_ms = (double)(rpi_clock_thread_ns() - start) * 1e-6;
    struct rp_layout_info info = {.size = sizeof info};
    size_t blocks = 0;
    rp_layout_info(layout, &info);
    for (size_t c = 0; c < info.captures; c++) {
        struct rp_layout_capture capture = {.size = sizeof capture};
        rp_layout_capture(layout, c, &capture);
        blocks += capture.blocks;
    }
    print_result(base_name(path), blocks, 0, info.pool_bytes, info.lower_bound_bytes,
                 info.stopped != 0, info.steps, cpu_ms);
    rp_layout_destroy(layout);
    rp_recording_destroy(recording);
}

int main(int argc, char **argv)
{
    static const uint32_t sizes[] = {50, 200, 1000, 5000, 20000};
    printf("{\n  \"results\": [");
    for (int i = 1; i < argc; i++)
        plan_file(argv[i]);
    for (uint32_t lanes = 1; lanes <= 8; lanes *= 2)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            plan_random(lanes, sizes[i], 1);
    printf("\n  ]\n}\n");
    return 0;
}
