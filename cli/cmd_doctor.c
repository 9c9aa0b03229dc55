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
#include "reprise_tools.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MOST_TESTS = 8 };

struct request {
    const char *driver, *python;
    bool json, no_python;
};

struct diagnosis {
    struct rp_device *device; /* NULL: none could be opened */
    struct rp_error no_device;
    struct rp_error no_cuda; /* why NVIDIA's driver could not be opened, where that was tried */
    bool tried_cuda;
    const char *no_gpu; /* the same where nobody asked for the host driver; NULL */
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
    char library[640]; /* the verdict on the command line and the C library */
    char wrong[320];   /* the variable or setting that is to be corrected; "" */
    bool library_ready, torch_ready;
};

static const char usage[] =
    "usage: reprise doctor [OPTIONS]\n"
    "\n"
    "Looks at driver, device, PyTorch and the environment, tries capture, binding and\n"
    "update on the driver. Its last lines say, for the command line and the C library, and\n"
    "for PyTorch where that is installed, whether it is ready for graphs, or what to do.\n"
    "\n"
    "options:\n"
    "  --driver NAME  what the C library is tried on: cuda or host; without it cuda where\n"
    "                 it works\n"
    "  --python PATH  the Python that is asked for PyTorch; without it python3\n"
    "  --no-python    do not judge PyTorch\n"
    "  --json         print one JSON object and nothing else\n"
    "  -h, --help     print this\n"
    "\n"
    "exit: 0 ready, 1 something is to be done (also where PyTorch is installed and cannot\n"
    "use Reprise), 2 usage\n";

enum { OPT_DRIVER = 256, OPT_JSON, OPT_NO_PYTHON, OPT_PYTHON };

static const struct option long_options[] = {{"driver", required_argument, NULL, OPT_DRIVER},
                                             {"json", no_argument, NULL, OPT_JSON},
                                             {"no-python", no_argument, NULL, OPT_NO_PYTHON},
                                             {"python", required_argument, NULL, OPT_PYTHON},
                                             {"help", no_argument, NULL, 'h'},
                                             {NULL, 0, NULL, 0}};

static bool take_option(int option, void *into)
{
    struct request *request = into;
    if (option == OPT_DRIVER)
        return cli_take_driver("doctor", &request->driver);
    if (option == OPT_PYTHON)
        request->python = optarg;
    request->json |= option == OPT_JSON;
    request->no_python |= option == OPT_NO_PYTHON;
    return true;
}

static const struct cli_options reading = {
    .command = "doctor", .usage = usage, .names = long_options, .take = take_option};

/* ---- Looking ------------------------------------------------------------------------------- */

static struct rp_device *open_driver(const char *driver, struct rp_error *err)
{
    struct rp_device *device = NULL;
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    options.driver = driver;
    rp_device_open(&options, &device, err);
    return device;
}

/* Where no driver was asked for, NVIDIA's first, so that its reason is known. */
static void open_device(const char *driver, struct diagnosis *d)
{
    bool wants_host = driver && strcmp(driver, "host") == 0;
    if (!wants_host) {
        d->tried_cuda = true;
        d->device = open_driver("cuda", &d->no_cuda);
        d->no_device = d->no_cuda;
    }
    if (!d->device && !driver)
        d->no_gpu = d->no_cuda.message;
    if (!d->device && (wants_host || !driver))
        d->device = open_driver("host", &d->no_device);
}

