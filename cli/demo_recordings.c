/* SPDX-License-Identifier: MIT
 *
 * Recorded captures: where they are, and what planning makes of them.
 *
 * The ones that come with Reprise are looked for beside the program as it is installed
 * (../share/reprise/captures), then in the tree it was built from.
 */
#include "demo.h"
#include "error.h"
#include "output.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a > b && !strcmp(text + a - b, end);
}

static int is_recording(const struct dirent *entry)
{
    return ends_with(entry->d_name, ".json") || ends_with(entry->d_name, ".json.gz");
}

/* The directory that is to be read: the option, or the first of the usual ones that is there. */
static int find_directory(const struct demo_options *options, char *out, size_t size)
{
    char program[DEMO_PATH];
    if (options->recordings)
        return snprintf(out, size, "%s", options->recordings) < (int)size;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = 0;
    char *slash = strrchr(program, '/');
    if (slash) {
        *slash = 0;
        if (snprintf(out, size, "%s/../share/reprise/captures", program) < (int)size &&
            !access(out, R_OK | X_OK))
            return 1;
    }
    return snprintf(out, size, "%s", REPRISE_SOURCE_CAPTURES) < (int)size &&
           !access(out, R_OK | X_OK);
}

rp_status demo_recordings_find(const struct demo_options *options, struct demo_files *out_files,
                               struct rp_error *err)
{
    char directory[DEMO_PATH];
    struct dirent **entries = NULL;
    struct demo_files files = {.count = 0};
    *out_files = files;
    if (!find_directory(options, directory, sizeof directory))
        return RP_OK;
    int count = scandir(directory, &entries, is_recording, alphasort);
    if (count < 0)
        return cli_error(err, RP_ERROR_IO, "demo_recordings", "%s: %s", directory, strerror(errno));
    rp_status status = RP_OK;
    for (int i = 0; i < count; i++) {
        char *path = NULL;
        if (!status && files.count < DEMO_MOST_RECORDINGS) {
            if (asprintf(&path, "%s/%s", directory, entries[i]->d_name) < 0)
                status = cli_error(err, RP_ERROR_OUT_OF_HOST_MEMORY, "demo_recordings",
                                   "host memory for the path of %s", entries[i]->d_name);
            else
                files.paths[files.count++] = path;
        }
        free(entries[i]);
    }
    free(entries);
    if (status)
        demo_recordings_free(&files);
    else
        *out_files = files;
    return status;
}

void demo_recordings_free(struct demo_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        free(files->paths[i]);
    files->count = 0;
}

/* "llama" of "/some/where/llama.json.gz" */
static void name_of(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path, *end = strstr(name, ".json");
    snprintf(out, size, "%.*s", end ? (int)(end - name) : (int)strlen(name), name);
}

static const struct measured {
    const char *name;
    uint64_t lower_bound;
    uint64_t mib[3]; /* by setting */
} measured[] = {
#define X(name, lower_bound, plain, reuse, expandable)                                             \
    {name, lower_bound, {plain, reuse, expandable}},
#include "demo_measured.def"
#undef X
};

static uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void find_pytorch(struct demo_recording *recording)
{
    recording->pytorch_best_bytes =
        least_of(recording->info.c10_default_bytes, recording->info.c10_reuse_bytes);
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        const struct measured *m = &measured[i];
        if (strcmp(m->name, recording->name) || m->lower_bound != recording->info.lower_bound_bytes)
            continue;
        recording->pytorch_measured = true;
        recording->pytorch_best_bytes = least_of(m->mib[0], least_of(m->mib[1], m->mib[2])) << 20;
    }
}

static rp_status plan(const char *path, struct demo_recording *out, struct rp_error *err)
{
    struct rp_recording *recording = NULL;
    struct rp_layout *layout = NULL;
    rp_status status = rp_recording_load(path, &recording, err);
    if (!status)
        status = rp_recording_plan(recording, NULL, &layout, err);
    if (!status) {
        out->info.size = sizeof out->info;
        rp_layout_info(layout, &out->info);
        name_of(path, out->name, sizeof out->name);
        find_pytorch(out);
    }
    rp_layout_destroy(layout);
    rp_recording_destroy(recording);
    return status;
}

rp_status demo_recordings(const struct demo_files *files, struct demo_facts *facts,
                          struct rp_error *err)
{
    for (size_t i = 0; i < files->count; i++) {
        struct demo_recording *out = &facts->recordings[facts->recording_count];
        cli_progress(true, "planning recorded captures: %zu of %zu", i + 1, files->count);
        rp_status status = plan(files->paths[i], out, err);
        if (status)
            return status;
        facts->recording_count++;
    }
    return RP_OK;
}
