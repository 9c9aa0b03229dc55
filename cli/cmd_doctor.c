/* SPDX-License-Identifier: MIT
 *
 * reprise doctor: is this machine ready for graphs, and if not, what to do.
 */
#include "cli.h"
#include "doctor.h"
#include "error.h"
#include "options.h"
#include "output.h"

#include "reprise.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MOST_TESTS = 8 };

struct request {
    const char *driver;
    bool json, no_python;
};

struct diagnosis {
    struct rp_device *device; /* NULL: none could be opened */
    struct rp_error no_device;
    char no_gpu[512]; /* why the host driver is used where nobody asked for it */
    struct rp_device_info info;
    struct {
        const char *name;
        rp_status status;
        struct rp_error err;
    } tests[MOST_TESTS];
    size_t test_count;
    struct doctor_torch torch;
    bool asked_python;
    struct doctor_facts environment, alloc;
    char verdict[640];
    bool ready;
};

static const char usage[] =
    "usage: reprise doctor [OPTIONS]\n"
    "\n"
    "Looks at driver, device, PyTorch and the environment, tries capture, binding and\n"
    "update on the driver, and says in its last line whether all is ready for graphs, or\n"
    "what to do.\n"
    "\n"
    "options:\n"
    "  --driver NAME  cuda or host; without it cuda where it works\n"
    "  --no-python    do not ask python3 for PyTorch\n"
    "  --json         print one JSON object and nothing else\n"
    "  -h, --help     print this\n"
    "\n"
    "exit: 0 ready, 1 something is to be done, 2 usage\n";

enum { OPT_DRIVER = 256, OPT_JSON, OPT_NO_PYTHON };

static const struct option long_options[] = {{"driver", required_argument, NULL, OPT_DRIVER},
                                             {"json", no_argument, NULL, OPT_JSON},
                                             {"no-python", no_argument, NULL, OPT_NO_PYTHON},
                                             {"help", no_argument, NULL, 'h'},
                                             {NULL, 0, NULL, 0}};

static bool take_option(int option, void *into)
{
    struct request *request = into;
    if (option == OPT_DRIVER)
        return cli_take_driver("doctor", &request->driver);
    request->json |= option == OPT_JSON;
    request->no_python |= option == OPT_NO_PYTHON;
    return true;
}

static const struct cli_options reading = {
    .command = "doctor", .usage = usage, .names = long_options, .take = take_option};

/* ---- Looking ------------------------------------------------------------------------------- */

/* Where no driver was asked for, NVIDIA's first, so that its reason is known. */
static void open_device(const char *driver, struct diagnosis *d)
{
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    options.driver = driver ? driver : "cuda";
    if (rp_device_open(&options, &d->device, &d->no_device) == RP_OK || driver)
        return;
    snprintf(d->no_gpu, sizeof d->no_gpu, "%s", d->no_device.message);
    options.driver = "host";
    rp_device_open(&options, &d->device, &d->no_device);
}

static void run_tests(struct diagnosis *d)
{
    while (d->test_count < MOST_TESTS &&
           rp_self_test(d->device, d->test_count, &d->tests[d->test_count].name,
                        &d->tests[d->test_count].status, &d->tests[d->test_count].err))
        d->test_count++;
}

static const struct doctor_fact *find_wrong(const struct doctor_facts *facts)
{
    for (size_t i = 0; i < facts->count; i++)
        if (facts->fact[i].misspelled || facts->fact[i].stops)
            return &facts->fact[i];
    return NULL;
}

/* The first thing to do; ready where there is none. */
static void judge(struct diagnosis *d)
{
    const struct doctor_fact *wrong = find_wrong(&d->environment);
    if (!wrong)
        wrong = find_wrong(&d->alloc);
    for (size_t i = 0; i < d->test_count; i++)
        if (d->tests[i].status != RP_OK) {
            snprintf(d->verdict, sizeof d->verdict, "not ready: the self-test of %s failed: %s",
                     d->tests[i].name, d->tests[i].err.message);
            return;
        }
    d->ready = d->device && !wrong && !d->torch.problem[0];
    if (!d->device)
        snprintf(d->verdict, sizeof d->verdict, "not ready: %s", d->no_device.message);
    else if (wrong)
        snprintf(d->verdict, sizeof d->verdict, "not ready: correct or unset %s: %s", wrong->name,
                 wrong->says);
    else if (d->torch.problem[0])
        snprintf(d->verdict, sizeof d->verdict, "not ready: %s", d->torch.problem);
    else if (d->no_gpu[0])
        snprintf(d->verdict, sizeof d->verdict, "ready, on the host driver only: %s", d->no_gpu);
    else
        snprintf(d->verdict, sizeof d->verdict, "ready: %s through the %s driver", d->info.name,
                 d->info.driver);
}

static void diagnose(const struct request *request, struct diagnosis *d)
{
    open_device(request->driver, d);
    if (d->device) {
        rp_device_info(d->device, &d->info);
        run_tests(d);
    }
    d->asked_python = !request->no_python;
    if (d->asked_python) {
        bool is_cuda = d->device && strcmp(d->info.driver, "cuda") == 0;
        doctor_torch(is_cuda ? d->info.driver_version : 0, &d->torch);
    }
    doctor_environment(&d->environment);
    doctor_alloc_conf(&d->alloc);
    judge(d);
}

/* ---- Text ---------------------------------------------------------------------------------- */

