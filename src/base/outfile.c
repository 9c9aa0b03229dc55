/* SPDX-License-Identifier: MIT */
#include "base/outfile.h"

#include "base/hostmem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LINKS = 40, MOST_TRIES = 100 };
#define PART_NAME ".reprise-"

static rp_status fail(const char *path, const char *operation, int code, struct rp_error *err)
{
    assert(code);
    return rpi_error(err, RP_ERROR_IO, operation, "%s: cannot be written: %s", path,
                     strerror(code));
}

/* ---- Where a path leads -------------------------------------------------------------------- */

/* The folder of a path, with its slash: how many of its first bytes that is. */
static size_t folder_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Follows the link at `at`, in place; false: errno says why not, EINVAL that it is none. */
static bool follow(char at[PATH_MAX])
{
    assert(strnlen(at, PATH_MAX) < PATH_MAX);
    char target[PATH_MAX];
    ssize_t bytes = readlink(at, target, sizeof target - 1);
    if (bytes < 0)
        return false;
    target[bytes] = '\0';
    size_t folder = target[0] == '/' ? 0 : folder_bytes(at);
    if (folder + (size_t)bytes >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(at + folder, target, (size_t)bytes + 1);
    return true;
}

/* Is it open already, or made up by the system? Its name leads nowhere else. */
static bool is_made_up(const char *path)
{
    return !strncmp(path, "/proc/", 6) || !strncmp(path, "/dev/fd/", 8);
}

/* Where the last link of path leads, be there a file or not. Links of what is open already bear a
 * name that may be another's meanwhile: they are not followed. False with errno set. */
static bool resolve(const char *path, char out[PATH_MAX])
{
    size_t bytes = strlen(path) + 1;
    if (bytes > PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(out, path, bytes);
    for (int links = 0; links < MOST_LINKS; links++)
        if (is_made_up(out) || !follow(out))
            return is_made_up(out) || errno == EINVAL || errno == ENOENT;
    errno = ELOOP;
    return false;
}

/* ---- Writing ------------------------------------------------------------------------------- */

/* Writes, and closes what it was given; false with errno set. */
static bool write_all(FILE *out, bool sync, void (*write)(FILE *out, const void *user),
                      const void *user)
{
    errno = 0;
    write(out, user);
    bool good = !ferror(out) && fflush(out) == 0 && (!sync || fsync(fileno(out)) == 0);
    int code = errno ? errno : EIO;
    if (fclose(out) != 0 && good) {
        code = errno;
        good = false;
    }
    errno = code;
    return good;
}

/* Opens a file that was not there, beside path, and puts its name into part. */
static FILE *open_part(const char *path, char part[PATH_MAX])
{
    size_t folder = folder_bytes(path);
    if (folder + sizeof PART_NAME + 16 >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    int file = -1;
    for (int tries = 0; file < 0 && tries < MOST_TRIES; tries++) {
        uint64_t number = 0;
        if (getrandom(&number, sizeof number, 0) != sizeof number)
            return NULL;
        snprintf(part, PATH_MAX, "%.*s" PART_NAME "%016llx", (int)folder, path,
                 (unsigned long long)number);
        file = open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (file < 0 && errno != EEXIST)
            return NULL;
    }
    FILE *out = file < 0 ? NULL : fdopen(file, "wb");
    if (file >= 0 && !out) {
        close(file);
        unlink(part);
    }
    return out;
}

/* Gives the new file the owner and the mode of the old one. Where the owner may not be given, its
 * right to run as that owner is not either. */
static bool keep_mode(int file, const struct stat *old)
{
    bool owned = fchown(file, old->st_uid, old->st_gid) == 0;
    return fchmod(file, old->st_mode & (owned ? 07777 : 0777)) == 0;
}

/* The folder's entry too outlives a loss of power. Not every file system can, and what is renamed
 * is there: no error. */
static void sync_folder(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    int file = open(dirname(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file >= 0) {
        (void)fsync(file);
        close(file);
    }
}

/* path is resolved; old is NULL where nothing is there. */
static bool replace(const char *path, const struct stat *old,
                    void (*write)(FILE *out, const void *user), const void *user)
{
    assert(!old || S_ISREG(old->st_mode));
    char part[PATH_MAX];
    if (old && access(path, W_OK) != 0) /* a file that says "do not write" is not replaced */
        return false;
    FILE *out = open_part(path, part);
    if (!out)
        return false;
    bool kept = !old || keep_mode(fileno(out), old);
    bool written = write_all(out, true, write, user);
    if (kept && written && rename(part, path) == 0) {
        sync_folder(path);
        return true;
    }
    int code = errno;
    unlink(part);
    errno = code;
    return false;
}

/* Opens what can't be renamed over. An open file goes on where it stands. */
static FILE *open_in_place(const char *path)
{
    int number, end = 0;
    bool open_already = (sscanf(path, "/proc/self/fd/%d%n", &number, &end) == 1 ||
                         sscanf(path, "/dev/fd/%d%n", &number, &end) == 1) &&
                        !path[end];
    if (!open_already)
        return fopen(path, "ab");
    int file = fcntl(number, F_DUPFD_CLOEXEC, 0);
    FILE *out = file < 0 ? NULL : fdopen(file, "wb"); /* "a" would change the open file */
    if (file >= 0 && !out)
        close(file);
    return out;
}

rp_status rpi_output_file(const char *path, const char *operation,
                          void (*write)(FILE *out, const void *user), const void *user,
                          struct rp_error *err)
{
    char *where = rpi_malloc(PATH_MAX);
    if (!where)
        return rpi_error_host_memory(err, operation, PATH_MAX);
    struct stat there;
    bool good = resolve(path, where), is_there = good && stat(where, &there) == 0;
    if (is_there && S_ISDIR(there.st_mode)) {
        errno = EISDIR;
        good = false;
    } else if (good && ((is_there && !S_ISREG(there.st_mode)) || is_made_up(where))) {
        FILE *out = open_in_place(where);
        good = out && write_all(out, false, write, user);
    } else if (good) {
        good = replace(where, is_there ? &there : NULL, write, user);
    }
    int code = errno;
    rpi_free(where);
    return good ? RP_OK : fail(path, operation, code, err);
}

/* ---- Comparing ----------------------------------------------------------------------------- */

/* Do both name the same place in the same folder? Neither need be there. */
static bool same_place(const char *a, const char *b)
{
    struct stat of_a, of_b;
    const char *names[] = {a + folder_bytes(a), b + folder_bytes(b)};
    char folder[PATH_MAX];
    if (strcmp(names[0], names[1]) != 0)
        return false;
    snprintf(folder, sizeof folder, "%.*s.", (int)folder_bytes(a), a);
    bool known = stat(folder, &of_a) == 0;
    snprintf(folder, sizeof folder, "%.*s.", (int)folder_bytes(b), b);
    known = known && stat(folder, &of_b) == 0;
    return known && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

bool rpi_output_same(const char *a, const char *b)
{
    struct stat of_a, of_b;
    if (stat(a, &of_a) == 0 && stat(b, &of_b) == 0)
        return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino && !S_ISCHR(of_a.st_mode);
    char paths[2][PATH_MAX];
    return resolve(a, paths[0]) && resolve(b, paths[1]) && same_place(paths[0], paths[1]);
}
