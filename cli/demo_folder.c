/* SPDX-License-Identifier: MIT */
#include "demo.h"
#include "error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static rp_status too_long(const char *path, struct rp_error *err)
{
    return cli_error(err, RP_ERROR_INVALID_ARGUMENT, "demo_folder", "the path %s is too long",
                     path);
}

static rp_status make_folders(const char *path, struct rp_error *err)
{
    char part[DEMO_PATH];
    if (snprintf(part, sizeof part, "%s/", path) >= (int)sizeof part)
        return too_long(path, err);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(part, 0777) && errno != EEXIST)
            return cli_error(err, RP_ERROR_IO, "mkdir", "%s: %s", part, strerror(errno));
        *slash = '/';
    }
    return RP_OK;
}

/* $XDG_CACHE_HOME where it is absolute, as its specification demands, else ~/.cache; false: neither
 * is known. */
static bool cache_folder(char *out)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache == '/')
        return snprintf(out, DEMO_PATH, "%s/reprise/demo", cache) < DEMO_PATH;
    return home && *home == '/' &&
           snprintf(out, DEMO_PATH, "%s/.cache/reprise/demo", home) < DEMO_PATH;
}

/* A temporary folder is everybody's: ours bears the user's number and is the user's alone, or it is
 * not used. */
static rp_status temporary_folder(char *out, struct rp_error *err)
{
    const char *given = getenv("TMPDIR"), *folder = given && *given == '/' ? given : "/tmp";
    struct stat there;
    if (snprintf(out, DEMO_PATH, "%s/reprise-%u", folder, (unsigned)getuid()) >=
        DEMO_PATH - (int)sizeof "/demo")
        return too_long(folder, err);
    if (mkdir(out, 0700) && errno != EEXIST)
        return cli_error(err, RP_ERROR_IO, "mkdir", "%s: %s", out, strerror(errno));
    if (lstat(out, &there) || !S_ISDIR(there.st_mode) || there.st_uid != getuid() ||
        (there.st_mode & 022))
        return cli_error(err, RP_ERROR_IO, "demo_folder",
                         "%s: is not a folder of yours alone; name another with --out", out);
    memcpy(out + strlen(out), "/demo", sizeof "/demo");
    return RP_OK;
}

rp_status demo_folder(const char *asked, char out[DEMO_PATH], struct rp_error *err)
{
    rp_status status = RP_OK;
    if (asked && snprintf(out, DEMO_PATH, "%s", asked) >= DEMO_PATH)
        return too_long(asked, err);
    if (!asked && !cache_folder(out))
        status = temporary_folder(out, err);
    return status == RP_OK ? make_folders(out, err) : status;
}