static void print_facts(const char *title, const struct doctor_facts *facts)
{
    if (facts->count)
        printf("%s\n", title);
    for (size_t i = 0; i < facts->count; i++) {
        const struct doctor_fact *fact = &facts->fact[i];
        printf("  %s %s = %s%s%s\n", fact->misspelled || fact->stops ? "!" : " ", fact->name,
               fact->value, fact->says[0] ? "\n      " : "", fact->says);
    }
}

static void print_device(const struct diagnosis *d)
{
    struct rp_capability capability;
    const struct rp_device_info *info = &d->info;
    if (d->no_gpu[0])
        printf("no GPU      %s\n", d->no_gpu);
    if (!d->device)
        return;
    printf("driver      %s, CUDA %d.%d\n", info->driver, info->driver_version / 1000,
           info->driver_version % 1000 / 10);
    printf("device      %s, compute capability %d.%d, %d multiprocessors, %.1f GiB\n", info->name,
           info->compute_major, info->compute_minor, info->multiprocessors,
           cli_mib(info->total_bytes) / 1024);
    for (size_t i = 0; rp_device_capability(d->device, i, &capability); i++)
        if (capability.present)
            printf("has         %s\n", capability.name);
        else
            printf("lacks       %s: %s\n", capability.name, capability.lost);
    for (size_t i = 0; i < d->test_count; i++)
        printf("self-test   %s: %s\n", d->tests[i].name,
               d->tests[i].status == RP_OK ? "works" : d->tests[i].err.message);
}

static void print_text(const struct diagnosis *d)
{
    print_device(d);
    if (d->torch.torch)
        printf("PyTorch     %s for CUDA %s, allocator %s; package reprise %s\n", d->torch.version,
               d->torch.cuda, d->torch.allocator, d->torch.reprise);
    else if (d->asked_python)
        printf("PyTorch     none: %s\n", d->torch.why);
    print_facts("environment", &d->environment);
    print_facts("PyTorch's allocator", &d->alloc);
    printf("\n%s\n", d->verdict);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void json_member(const char *before, const char *key, const char *text)
{
    printf("%s\"%s\": ", before, key);
    if (text)
        cli_json_text(stdout, text);
    else
        printf("null");
}

static void json_facts(const char *key, const struct doctor_facts *facts)
{
    printf(",\n\"%s\": [", key);
    for (size_t i = 0; i < facts->count; i++) {
        json_member(i ? ",\n {" : "\n {", "name", facts->fact[i].name);
        json_member(", ", "value", facts->fact[i].value);
        json_member(", ", "says", facts->fact[i].says);
        printf(", \"misspelled\": %s, \"stops\": %s}", facts->fact[i].misspelled ? "true" : "false",
               facts->fact[i].stops ? "true" : "false");
    }
    printf("]");
}

static void json_device(const struct diagnosis *d)
{
    struct rp_capability capability;
    json_member("{", "driver", d->device ? d->info.driver : NULL);
    json_member(",\n", "device", d->device ? d->info.name : NULL);
    json_member(",\n", "no_gpu", d->no_gpu[0] ? d->no_gpu : NULL);
    printf(",\n\"driver_version\": %d,\n\"capabilities\": [", d->info.driver_version);
    for (size_t i = 0; d->device && rp_device_capability(d->device, i, &capability); i++) {
        json_member(i ? ",\n {" : "\n {", "name", capability.name);
        json_member(", ", "without", capability.lost);
        printf(", \"present\": %s}", capability.present ? "true" : "false");
    }
    printf("],\n\"self_test\": [");
    for (size_t i = 0; i < d->test_count; i++) {
        bool works = d->tests[i].status == RP_OK;
        json_member(i ? ",\n {" : "\n {", "name", d->tests[i].name);
        json_member(", ", "status", rp_status_name(d->tests[i].status));
        json_member(", ", "message", works ? NULL : d->tests[i].err.message);
        printf("}");
    }
    printf("]");
}

static void print_json(const struct diagnosis *d)
{
    json_device(d);
    json_member(",\n\"pytorch\": {", "version", d->torch.torch ? d->torch.version : NULL);
    json_member(", ", "cuda", d->torch.torch ? d->torch.cuda : NULL);
    json_member(", ", "allocator", d->torch.torch ? d->torch.allocator : NULL);
    json_member(", ", "reprise", d->torch.torch ? d->torch.reprise : NULL);
    json_member(", ", "problem", d->torch.problem[0] ? d->torch.problem : NULL);
    json_member(", ", "why_not", d->asked_python && !d->torch.torch ? d->torch.why : NULL);
    printf("}");
    json_facts("environment", &d->environment);
    json_facts("allocator_settings", &d->alloc);
    printf(",\n\"ready\": %s", d->ready ? "true" : "false");
    json_member(",\n", "verdict", d->verdict);
    printf("}\n");
}

int cmd_doctor(int argc, char **argv)
{
    struct request request = {.json = false};
    int ended = cli_options_read(&reading, argc, argv, &request);
    if (ended >= 0)
        return ended;
    static struct diagnosis diagnosis; /* large, and one is enough */
    diagnose(&request, &diagnosis);
    if (request.json)
        print_json(&diagnosis);
    else
        print_text(&diagnosis);
    rp_device_destroy(diagnosis.device);
    return diagnosis.ready ? CLI_DONE : CLI_NO;
}
