/* SPDX-License-Identifier: MIT */
#include "inputs.h"

#include "base/outfile.h"
#include "options.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Takes path over, also when there is no host memory for it. */
static bool add(struct cli_inputs *inputs, char *path)
{
    char **grown = path ? realloc(inputs->paths, (inputs->count + 1) * sizeof *grown) : NULL;
    if (!grown) {
        free(path);
        return false;
    }
    inputs->paths = grown;
    inputs->paths[inputs->count++] = path;
    return true;
}

static int is_recording(const struct dirent *entry)
{
    static const char *const ends[] = {".json", ".json.gz", ".csv"};
    size_t bytes = strlen(entry->d_name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (bytes > strlen(ends[i]) && !strcmp(entry->d_name + bytes - strlen(ends[i]), ends[i]))
            return entry->d_name[0] != '.';
    return 0;
}

static bool add_folder(const char *command, const char *folder, struct cli_inputs *inputs)
{
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, is_recording, alphasort);
    bool good = count >= 0;
    int code = errno;
    for (int i = 0; i < count; i++) {
        char *path = NULL;
        if (good && asprintf(&path, "%s/%s", folder, entries[i]->d_name) < 0)
            path = NULL;
        good = good && add(inputs, path);
        free(entries[i]);
    }
    free(entries);
    if (count < 0)
        return cli_refuse(command, "%s: cannot be read: %s", folder, strerror(code));
    if (!count)
        return cli_refuse(command, "%s: there is no recording (.json, .json.gz, .csv) in it",
                          folder);
    return good || cli_refuse(command, "out of host memory");
}

bool cli_inputs_find(const char *command, char *const *given, size_t count,
                     struct cli_inputs *out_inputs)
{
    for (size_t i = 0; i < count; i++) {
        struct stat about;
        if (stat(given[i], &about) == 0 && S_ISDIR(about.st_mode)) {
            if (!add_folder(command, given[i], out_inputs))
                return false;
        } else if (!add(out_inputs, strdup(given[i]))) {
            return cli_refuse(command, "out of host memory");
        }
    }
    return true;
}

void cli_inputs_finish(struct cli_inputs *inputs)
{
    for (size_t i = 0; i < inputs->count; i++)
        free(inputs->paths[i]);
    free(inputs->paths);
    *inputs = (struct cli_inputs){0};
}

bool cli_outputs_apart(const char *command, const struct cli_output *outputs, size_t count,
                       const struct cli_inputs *inputs)
{
    for (size_t o = 0; o < count; o++) {
        const struct cli_output *output = &outputs[o];
        for (size_t i = 0; output->path && i < inputs->count; i++)
            if (rpi_output_same(output->path, inputs->paths[i]))
                return cli_refuse(command, "--%s '%s' is an input", output->option, output->path);
        for (size_t other = 0; output->path && other < o; other++)
            if (outputs[other].path && rpi_output_same(output->path, outputs[other].path))
                return cli_refuse(command, "--%s and --%s are one file, '%s'",
                                  outputs[other].option, output->option, output->path);
    }
    return true;
}
