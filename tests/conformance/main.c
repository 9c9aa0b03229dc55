/* SPDX-License-Identifier: MIT
 *
 * The conformance suite: one table of cases, run on every driver. What NVIDIA's driver does on a
 * device is right; the host driver is held to it.
 *
 *     conformance [--driver host|cuda|all] [--filter TEXT] [--json FILE] [--trace FILE] [--list]
 *
 * `all`, the default, runs the host driver, and NVIDIA's where it loads and cuInit succeeds, and
 * says why where not. A driver that was named but does not work ends the program with 77. --json
 * writes an object for the driver that was named, or a list of them for `all`: driver, device,
 * driver_version, date, cases (name, result, reason), passed, failed, skipped. --trace writes every
 * driver call.
 */
#include "conformance.h"

#include "driver/host/host.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { EXIT_SKIPPED = 77, EXIT_USAGE = 2 };

static const struct {
    const char *name;
    void (*run)(struct rpt *t);
} cases[] = {
#define CASE(name) {#name, case_##name},
#include "cases.def"
#undef CASE
};
enum { CASE_COUNT = sizeof cases / sizeof *cases };

struct options {
    const char *driver; /* "host", "cuda" or "all" */
    const char *filter;
    const char *json;
    const char *trace;
    bool list;
};

/* One case on one driver. */
struct run {
    struct rpt t;
    size_t index;
    bool ran;
    struct rpi_host_statistics before;
};

static struct run runs[CASE_COUNT];

/* ---- One case ------------------------------------------------------------------------------ */

static bool is_host(const struct rp_driver *driver)
{
    return !strcmp(driver->provider, "host");
}

static int set_up_case(void **state)
{
    struct run *run = *state;
    run->ran = true;
    run->t.outcome = CASE_RUNNING;
    if (is_host(run->t.d))
        rpi_host_statistics(&run->before);
    return run->t.d->cuCtxSetCurrent(run->t.context) == CUDA_SUCCESS ? 0 : -1;
}

static void run_case(void **state)
{
    struct run *run = *state;
    cases[run->index].run(&run->t);
    run->t.outcome = CASE_PASSED;
}

static void blame(struct rpt *t, const char *reason)
{
    print_error("%s\n", reason);
    if (t->outcome == CASE_FAILED)
        return;
    t->outcome = CASE_FAILED;
    snprintf(t->reason, sizeof t->reason, "%s", reason);
}

/* What the host driver counts must be as before the case. */
static void expect_nothing_left(struct run *run)
{
    struct rpi_host_statistics now;
    rpi_host_statistics(&now);
    const struct {
        const char *name;
        uint64_t before, now;
    } counts[] = {
        {"bytes of device memory", run->before.physical_bytes, now.physical_bytes},
        {"bytes of reserved addresses", run->before.reserved_bytes, now.reserved_bytes},
        {"bytes of pinned memory", run->before.pinned_bytes, now.pinned_bytes},
        {"chunks", run->before.chunks, now.chunks},
        {"mappings", run->before.mappings, now.mappings},
        {"streams", run->before.streams, now.streams},
        {"events", run->before.events, now.events},
        {"modules", run->before.modules, now.modules},
        {"graphs", run->before.graphs, now.graphs},
        {"executable graphs", run->before.execs, now.execs},
        {"captures", run->before.captures, now.captures},
        {"races", run->before.races, now.races},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char reason[128];
        if (counts[i].before == counts[i].now)
            continue;
        snprintf(reason, sizeof reason, "left behind: %s were %llu and are %llu", counts[i].name,
                 (unsigned long long)counts[i].before, (unsigned long long)counts[i].now);
        blame(&run->t, reason);
    }
}

static int tear_down_case(void **state)
{
    struct run *run = *state;
    bool failed_before = run->t.outcome == CASE_FAILED;
    rpt_clean(&run->t);
    CUresult result = run->t.d->cuCtxSynchronize();
    if (result != CUDA_SUCCESS)
        blame(&run->t, rpi_result_name(result));
    if (is_host(run->t.d))
        expect_nothing_left(run);
    return run->t.outcome == CASE_FAILED && !failed_before ? -1 : 0;
}

/* ---- One driver ---------------------------------------------------------------------------- */

/* Fills the part of the fixture that all cases share; false with the reason. */
static bool open_device(const struct rp_driver *driver, struct rpt *out, char reason[512])
{
    const char *step = "cuInit";
    CUresult result = driver->cuInit(0);
    *out = (struct rpt){.d = driver};
    if (result == CUDA_SUCCESS) {
        step = "cuDeviceGet";
        result = driver->cuDeviceGet(&out->device, 0);
    }
    if (result == CUDA_SUCCESS) {
        step = "cuDevicePrimaryCtxRetain";
        result = driver->cuDevicePrimaryCtxRetain(&out->context, out->device);
    }
    if (result == CUDA_SUCCESS) {
        step = "loading the kernels";
        driver->cuCtxSetCurrent(out->context);
        result = rpt_load_kernels(out);
    }
    if (result != CUDA_SUCCESS)
        snprintf(reason, 512, "%s: %s returned %s: %s", driver->provider, step,
                 rpi_result_name(result), rpi_result_meaning(result));
    return result == CUDA_SUCCESS;
}

