/* SPDX-License-Identifier: MIT
 *
 * Runs a fuzz target over the files of folders, without a fuzzer.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { MOST_BYTES = 1 << 22 };

static int run_file(const char *path)
{
    FILE *in = fopen(path, "rb");
    uint8_t *data = malloc(MOST_BYTES);
    size_t bytes = in && data ? fread(data, 1, MOST_BYTES, in) : 0;
    int ok = in && data && !ferror(in);
    /* A copy of the exact size lets a sanitizer see reads beyond the end. */
    uint8_t *exact = ok ? malloc(bytes ? bytes : 1) : NULL;
    if (exact) {
        memcpy(exact, data, bytes);
        LLVMFuzzerTestOneInput(exact, bytes);
    } else {
        fprintf(stderr, "%s: cannot be read\n", path);
    }
    free(exact);
    free(data);
    if (in)
        fclose(in);
    return exact != NULL;
}

/* How many files were run, or -1. */
static int run_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir) {
        fprintf(stderr, "%s: cannot be opened\n", folder);
        return -1;
    }
    int count = 0;
    for (struct dirent *entry; count >= 0 && (entry = readdir(dir));) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        count = run_file(path) ? count + 1 : -1;
    }
    closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int count = run_folder(argv[i]);
        if (count < 0)
            return 1;
        total += count;
    }
    printf("%d files\n", total);
    return total > 0 ? 0 : 1;
}
