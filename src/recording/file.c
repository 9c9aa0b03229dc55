/* SPDX-License-Identifier: MIT
 *
 * Opening recordings: the file or its gzip contents go to memory, bounded, and from there to the
 * reader of the format that they begin like.
 */
#include "recording/file.h"

#include "base/refuse.h"

#include "memory/order/lifetimes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

struct buffer {
    RPI_VEC(char);
};

static rp_status refuse_size(const char *file, const char *what, struct rp_error *err)
{
    return rpi_error(err, RP_ERROR_FORMAT, "recording", "%s: %s more than %zu MiB", file, what,
                     RPI_MOST_FILE_BYTES >> 20);
}

static rp_status read_stream(const char *path, FILE *in, struct buffer *out, struct rp_error *err)
{
    size_t step = 1 << 16;
    for (;;) {
        if (!rpi_vec_reserve(out, out->count + step))
            return rpi_error_host_memory(err, "recording", out->count + step);
        size_t got = fread(out->data + out->count, 1, step, in);
        out->count += got;
        if (out->count > RPI_MOST_FILE_BYTES)
            return refuse_size(path, "has", err);
        if (got == step)
            continue;
        if (!ferror(in))
            return RP_OK;
        return rpi_error(err, RP_ERROR_IO, "recording", "%s: cannot be read: %s", path,
                         strerror(errno));
    }
}

static rp_status read_file(const char *path, struct buffer *out, struct rp_error *err)
{
    FILE *in = fopen(path, "rb");
    if (!in)
        return rpi_error(err, RP_ERROR_IO, "recording", "%s: cannot be opened: %s", path,
                         strerror(errno));
    rp_status status = read_stream(path, in, out, err);
    fclose(in);
    return status;
}

/* One gzip member into out. inflate is set up and closed by the caller. */
static rp_status inflate_member(const char *file, z_stream *z, struct buffer *out,
                                struct rp_error *err)
{
    const size_t step = 1 << 16;
    for (;;) {
        if (!rpi_vec_reserve(out, out->count + step))
            return rpi_error_host_memory(err, "recording", out->count + step);
        z->next_out = (Bytef *)out->data + out->count;
        z->avail_out = (uInt)step;
        int result = inflate(z, Z_NO_FLUSH);
        out->count += step - z->avail_out;
        if (out->count > RPI_MOST_FILE_BYTES)
            return refuse_size(file, "decompresses to", err);
        if (result == Z_STREAM_END)
            return RP_OK;
        if (result == Z_MEM_ERROR)
            return rpi_error_host_memory(err, "recording", step);
        if (result == Z_BUF_ERROR || (result == Z_OK && z->avail_out && !z->avail_in))
            return rpi_error(err, RP_ERROR_FORMAT, "recording",
                             "%s: byte %lu: the gzip data ends too early: the file is cut short",
                             file, z->total_in);
        if (result != Z_OK)
            return rpi_error(err, RP_ERROR_FORMAT, "recording",
                             "%s: byte %lu: the gzip data is damaged: %s", file, z->total_in,
                             z->msg ? z->msg : "unknown reason");
    }
}

static rp_status gunzip(const char *file, const void *data, size_t bytes, struct buffer *out,
                        struct rp_error *err)
{
    z_stream z = {0};
    if (inflateInit2(&z, 15 + 16) != Z_OK) /* 16: gzip framing, with its checksum */
        return rpi_error_host_memory(err, "recording", sizeof z);
    z.next_in = (z_const Bytef *)data;
    z.avail_in = (uInt)bytes;
    rp_status status = inflate_member(file, &z, out, err);
    /* A file may be several members, one after the other, as parallel compressors write them. */
    while (status == RP_OK && z.avail_in >= 2 && z.next_in[0] == 0x1f && z.next_in[1] == 0x8b &&
           inflateReset(&z) == Z_OK)
        status = inflate_member(file, &z, out, err);
    if (status == RP_OK && z.avail_in)
        status = rpi_error(err, RP_ERROR_FORMAT, "recording",
                           "%s: byte %lu: %u bytes follow the end of the gzip data", file,
                           z.total_in, z.avail_in);
    inflateEnd(&z);
    return status;
}

static rp_status parse_text(struct rp_recording *recording, const char *text, size_t bytes,
                            struct rp_error *err)
{
    static const char mark[] = "\xef\xbb\xbf"; /* of UTF-8, which some editors write first */
    if (bytes >= 3 && !memcmp(text, mark, 3)) {
        text += 3;
        bytes -= 3;
    }
    size_t start = 0;
    while (start < bytes && strchr(" \t\r\n", text[start]) && text[start])
        start++;
    if (start == bytes)
        return rpi_error(err, RP_ERROR_FORMAT, "recording", "%s: the file is empty",
                         recording->file);
    if (text[start] == '{' || text[start] == '[')
        return rpi_recording_parse_json(recording, text, bytes, err);
    return rpi_recording_parse_csv(recording, text, bytes, err);
}

rp_status rpi_recording_parse(const char *file, const void *data, size_t bytes,
                              struct rp_recording **out_recording, struct rp_error *err)
{
    if (bytes > RPI_MOST_FILE_BYTES)
        return refuse_size(file, "has", err);
    struct rp_recording *recording = rpi_calloc(1, sizeof *recording);
    if (!recording || !(recording->file = rpi_strdup(file))) {
        rpi_free(recording);
        return rpi_error_host_memory(err, "recording", sizeof *recording);
    }
    const unsigned char *first = data;
    rp_status status;
    if (bytes >= 2 && first[0] == 0x1f && first[1] == 0x8b) {
        struct buffer text = {0};
        status = gunzip(file, data, bytes, &text, err);
        if (status == RP_OK)
            status = parse_text(recording, text.data, text.count, err);
        rpi_vec_finish(&text);
    } else {
        status = parse_text(recording, data, bytes, err);
    }
    if (status == RP_OK)
        *out_recording = recording;
    else
        rp_recording_destroy(recording);
    return status;
}

rp_status rp_recording_load(const char *path, struct rp_recording **out_recording,
                            struct rp_error *err)
{
    if (!path || !out_recording)
        return rpi_refuse(err, "rp_recording_load", !path ? "path" : "out_recording");
    struct buffer data = {0};
    rp_status status = read_file(path, &data, err);
    if (status == RP_OK)
        status = rpi_recording_parse(path, data.data, data.count, out_recording, err);
    rpi_vec_finish(&data);
    return status;
}

void rp_recording_destroy(struct rp_recording *recording)
{
    if (!recording)
        return;
    for (size_t i = 0; i < recording->captures.count; i++)
        rpi_capture_record_finish(&recording->captures.data[i]);
    rpi_vec_finish(&recording->captures);
    rpi_compose_finish(&recording->compose);
    rpi_free(recording->intervals.text);
    rpi_free(recording->intervals.id);
    rpi_free(recording->intervals.lower);
    rpi_free(recording->intervals.upper);
    rpi_free(recording->intervals.bytes);
    rpi_free(recording->file);
    rpi_free(recording);
}

int rp_recording_is_csv(const struct rp_recording *recording)
{
    if (!recording)
        return 0;
    return recording->csv;
}
