/* SPDX-License-Identifier: MIT
 *
 * reprise check: what stands in the way of capturing a callable of a shared object. All of it is
 * done in a child process: the callable is a stranger's, and may end its process or break it.
 */
#include "child.h"
#include "cli.h"
#include "error.h"
#include "options.h"
#include "output.h"

#include "reprise.h"
#include "reprise_tools.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_ARGS = 64 };

struct request {
    const char *driver, *file, *symbol;
    char *target; /* what file and symbol lie in */
    struct rp_arg args[MOST_ARGS];
    size_t arg_count;
    bool json;
    int output; /* standard output, while what is printed goes elsewhere; -1: it does not */
};

static const char usage[] =
    "usage: reprise check [OPTIONS] FILE.so:FUNCTION\n"
    "\n"
    "Tries to capture FUNCTION, an rp_callable_fn that FILE.so exports, and reports each\n"
    "obstacle with operation, place and fix. Its `user` is the struct rp_device, for\n"
    "rp_device_function. It is run twice, captured, and replayed on other buffers, whose\n"
    "results must equal the run's. It runs in a process of its own, so one that exits or\n"
    "crashes is told too. What it prints goes to standard error. Built with\n"
    "    cc -shared -fPIC -o FILE.so FILE.c $(pkg-config --cflags reprise)\n"
    "it finds the library's functions in this program.\n"
    "\n"
    "options:\n"
    "  --args LIST    the arguments: BYTES:in|out|inout, separated by commas; their contents\n"
    "                 are the floats 1 to 7 in turn\n"
    "  --driver NAME  cuda or host; without it cuda where it works\n"
    "  --json         print one JSON object and nothing else\n"
    "  -h, --help     print this\n"
    "\n"
    "exit: 0 nothing stands in the way, 1 something does, 2 usage, or no answer\n";

static bool read_arg(char *text, struct rp_arg *out_arg)
{
    static const struct {
        const char *name;
        enum rp_arg_role role;
    } roles[] = {{"in", RP_ARG_IN}, {"out", RP_ARG_OUT}, {"inout", RP_ARG_INOUT}};
    char *colon = strchr(text, ':');
    if (!colon)
        return false;
    *colon = '\0';
    memset(out_arg, 0, sizeof *out_arg);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(colon + 1, roles[i].name) == 0)
            out_arg->role = roles[i].role;
    return out_arg->role && cli_number(text, 0, (uint64_t)1 << 40, &out_arg->bytes);
}

static bool read_args(char *list, struct request *request)
{
    char *rest = NULL;
    for (char *text = strtok_r(list, ",", &rest); text; text = strtok_r(NULL, ",", &rest)) {
        if (request->arg_count == MOST_ARGS)
            return cli_refuse("check", "there are more than 64 arguments");
        if (!read_arg(text, &request->args[request->arg_count++]))
            return cli_refuse("check", "an argument is BYTES:in, BYTES:out or BYTES:inout");
    }
    return true;
}

static bool read_target(const char *given, struct request *request)
{
    request->target = strdup(given);
    char *colon = request->target ? strrchr(request->target, ':') : NULL;
    if (!colon || colon == request->target || !colon[1])
        return cli_refuse("check", "what to check is FILE.so:FUNCTION");
    *colon = '\0';
    request->file = request->target;
    request->symbol = colon + 1;
    return true;
}

enum { OPT_ARGS = 256, OPT_DRIVER, OPT_JSON };

static const struct option long_options[] = {{"args", required_argument, NULL, OPT_ARGS},
                                             {"driver", required_argument, NULL, OPT_DRIVER},
                                             {"json", no_argument, NULL, OPT_JSON},
                                             {"help", no_argument, NULL, 'h'},
                                             {NULL, 0, NULL, 0}};

static bool take_option(int option, void *into)
{
    struct request *request = into;
    if (option == OPT_DRIVER)
        return cli_take_driver("check", &request->driver);
    if (option == OPT_ARGS)
        return request->arg_count ? cli_refuse("check", "--args may be given once")
                                  : read_args(optarg, request);
    request->json = true;
    return true;
}

static const struct cli_options reading = {
    "check", usage, long_options, take_option, 1, "one FILE.so:FUNCTION must be given",
};

/* ---- Loading ------------------------------------------------------------------------------- */

static rp_callable_fn load(const struct request *request, void **out_library)
{
    char path[4096];
    /* A plain name would be searched for in the library path. */
    snprintf(path, sizeof path, "%s%s", strchr(request->file, '/') ? "" : "./", request->file);
    *out_library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *found = *out_library ? dlsym(*out_library, request->symbol) : NULL;
    if (!found) {
        cli_say("check", "%s", dlerror());
        return NULL;
    }
    rp_callable_fn callable;
    memcpy(&callable, &found, sizeof callable);
    return callable;
}

typedef int (*copy_fn)(unsigned long long to, const void *from, size_t bytes);
typedef int (*alloc_fn)(unsigned long long *address, size_t bytes);
typedef int (*free_fn)(unsigned long long address);

