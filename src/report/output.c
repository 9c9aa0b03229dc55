/* SPDX-License-Identifier: MIT */
#include "report/output.h"

#include "base/hostmem.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static rp_status fail(const char *path, const char *operation, int code, struct rp_error *err)
{
    return rpi_error(err, RP_ERROR_IO, operation, "%s: cannot be written: %s", path,
                     strerror(code));
}

/* Writes and closes; false with errno set. */
static bool write_all(FILE *out, void (*write)(FILE *out, const void *user), const void *user)
{
    write(out, user);
    bool failed = ferror(out);
    return fclose(out) == 0 && !failed;
}

rp_status rpi_output_file(const char *path, const char *operation,
                          void (*write)(FILE *out, const void *user), const void *user,
                          struct rp_error *err)
{
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) {
        FILE *out = fopen(path, "wb");
        return out && write_all(out, write, user) ? RP_OK : fail(path, operation, errno, err);
    }
    size_t bytes = strlen(path) + sizeof ".part";
    char *part = rpi_malloc(bytes);
    if (!part)
        return rpi_error_host_memory(err, operation, bytes);
    snprintf(part, bytes, "%s.part", path);
    FILE *out = fopen(part, "wb");
    rp_status status = RP_OK;
    if (!out) {
        status = fail(part, operation, errno, err);
    } else if (!write_all(out, write, user) || rename(part, path) != 0) {
        status = fail(path, operation, errno, err);
        unlink(part);
    }
    rpi_free(part);
    return status;
}

void rpi_output_json_text(FILE *out, const char *text)
{
    putc('"', out);
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20) {
            fprintf(out, "\\u%04x", (unsigned)(unsigned char)*text);
            continue;
        }
        if (*text == '"' || *text == '\\')
            putc('\\', out);
        putc(*text, out);
    }
    putc('"', out);
}

void rpi_output_xml_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            putc((unsigned char)*text < 0x20 ? ' ' : *text, out);
            break;
        }
    }
}
