/* SPDX-License-Identifier: MIT
 *
 * Height beside the bound, and the time for both, as JSON: for the captures of the recordings that
 * are named, then for random problems of a million intervals and of 100,000 blocks on eight
 * streams. One core. Every layout is checked.
 *
 *     bench_plan [--small] FILE...      --small: a hundredth of the random blocks
 */
#include "problems.h"

#include "base/clock.h"
#include "memory/plan/plan.h"
#include "recording/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ALIGNMENT          512
#define CAPTURE_BUDGET_MS  50
#define INTERVAL_BUDGET_MS 1000
#define STREAM_BUDGET_MS   3000

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void print_machine(void)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256], date[32];
    double mhz = 0;
    time_t now = time(NULL);
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "cpu MHz : %lf", &mhz) == 1)
            break;
    if (file)
        fclose(file);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    printf("{\n  \"machine\": \"%ld cores %.1f GHz x86-64, one used\",\n  \"date\": \"%s\",\n",
           sysconf(_SC_NPROCESSORS_ONLN), mhz * 1e-3, date);
}

/* Plans, checks, prints one object, frees the lifetimes. */
static void plan(const char *name, struct rpi_lifetimes *x, double lifetimes_ms, double budget_ms)
{
    static const char *const proofs[] = {"none", "bound", "search"};
    static bool more;
    struct rpi_plan_options options = {
        .alignment = ALIGNMENT, .budget_ms = budget_ms, .timed = true, .threads = 1};
    struct rpi_plan_result result = {0};
    struct rp_error err;
    uint64_t bound, *offsets = must(malloc(((size_t)x->count + 1) * sizeof *offsets));
    uint64_t start = rpi_clock_ns();
    rp_status status = rpi_bound(x, &bound, NULL, NULL, &err);
    double bound_ms = rpi_ms_since(start);
    if (!status)
        status = rpi_plan(x, &options, offsets, &result, &err);
    if (status || !layout_is_valid(x, offsets, result.height)) {
        fprintf(stderr, "bench_plan: %s: %s\n", name, status ? err.message : "invalid layout");
        exit(1);
    }
    printf("%s\n    {\"name\": \"%s\", \"blocks\": %u, \"lanes\": %u, \"bound_bytes\": %llu, "
           "\"height_bytes\": %llu, \"ratio\": %.6f, \"proof\": \"%s\", \"lifetimes_ms\": %.2f, "
           "\"bound_ms\": %.2f, \"bound_and_plan_ms\": %.2f}",
           more ? "," : "", name, x->count, x->lanes, (unsigned long long)bound,
           (unsigned long long)result.height, bound ? (double)result.height / (double)bound : 1.0,
           proofs[result.proof], lifetimes_ms, bound_ms, result.ms);
    fflush(stdout);
    more = true;
    free(offsets);
    rpi_lifetimes_finish(x);
}

static void plan_recording(const char *path)
{
    struct rp_recording *recording;
    struct rp_error err;
    if (rp_recording_load(path, &recording, &err)) {
        fprintf(stderr, "bench_plan: %s\n", err.message);
        exit(2);
    }
    for (size_t i = 0; i < recording->captures.count; i++) {
        const struct rpi_capture_record *capture = &recording->captures.data[i];
        struct rpi_lifetimes x;
        char name[256];
        uint64_t start = rpi_clock_ns();
        if (rpi_lifetimes_from_record(capture, ALIGNMENT, &x, &err)) {
            fprintf(stderr, "bench_plan: %s\n", err.message);
            exit(2);
        }
        snprintf(name, sizeof name, "%s/%s", base_name(path), capture->name);
        plan(name, &x, rpi_ms_since(start), CAPTURE_BUDGET_MS);
    }
    rp_recording_destroy(recording);
}

static void plan_random(uint32_t divisor)
{
    static const double chances[][2] = {{0.40, 0.10}, {0.45, 0.30}, {0.30, 0.20}, {0.42, 0.20}};
    struct rpi_lifetimes x;
    char name[64];
    for (enum intervals kind = 0; kind < INTERVALS_KINDS; kind++) {
        double ms = random_intervals(kind, 1000000 / divisor, ALIGNMENT, 1, &x);
        snprintf(name, sizeof name, "random intervals, %s", intervals_names[kind]);
        plan(name, &x, ms, INTERVAL_BUDGET_MS);
    }
    for (size_t i = 0; i < sizeof chances / sizeof *chances; i++) {
        struct program program = {8, 100000 / divisor, chances[i][0], chances[i][1], 1, 0};
        double ms = random_streams(&program, ALIGNMENT, &x);
        snprintf(name, sizeof name, "random streams, p_free %.2f, p_join %.2f", program.p_free,
                 program.p_join);
        plan(name, &x, ms, STREAM_BUDGET_MS);
    }
}

int main(int argc, char **argv)
{
    bool small = argc > 1 && strcmp(argv[1], "--small") == 0;
    print_machine();
    printf("  \"results\": [");
    for (int i = 1 + small; i < argc; i++)
        plan_recording(argv[i]);
    plan_random(small ? 100 : 1);
    printf("\n  ]\n}\n");
    return 0;
}