static bool make_args(struct rp_device *device, struct request *request)
{
    copy_fn copy = (copy_fn)rp_device_function(device, "cuMemcpyHtoD");
    alloc_fn alloc = (alloc_fn)rp_device_function(device, "cuMemAlloc");
    for (size_t k = 0; k < request->arg_count; k++) {
        struct rp_arg *arg = &request->args[k];
        unsigned long long address = 0;
        float *values = malloc(arg->bytes + sizeof *values);
        if (!values)
            return false;
        for (size_t i = 0; i * sizeof *values < arg->bytes; i++)
            values[i] = (float)(1 + i % 7);
        bool made = alloc(&address, arg->bytes ? arg->bytes : 1) == 0;
        arg->address = made ? address : 0;
        made = made && (!arg->bytes || copy(address, values, arg->bytes) == 0);
        free(values);
        if (!made)
            return false;
    }
    return true;
}

static void free_args(struct rp_device *device, const struct request *request)
{
    free_fn give_back = (free_fn)rp_device_function(device, "cuMemFree");
    for (size_t k = 0; k < request->arg_count; k++)
        if (request->args[k].address)
            give_back(request->args[k].address);
}

/* ---- Telling ------------------------------------------------------------------------------- */

/* "step at model.c:42" of addr2line; false: there is none, or it does not know. */
static bool find_line(const struct rp_place *place, char *out, size_t bytes)
{
    char command[4400];
    if (!place->file || strchr(place->file, '\''))
        return false;
    snprintf(command, sizeof command, "addr2line -Cfpe '%s' 0x%llx 2>/dev/null", place->file,
             (unsigned long long)place->offset);
    FILE *pipe = popen(command, "r");
    bool found = pipe && fgets(out, (int)bytes, pipe) && !strstr(out, "??");
    if (pipe)
        pclose(pipe);
    if (!found)
        return false;
    out[strcspn(out, "\n")] = '\0';
    char *more = strstr(out, " (discriminator");
    if (more)
        *more = '\0';
    return true;
}

static void describe_place(const struct rp_findings *findings, size_t index, char *out,
                           size_t bytes)
{
    struct rp_place place;
    out[0] = '\0';
    if (!rp_findings_place(findings, index, 0, &place))
        return;
    if (!find_line(&place, out, bytes))
        snprintf(out, bytes, "%s", place.text);
}

static void print_json(const struct rp_findings *findings, const char *driver)
{
    struct rp_obstacle o = {.size = sizeof o};
    printf("{\"driver\": ");
    cli_json_text(stdout, driver);
    printf(", \"obstacles\": [");
    for (size_t i = 0; rp_findings_obstacle(findings, i, &o); i++) {
        char where[512];
        describe_place(findings, i, where, sizeof where);
        const struct {
            const char *key, *text;
        } texts[] = {{"kind", o.kind}, {"operation", o.operation}, {"what", o.what},
                     {"mend", o.mend}, {"where", where},           {"error", o.driver_name}};
        printf("%s\n{", i ? "," : "");
        for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
            printf("\"%s\": ", texts[t].key);
            if (texts[t].text && *texts[t].text)
                cli_json_text(stdout, texts[t].text);
            else
                printf("null");
            printf(", ");
        }
        printf("\"code\": %d, \"count\": %zu}", o.driver_code, o.count);
    }
    printf("]}\n");
}

static void print_text(const struct rp_findings *findings, const char *symbol)
{
    struct rp_obstacle o = {.size = sizeof o};
    size_t count = rp_findings_count(findings);
    if (!count) {
        cli_print("%s can be captured: its replays give what it gives\n", symbol);
        return;
    }
    cli_print("%zu obstacle%s to capturing %s\n", count, count == 1 ? "" : "s", symbol);
    for (size_t i = 0; rp_findings_obstacle(findings, i, &o); i++) {
        char where[512];
        describe_place(findings, i, where, sizeof where);
        cli_print("\n%zu  %s: %s", i + 1, o.kind, o.operation);
        if (o.driver_code)
            cli_print(" (%d %s)", o.driver_code, o.driver_name);
        cli_print("\n   %s\n", o.what);
        if (*where)
            cli_print("   at    %s\n", where);
        cli_print("   fix   %s\n", o.mend);
    }
}

/* Standard output is for the report: what the callable and its library print goes to standard
 * error, with what the command says. */
static void divert_output(struct request *request)
{
    fflush(stdout);
    request->output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
    if (request->output >= 0)
        dup2(STDERR_FILENO, STDOUT_FILENO);
}

static void restore_output(struct request *request)
{
    fflush(stdout);
    if (request->output < 0)
        return;
    dup2(request->output, STDOUT_FILENO);
    close(request->output);
    request->output = -1;
}

/* The callable, with word to the parent of where it is. */
struct told {
    rp_callable_fn callable;
    struct rp_device *device;
    pid_t process;
};

static rp_status run_told(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct told *told = user;
    cli_child_tell(rp_call_is_captured(call) ? CLI_CHILD_CAPTURED : CLI_CHILD_RUN);
    rp_status status = told->callable(call, told->device, err);
    if (getpid() != told->process) { /* or it would give an answer of its own */
        cli_say("check", "a process that the callable forked returned from it, and is ended here");
        _exit(CLI_USAGE);
    }
    cli_child_tell(CLI_CHILD_BETWEEN);
    return status;
}

