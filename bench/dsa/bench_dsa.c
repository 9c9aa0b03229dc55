/* SPDX-License-Identifier: MIT
 *
 * Times the exact search on problems of the form id,lower,upper,size, one line each.
 *
 *     bench_dsa [--capacity BYTES] [--budget-ms N] [--threads N] [--json] [--out CSV] FILE...
 *
 * Without a capacity it minimises. Every layout is checked pair by pair. --out writes the layout of
 * the last file with a column `offset`.
 */
#include "base/clock.h"
#include "memory/plan/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct output {
    int json;
    const char *layout; /* file, or NULL */
};

struct problem {
    uint32_t count;
    int64_t *lower, *upper;
    uint64_t *bytes;
};

static void *must(void *memory)
{
    if (!memory) {
        fputs("bench_dsa: out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

static struct problem read_problem(const char *path)
{
    struct problem problem = {0};
    FILE *file = fopen(path, "r");
    char line[256];
    if (!file || !fgets(line, sizeof line, file)) {
        fprintf(stderr, "bench_dsa: cannot read %s\n", path);
        exit(2);
    }
    while (fgets(line, sizeof line, file)) {
        long long lower, upper;
        unsigned long long bytes;
        if (sscanf(line, "%*[^,],%lld,%lld,%llu", &lower, &upper, &bytes) != 3)
            continue;
        size_t count = (size_t)problem.count + 1;
        problem.lower = must(realloc(problem.lower, count * sizeof *problem.lower));
        problem.upper = must(realloc(problem.upper, count * sizeof *problem.upper));
        problem.bytes = must(realloc(problem.bytes, count * sizeof *problem.bytes));
        problem.lower[problem.count] = lower;
        problem.upper[problem.count] = upper;
        problem.bytes[problem.count++] = bytes;
    }
    fclose(file);
    return problem;
}

static int is_valid(const struct rpi_lifetimes *l, const uint64_t *offsets, uint64_t height)
{
    for (uint32_t a = 0; a < l->count; a++) {
        if (offsets[a] + l->bytes[a] > height)
            return 0;
        for (uint32_t b = a + 1; b < l->count && b < l->first[a]; b++)
            if (offsets[a] < offsets[b] + l->bytes[b] && offsets[b] < offsets[a] + l->bytes[a])
                return 0;
    }
    return 1;
}

static void write_layout(const char *path, const struct problem *p, const struct rpi_lifetimes *l,
                         const uint64_t *offsets)
{
    FILE *file = fopen(path, "w");
    if (!file) {
        fprintf(stderr, "bench_dsa: cannot write %s\n", path);
        exit(2);
    }
    fputs("id,lower,upper,size,offset\n", file);
    for (uint32_t i = 0; i < l->count; i++) {
        uint32_t b = l->block[i];
        fprintf(file, "%u,%lld,%lld,%llu,%llu\n", b, (long long)p->lower[b], (long long)p->upper[b],
                (unsigned long long)p->bytes[b], (unsigned long long)offsets[i]);
    }
    fclose(file);
}

static double run(const char *path, const struct rpi_plan_options *options,
                  const struct output *output, int last)
{
    struct problem problem = read_problem(path);
    struct rpi_lifetimes l;
    uint64_t bound, upper = UINT64_MAX, start = rpi_clock_ns();
    if (rpi_lifetimes_from_intervals(problem.lower, problem.upper, problem.bytes, problem.count,
                                     options->alignment, &l, NULL) ||
        rpi_bound(&l, &bound, NULL, NULL, NULL)) {
        fprintf(stderr, "bench_dsa: %s is no problem\n", path);
        exit(2);
    }
    uint64_t *offsets = must(calloc(l.count, sizeof *offsets));
    bool exhausted = false;
    struct rp_error err = {0};
    struct rpi_plan_search_counts counts = {0};
    rp_status status =
        rpi_plan_search_counted(&l, options, bound, offsets, &upper, &exhausted, &counts, &err);
    double seconds = rpi_ms_since(start) / 1000;
    int found = status == RP_OK && upper != UINT64_MAX;
    int valid = found && is_valid(&l, offsets, upper);
    printf(output->json
               ? "  {\"file\": \"%s\", \"blocks\": %u, \"bound\": %llu, \"height\": %lld, "
                 "\"exhausted\": %s, \"valid\": %s, \"seconds\": %.4f, \"nodes\": %llu}%s\n"
               : "%s: blocks %u, bound %llu, height %lld, exhausted %s, valid %s, %.4f s, nodes "
                 "%llu%s\n",
           path, l.count, (unsigned long long)bound, found ? (long long)upper : -1,
           exhausted ? "true" : "false", valid ? "true" : "false", seconds,
           (unsigned long long)counts.nodes, output->json && !last ? "," : "");
    fflush(stdout);
    if (found && last && output->layout)
        write_layout(output->layout, &problem, &l, offsets);
    free(problem.lower);
    free(problem.upper);
    free(problem.bytes);
    rpi_lifetimes_finish(&l);
    free(offsets);
    return seconds;
}

int main(int argc, char **argv)
{
    struct rpi_plan_options options = {
        .alignment = 1, .budget_ms = 10000, .timed = true, .threads = 1};
    struct output output = {0};
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        if (!strcmp(argv[at], "--json"))
            output.json = 1;
        else if (!strcmp(argv[at], "--out") && at + 1 < argc)
            output.layout = argv[++at];
        else if (!strcmp(argv[at], "--capacity") && at + 1 < argc)
            options.capacity = strtoull(argv[++at], NULL, 10);
        else if (!strcmp(argv[at], "--budget-ms") && at + 1 < argc)
            options.budget_ms = strtod(argv[++at], NULL);
        else if (!strcmp(argv[at], "--threads") && at + 1 < argc)
            options.threads = (unsigned)strtoul(argv[++at], NULL, 10);
    }
    if (at == argc || options.threads < 1) {
        fputs(
            "usage: bench_dsa [--capacity BYTES] [--budget-ms N] [--threads N] [--json] [--out CSV]"
            " FILE...\n",
            stderr);
        return 2;
    }
    double total = 0;
    if (output.json)
        puts("[");
    for (; at < argc; at++)
        total += run(argv[at], &options, &output, at + 1 == argc);
    if (output.json)
        puts("]");
    else
        printf("total %.4f s\n", total);
    return 0;
}
