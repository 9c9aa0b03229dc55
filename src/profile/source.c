/* SPDX-License-Identifier: MIT */
#include "profile/source.h"

#include "base/hostmem.h"
#include "base/status.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { BLOCK = 1 << 16 };

struct rpi_source {
    const char *path;
    FILE *file;
    bool regular;         /* a file, not a pipe or a device */
    bool gzip, inflating; /* gzip: the file is compressed; inflating: a member has begun */
    z_stream z;
    char block[BLOCK];
};

static rp_status read_block(struct rpi_source *s, void *to, size_t room, size_t *out_count,
                            struct rp_error *err)
{
    size_t got = fread(to, 1, room, s->file);
    if (!got && ferror(s->file))
        return rpi_error(err, RP_ERROR_IO, "advise", "%s: cannot be read: %s", s->path,
                         strerror(errno));
    *out_count = got;
    return RP_OK;
}

static rp_status refill(struct rpi_source *s, struct rp_error *err)
{
    size_t got = 0;
    rp_status status = read_block(s, s->block, BLOCK, &got, err);
    s->z.next_in = (Bytef *)s->block;
    s->z.avail_in = (uInt)got;
    return status;
}

static rp_status open_file(struct rpi_source *s, struct rp_error *err)
{
    struct stat about;
    s->file = fopen(s->path, "rb");
    if (!s->file)
        return rpi_error(err, RP_ERROR_IO, "advise", "%s: cannot be opened: %s", s->path,
                         strerror(errno));
    bool known = fstat(fileno(s->file), &about) == 0;
    s->regular = known && S_ISREG(about.st_mode);
    if (known && S_ISDIR(about.st_mode))
        return rpi_error(err, RP_ERROR_IO, "advise", "%s: is a folder; give one trace in it",
                         s->path);
    setvbuf(s->file, NULL, _IONBF, 0);
    rp_status status = refill(s, err);
    if (status != RP_OK)
        return status;
    const unsigned char *first = s->z.next_in;
    s->gzip = s->z.avail_in >= 2 && first[0] == 0x1f && first[1] == 0x8b;
    if (s->gzip && inflateInit2(&s->z, 15 + 16) != Z_OK) { /* 16: gzip framing and checksum */
        s->gzip = false;
        return rpi_error_host_memory(err, "advise", sizeof s->z);
    }
    s->inflating = s->gzip;
    return RP_OK;
}

rp_status rpi_source_open(const char *path, struct rpi_source **out_source, struct rp_error *err)
{
    struct rpi_source *s = rpi_calloc(1, sizeof *s);
    if (!s)
        return rpi_error_host_memory(err, "advise", sizeof *s);
    s->path = path;
    rp_status status = open_file(s, err);
    if (status == RP_OK)
        *out_source = s;
    else
        rpi_source_destroy(s);
    return status;
}

bool rpi_source_begins(const struct rpi_source *s, const void *bytes, size_t count)
{
    return !s->gzip && s->z.avail_in >= count && !memcmp(s->z.next_in, bytes, count);
}

bool rpi_source_is_file(const struct rpi_source *s)
{
    return s->regular;
}

static rp_status read_plain(struct rpi_source *s, char *to, size_t room, size_t *out_count,
                            struct rp_error *err)
{
    if (!s->z.avail_in)
        return read_block(s, to, room, out_count, err);
    *out_count = s->z.avail_in < room ? s->z.avail_in : room;
    memcpy(to, s->z.next_in, *out_count);
    s->z.next_in += *out_count;
    s->z.avail_in -= (uInt)*out_count;
    return RP_OK;
}

/* After the end of a gzip member: another may follow, as `cat a.gz b.gz` makes them. */
static bool next_member(struct rpi_source *s)
{
    s->inflating = s->z.avail_in && inflateReset(&s->z) == Z_OK;
    return s->inflating;
}

rp_status rpi_source_read(struct rpi_source *s, char *to, size_t room, size_t *out_count,
                          struct rp_error *err)
{
    if (!s->gzip)
        return read_plain(s, to, room, out_count, err);
    s->z.next_out = (Bytef *)to;
    s->z.avail_out = (uInt)room;
    while (s->z.avail_out == room) {
        if (!s->z.avail_in) {
            rp_status status = refill(s, err);
            if (status != RP_OK)
                return status;
        }
        if (!s->inflating && !next_member(s))
            break;
        if (!s->z.avail_in)
            return rpi_error(err, RP_ERROR_FORMAT, "advise",
                             "%s: the gzip data ends too early: the trace is cut short; export it "
                             "again",
                             s->path);
        int result = inflate(&s->z, Z_NO_FLUSH);
        if (result == Z_STREAM_END)
            s->inflating = false;
        else if (result == Z_MEM_ERROR)
            return rpi_error_host_memory(err, "advise", BLOCK);
        else if (result != Z_OK)
            return rpi_error(err, RP_ERROR_FORMAT, "advise", "%s: the gzip data is damaged: %s",
                             s->path, s->z.msg ? s->z.msg : "unknown reason");
    }
    *out_count = room - s->z.avail_out;
    return RP_OK;
}

void rpi_source_destroy(struct rpi_source *s)
{
    if (!s)
        return;
    if (s->gzip)
        inflateEnd(&s->z);
    if (s->file)
        fclose(s->file);
    rpi_free(s);
}