static int check(struct rp_device *device, struct request *request, rp_callable_fn callable)
{
    struct told told = {callable, device, getpid()};
    struct rp_findings *findings = NULL;
    struct rp_error err = {0};
    struct rp_device_info info = {.size = sizeof info};
    rp_device_info(device, &info);
    if (rp_device_push(device, &err) != RP_OK) {
        cli_fail("check", &err);
        return CLI_USAGE;
    }
    bool made = make_args(device, request);
    rp_status status = RP_ERROR_OUT_OF_DEVICE_MEMORY;
    if (made)
        status =
            rp_check(device, run_told, &told, request->args, request->arg_count, &findings, &err);
    else
        cli_say("check", "memory for the arguments could not be allocated");
    if (made && status != RP_OK)
        cli_fail("check", &err);
    free_args(device, request);
    rp_device_pop(device);
    if (status != RP_OK)
        return CLI_USAGE;
    restore_output(request);
    if (request->json)
        print_json(findings, info.driver);
    else
        print_text(findings, request->symbol);
    divert_output(request);
    int code = rp_findings_count(findings) ? CLI_NO : CLI_DONE;
    rp_findings_destroy(findings);
    return code;
}

static int load_and_check(void *user)
{
    struct request *request = user;
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    struct rp_device *device = NULL;
    struct rp_error err = {0};
    void *library = NULL;
    int code = CLI_USAGE;
    divert_output(request);
    rp_callable_fn callable = load(request, &library);
    options.driver = request->driver;
    if (callable && rp_device_open(&options, &device, &err) != RP_OK)
        cli_fail("check", &err);
    if (device)
        code = check(device, request, callable);
    rp_device_destroy(device);
    if (library)
        dlclose(library);
    restore_output(request);
    return code;
}

/* ---- The child's end ----------------------------------------------------------------------- */

static const char *stage_text(enum cli_child_stage stage)
{
    switch (stage) {
    case CLI_CHILD_BEFORE:
        return "before the callable was run";
    case CLI_CHILD_RUN:
        return "in the callable, as it ran eagerly";
    case CLI_CHILD_CAPTURED:
        return "in the callable, as it was captured";
    case CLI_CHILD_BETWEEN:
    case CLI_CHILD_DONE:
        break;
    }
    return "between runs of the callable, in work that it had enqueued";
}

/* "SIGSEGV (Segmentation fault)" */
static void name_signal(int number, char *out, size_t bytes)
{
    static const struct {
        int number;
        const char *name;
    } names[] = {{SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},
                 {SIGFPE, "SIGFPE"},   {SIGILL, "SIGILL"},   {SIGKILL, "SIGKILL"},
                 {SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"},   {SIGTRAP, "SIGTRAP"},
                 {SIGPIPE, "SIGPIPE"}, {SIGSYS, "SIGSYS"},   {SIGXCPU, "SIGXCPU"}};
    const char *name = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        name = names[i].number == number ? names[i].name : name;
    snprintf(out, bytes, "%s (%s)", name ? name : "a signal", strsignal(number));
}

/* The process ended, and gave no answer: that is the obstacle. */
static int tell_end(const struct request *request, const struct cli_child_end *end)
{
    char what[256], how[128];
    const char *kind = end->signal ? "crash" : "process-exit";
    const char *mend = end->signal ? "run the callable under a debugger or a sanitizer"
                                   : "return a status from the callable, and never exit in it";
    if (end->signal)
        name_signal(end->signal, how, sizeof how);
    else
        snprintf(how, sizeof how, "exit(%d)", end->code);
    snprintf(what, sizeof what, "the process was ended by %s %s", how, stage_text(end->stage));
    if (request->json) {
        printf("{\"driver\": null, \"obstacles\": [\n{\"kind\": \"%s\", \"operation\": \"%s\", "
               "\"what\": ",
               kind, end->signal ? "signal" : "exit");
        cli_json_text(stdout, what);
        printf(", \"mend\": ");
        cli_json_text(stdout, mend);
        printf(", \"where\": null, \"error\": null, \"code\": 0, \"count\": 1}]}\n");
    } else {
        printf("1 obstacle to capturing %s\n\n1  %s: %s\n   %s\n   fix   %s\n", request->symbol,
               kind, end->signal ? "signal" : "exit", what, mend);
    }
    return CLI_NO;
}

/* Before the callable was run it is the file that ended the process, as it was loaded. */
static int check_in_child(struct request *request)
{
    struct cli_child_end end;
    if (!cli_child_run("check", load_and_check, request, &end))
        return CLI_USAGE;
    return end.stage == CLI_CHILD_DONE ? end.code : tell_end(request, &end);
}

int cmd_check(int argc, char **argv)
{
    struct request request = {.arg_count = 0};
    int code = cli_options_read(&reading, argc, argv, &request);
    if (code >= 0)
        return code;
    code = read_target(argv[optind], &request) ? check_in_child(&request) : CLI_USAGE;
    free(request.target);
    return code;
}
