/* SPDX-License-Identifier: MIT */
#include "options.h"

#include "cli.h"
#include "near.h"
#include "output.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cli_refuse(const char *command, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int bytes = vasprintf(&text, format, args);
    va_end(args);
    cli_say(command, "%s; 'reprise %s --help' tells more", bytes < 0 ? format : text, command);
    free(bytes < 0 ? NULL : text);
    return false;
}

bool cli_refuse_option(const char *command, const struct option *names, const char *given)
{
    size_t best = SIZE_MAX;
    const char *near = NULL;
    bool is_long = !strncmp(given, "--", 2);
    char word[64];
    snprintf(word, sizeof word, "%.*s", is_long ? (int)strcspn(given + 2, "=") : 0,
             is_long ? given + 2 : "");
    for (const struct option *o = names; is_long && o->name; o++)
        if (cli_nearer(word, o->name, &best))
            near = o->name;
    if (!near)
        return cli_refuse(command, "no option '%s'", given);
    cli_say(command, "no option '%s': did you mean '--%s'? 'reprise %s --help' tells more", given,
            near, command);
    return false;
}

static bool has_operands(const struct cli_options *options, int argc, char **argv)
{
    int given = argc - optind;
    if (options->operands == CLI_SOME ? given > 0 : given == options->operands)
        return true;
    if (options->operands)
        return cli_refuse(options->command, "%s", options->missing);
    return cli_refuse(options->command, "takes no '%s'", argv[optind]);
}

int cli_options_read(const struct cli_options *options, int argc, char **argv, void *request)
{
    bool good = true;
    int option;
    optind = 1;
    opterr = 0; /* getopt's own words are not ours */
    while (good && (option = getopt_long(argc, argv, ":h", options->names, NULL)) != -1) {
        if (option == 'h')
            return fputs(options->usage, stdout) == EOF ? CLI_USAGE : CLI_DONE;
        if (option == ':')
            good = cli_refuse(options->command, "%s needs a value", argv[optind - 1]);
        else if (option == '?')
            good = cli_refuse_option(options->command, options->names, argv[optind - 1]);
        else
            good = options->take(option, request);
    }
    return good && has_operands(options, argc, argv) ? -1 : CLI_USAGE;
}

bool cli_take_driver(const char *command, const char **out_driver)
{
    *out_driver = optarg;
    if (!strcmp(optarg, "cuda") || !strcmp(optarg, "host"))
        return true;
    return cli_refuse(command, "--driver wants cuda or host, not '%s'", optarg);
}

bool cli_take_number(const char *command, const char *option, uint64_t least, uint64_t most,
                     uint64_t *out)
{
    if (cli_number(optarg, least, most, out))
        return true;
    return cli_refuse(command, "--%s must be from %" PRIu64 " to %" PRIu64 ", not '%s'", option,
                      least, most, optarg);
}