/* PyTorch works with NVIDIA's driver alone, whatever driver the library is tried on. */
static struct doctor_driver look_at_cuda(struct diagnosis *d)
{
    struct rp_device_info info = d->info;
    bool is_open = d->device && strcmp(d->info.driver, "cuda") == 0;
    struct rp_device *device = is_open || d->tried_cuda ? NULL : open_driver("cuda", &d->no_cuda);
    if (device)
        rp_device_info(device, &info);
    struct doctor_driver seen = {.works = is_open || device, .message = d->no_cuda.message};
    seen.version = seen.works ? info.driver_version : 0;
    seen.no_library = !seen.works && strcmp(d->no_cuda.operation, "dlopen") == 0;
    rp_device_destroy(device);
    return seen;
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

static void judge_library(struct diagnosis *d)
{
    for (size_t i = 0; i < d->test_count; i++)
        if (d->tests[i].status != RP_OK) {
            snprintf(d->library, sizeof d->library, "not ready: the self-test of %s failed: %s",
                     d->tests[i].name, d->tests[i].err.message);
            return;
        }
    d->library_ready = d->device;
    if (!d->device)
        snprintf(d->library, sizeof d->library, "not ready: %s", d->no_device.message);
    else if (d->no_gpu)
        snprintf(d->library, sizeof d->library, "ready, on the host driver only: %s", d->no_gpu);
    else
        snprintf(d->library, sizeof d->library, "ready: %s through the %s driver", d->info.name,
                 d->info.driver);
}

static void judge_environment(struct diagnosis *d)
{
    const struct doctor_fact *wrong = find_wrong(&d->environment);
    if (!wrong)
        wrong = find_wrong(&d->alloc);
    if (wrong)
        snprintf(d->wrong, sizeof d->wrong, "not ready: correct or unset %s: %s", wrong->name,
                 wrong->says);
}

static void judge_torch(const struct request *request, struct diagnosis *d)
{
    d->asked_python = !request->no_python;
    d->torch_ready = true; /* where there is none, nothing keeps it from anything */
    if (!d->asked_python)
        return;
    doctor_torch_ask(request->python, &d->torch);
    if (d->torch.judged) {
        struct doctor_driver driver = look_at_cuda(d);
        doctor_torch_judge(&driver, &d->torch);
    }
    d->torch_ready = d->torch.problems.count == 0;
}

static bool is_ready(const struct diagnosis *d)
{
    return d->library_ready && !d->wrong[0] && d->torch_ready;
}

static void diagnose(const struct request *request, struct diagnosis *d)
{
    d->info.size = sizeof d->info;
    open_device(request->driver, d);
    if (d->device) {
        rp_device_info(d->device, &d->info);
        run_tests(d);
    }
    judge_library(d);
    doctor_environment(&d->environment);
    doctor_alloc_conf(&d->alloc);
    judge_environment(d);
    judge_torch(request, d);
}

/* ---- Text ---------------------------------------------------------------------------------- */

static void print_facts(const char *title, const struct doctor_facts *facts)
{
    if (facts->count)
        cli_print("%s\n", title);
    for (size_t i = 0; i < facts->count; i++) {
        const struct doctor_fact *fact = &facts->fact[i];
        cli_print("  %s %s = %s%s%s\n", fact->misspelled || fact->stops ? "!" : " ", fact->name,
                  fact->value, fact->says[0] ? "\n      " : "", fact->says);
    }
}

static void print_device(const struct diagnosis *d)
{
    struct rp_capability capability;
    const struct rp_device_info *info = &d->info;
    if (d->no_gpu)
        cli_print("no GPU      %s\n", d->no_gpu);
    if (!d->device)
        return;
    cli_print("driver      %s, CUDA %d.%d\n", info->driver, info->driver_version / 1000,
              info->driver_version % 1000 / 10);
    cli_print("device      %s, compute capability %d.%d, %d multiprocessors, %.1f GiB\n",
              info->name, info->compute_major, info->compute_minor, info->multiprocessors,
              cli_mib(info->total_bytes) / 1024);
    for (size_t i = 0; rp_device_capability(d->device, i, &capability); i++)
        if (capability.present)
            cli_print("has         %s\n", capability.name);
        else
            cli_print("lacks       %s: %s\n", capability.name, capability.lost);
    for (size_t i = 0; i < d->test_count; i++)
        cli_print("self-test   %s: %s\n", d->tests[i].name,
                  d->tests[i].status == RP_OK ? "works" : d->tests[i].err.message);
}

static void print_torch(const struct doctor_torch *torch)
{
    if (torch->version[0])
        cli_print("PyTorch     %s for CUDA %s, allocator %s; package reprise %s; asked: %s\n",
                  torch->version, torch->cuda, torch->allocator, torch->reprise, torch->python);
    else if (!torch->judged)
        cli_print("PyTorch     none: %s\n", torch->why);
}

/* One line for each thing to do; one that says so where there is nothing to do. */
static void print_torch_verdict(const struct doctor_torch *torch)
{
    for (size_t i = 0; i < torch->problems.count; i++)
        cli_print("PyTorch: not ready: %s\n", torch->problems.text[i]);
    if (!torch->judged)
        cli_print("PyTorch: not judged: %s\n", torch->why);
    else if (!torch->problems.count)
        cli_print("PyTorch: ready\n");
    for (size_t i = 0; i < torch->warnings.count; i++)
        cli_print("PyTorch: note: %s\n", torch->warnings.text[i]);
}

static void print_text(const struct diagnosis *d)
{
    print_device(d);
    if (d->asked_python)
        print_torch(&d->torch);
    print_facts("environment", &d->environment);
    print_facts("PyTorch's allocator", &d->alloc);
    cli_print("\nthe command line and the C library: %s\n", d->library);
    if (d->wrong[0])
        cli_print("the environment: %s\n", d->wrong);
    if (d->asked_python)
        print_torch_verdict(&d->torch);
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
    json_member(",\n", "no_gpu", d->no_gpu);
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

static void json_sentences(const char *key, const struct doctor_sentences *sentences)
{
    printf(", \"%s\": [", key);
    for (size_t i = 0; i < sentences->count; i++) {
        fputs(i ? ", " : "", stdout);
        cli_json_text(stdout, sentences->text[i]);
    }
    printf("]");
}

static void json_torch(const struct diagnosis *d)
{
    const struct doctor_torch *torch = &d->torch;
    bool imported = torch->version[0];
    json_member(",\n\"pytorch\": {", "python", d->asked_python ? torch->python : NULL);
    json_member(", ", "version", imported ? torch->version : NULL);
    json_member(", ", "cuda", imported ? torch->cuda : NULL);
    json_member(", ", "allocator", imported ? torch->allocator : NULL);
    json_member(", ", "reprise", imported ? torch->reprise : NULL);
    json_member(", ", "why_not", d->asked_python && !imported && torch->why[0] ? torch->why : NULL);
    json_sentences("problems", &torch->problems);
    json_sentences("warnings", &torch->warnings);
    printf(", \"ready\": %s}", !torch->judged ? "null" : torch->problems.count ? "false" : "true");
}

static const char *whether(bool is)
{
    return is ? "true" : "false";
}

/* The first thing to do; where there is none, what is ready. */
static void json_verdict(const struct diagnosis *d)
{
    char text[640];
    if (!d->library_ready || is_ready(d))
        snprintf(text, sizeof text, "%s", d->library);
    else if (d->wrong[0])
        snprintf(text, sizeof text, "%s", d->wrong);
    else
        snprintf(text, sizeof text, "not ready: %s", d->torch.problems.text[0]);
    printf(",\n\"ready\": %s", whether(is_ready(d)));
    json_member(",\n", "verdict", text);
}

static void print_json(const struct diagnosis *d)
{
    json_device(d);
    json_torch(d);
    json_facts("environment", &d->environment);
    json_facts("allocator_settings", &d->alloc);
    json_member(",\n\"library\": {", "verdict", d->library);
    printf(", \"ready\": %s}", whether(d->library_ready));
    json_verdict(d);
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
    return is_ready(&diagnosis) ? CLI_DONE : CLI_NO;
}
