/* SPDX-License-Identifier: MIT
 *
 * Writing layouts: `reprise-layout/1`, or the CSV rows with an `offset` column. The file appears
 * whole under its name or not at all: it is written beside it and renamed.
 */
#include "report/layout.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void write_csv(FILE *out, const struct rp_layout *layout)
{
    const struct rpi_intervals *rows = &layout->intervals;
    fputs("id,lower,upper,size,offset\n", out);
    for (uint32_t i = 0; i < rows->count; i++)
        fprintf(out, "%s,%" PRId64 ",%" PRId64 ",%" PRIu64 ",%" PRIu64 "\n",
                rows->text + rows->id[i], rows->lower[i], rows->upper[i], rows->bytes[i],
                layout->captures[0].offsets[i]);
}

/* Names have no control characters. */
static void write_text(FILE *out, const char *text)
{
    putc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putc('\\', out);
        putc(*text, out);
    }
    putc('"', out);
}

static void write_json(FILE *out, const struct rp_layout *layout)
{
    fprintf(out,
            "{\"format\":\"reprise-layout/1\",\"alignment\":%" PRIu64 ",\"pool_bytes\":%" PRIu64
            ",\"captures\":[",
            layout->alignment, layout->info.pool_bytes);
    for (size_t c = 0; c < layout->capture_count; c++) {
        const struct rpi_layout_capture *capture = &layout->captures[c];
        fprintf(out, "%s\n{\"name\":", c ? "," : "");
        write_text(out, capture->name);
        fputs(",\"offsets\":[", out);
        for (size_t i = 0; i < capture->info.blocks; i++)
            fprintf(out, "%s[%" PRId64 ",%" PRIu64 "]", i ? "," : "", capture->ids[i],
                    capture->offsets[i]);
        fputs("]}", out);
    }
    fputs("\n]}\n", out);
}

static rp_status fail(const char *path, int code, struct rp_error *err)
{
    return rpi_error(err, RP_ERROR_IO, "rp_layout_write", "%s: cannot be written: %s", path,
                     strerror(code));
}

/* Writes and closes; false with errno set. */
static bool write_all(const struct rp_layout *layout, FILE *out)
{
    if (layout->csv)
        write_csv(out, layout);
    else
        write_json(out, layout);
    bool failed = ferror(out);
    return fclose(out) == 0 && !failed;
}

/* Devices and pipes can't be renamed over: they are written where they are. */
static rp_status write_in_place(const struct rp_layout *layout, const char *path,
                                struct rp_error *err)
{
    FILE *out = fopen(path, "wb");
    return out && write_all(layout, out) ? RP_OK : fail(path, errno, err);
}

rp_status rp_layout_write(const struct rp_layout *layout, const char *path, struct rp_error *err)
{
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return write_in_place(layout, path, err);
    size_t bytes = strlen(path) + sizeof ".part";
    char *part = rpi_malloc(bytes);
    if (!part)
        return rpi_error_host_memory(err, "rp_layout_write", bytes);
    snprintf(part, bytes, "%s.part", path);
    FILE *out = fopen(part, "wb");
    rp_status status = RP_OK;
    if (!out) {
        status = fail(part, errno, err);
    } else if (!write_all(layout, out) || rename(part, path) != 0) {
        status = fail(path, errno, err);
        unlink(part);
    }
    rpi_free(part);
    return status;
}