static void close_device(struct rpt *t)
{
    t->d->cuCtxSetCurrent(t->context);
    t->d->cuModuleUnload(t->module);
    if (t->module90)
        t->d->cuModuleUnload(t->module90);
    t->d->cuCtxSetCurrent(NULL);
    t->d->cuDevicePrimaryCtxRelease(t->device);
}

static json_t *report(const struct rpt *shared)
{
    char device[128] = "", date[32];
    shared->d->cuDeviceGetName(device, sizeof device, shared->device);
    time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_t *list = json_array();
    int counts[4] = {0};
    static const char *const outcomes[] = {"fail", "pass", "fail", "skip"};
    for (size_t i = 0; i < CASE_COUNT; i++) {
        const struct rpt *t = &runs[i].t;
        if (!runs[i].ran)
            continue;
        counts[t->outcome]++;
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", cases[i].name, "result",
                                              outcomes[t->outcome], "reason", t->reason));
    }
    return json_pack("{s:s, s:s, s:i, s:s, s:o, s:i, s:i, s:i}", "driver", shared->d->provider,
                     "device", device, "driver_version", shared->d->version, "date", date, "cases",
                     list, "passed", counts[CASE_PASSED], "failed",
                     counts[CASE_FAILED] + counts[CASE_RUNNING], "skipped", counts[CASE_SKIPPED]);
}

/* Runs the cases that the filter takes; returns how many failed, or -1 when the driver does not
 * work, with the reason printed. */
static int run_driver(const struct rp_driver *driver, const struct options *options,
                      json_t **out_report)
{
    static struct CMUnitTest tests[CASE_COUNT];
    struct rpt shared;
    char reason[512];
    size_t count = 0;
    FILE *trace = options->trace ? fopen(options->trace, "w") : NULL;
    if (trace)
        driver = rpi_driver_trace(driver, trace);
    if (!open_device(driver, &shared, reason)) {
        printf("skipped: %s\n", reason);
        return -1;
    }
    for (size_t i = 0; i < CASE_COUNT; i++) {
        runs[i] = (struct run){.t = shared, .index = i};
        pthread_mutex_init(&runs[i].t.gate.lock, NULL);
        pthread_cond_init(&runs[i].t.gate.opened, NULL);
        if (options->filter && !strstr(cases[i].name, options->filter))
            continue;
        tests[count++] = (struct CMUnitTest){.name = cases[i].name,
                                             .test_func = run_case,
                                             .setup_func = set_up_case,
                                             .teardown_func = tear_down_case,
                                             .initial_state = &runs[i]};
    }
    int failed = _cmocka_run_group_tests(driver->provider, tests, count, NULL, NULL);
    *out_report = report(&shared);
    close_device(&shared);
    if (trace)
        fclose(trace);
    return failed;
}

static int run_cuda(const struct options *options, json_t **out_report)
{
    const struct rp_driver *driver;
    struct rp_error err;
    if (rpi_driver_libcuda(&driver, &err) != RP_OK) {
        printf("skipped: cuda: %s\n", err.message);
        return -1;
    }
    return run_driver(driver, options, out_report);
}

/* ---- The program --------------------------------------------------------------------------- */

static int usage(void)
{
    fprintf(stderr, "usage: conformance [--driver host|cuda|all] [--filter TEXT] [--json FILE] "
                    "[--trace FILE] [--list]\n");
    return EXIT_USAGE;
}

static bool parse(int argc, char **argv, struct options *out)
{
    *out = (struct options){.driver = "all"};
    for (int i = 1; i < argc; i++) {
        const char **value = NULL;
        if (!strcmp(argv[i], "--list")) {
            out->list = true;
            continue;
        }
        if (!strcmp(argv[i], "--driver"))
            value = &out->driver;
        if (!strcmp(argv[i], "--filter"))
            value = &out->filter;
        if (!strcmp(argv[i], "--json"))
            value = &out->json;
        if (!strcmp(argv[i], "--trace"))
            value = &out->trace;
        if (!value || ++i == argc)
            return false;
        *value = argv[i];
    }
    return !strcmp(out->driver, "all") || !strcmp(out->driver, "host") ||
           !strcmp(out->driver, "cuda");
}

int main(int argc, char **argv)
{
    struct options options;
    json_t *host = NULL, *cuda = NULL;
    int host_failed = 0, cuda_failed = 0, written = 0;
    if (!parse(argc, argv, &options))
        return usage();
    for (size_t i = 0; options.list && i < CASE_COUNT; i++)
        puts(cases[i].name);
    if (options.list)
        return 0;
    bool all = !strcmp(options.driver, "all");
    if (all || !strcmp(options.driver, "host"))
        host_failed = run_driver(rpi_driver_host(), &options, &host);
    if (all || !strcmp(options.driver, "cuda"))
        cuda_failed = run_cuda(&options, &cuda);
    if (options.json && (host || cuda)) {
        json_t *reports = json_array();
        json_array_append(reports, host);
        json_array_append(reports, cuda);
        written = json_dump_file(all ? reports : json_array_get(reports, 0), options.json,
                                 JSON_INDENT(1) | JSON_PRESERVE_ORDER);
        json_decref(reports);
    }
    if (written != 0)
        fprintf(stderr, "conformance: %s could not be written\n", options.json);
    json_decref(host);
    json_decref(cuda);
    if (!all && host_failed + cuda_failed < 0)
        return EXIT_SKIPPED;
    return host_failed != 0 || cuda_failed > 0 || written != 0;
}
