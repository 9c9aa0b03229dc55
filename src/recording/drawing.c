/* SPDX-License-Identifier: MIT
 *
 * The moment at which a capture has most alive, in the order that is drawn: one pass over the
 * beginnings and ends of its blocks, sorted, in O(n log n). What ends where another begins is gone
 * by then: lives are half-open.
 */
#include "recording/drawing.h"

#include "base/hostmem.h"
#include "base/status.h"

#include <stdlib.h>

void rpi_drawing_finish(struct rpi_drawing *drawing)
{
    for (size_t i = 0; i < drawing->captures.count; i++) {
        rpi_free(drawing->captures.data[i].name);
        rpi_free(drawing->captures.data[i].blocks);
    }
    for (size_t i = 0; i < drawing->parts.count; i++)
        rpi_free(drawing->parts.data[i].name);
    rpi_vec_finish(&drawing->captures);
    rpi_vec_finish(&drawing->parts);
    rpi_free(drawing->title);
    *drawing = (struct rpi_drawing){0};
}

struct change {
    double at;
    uint64_t bytes;
    bool begins;
};

static int by_time(const void *left, const void *right)
{
    const struct change *a = left, *b = right;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return a->begins - b->begins; /* ends first */
}

static void find_peak(struct rpi_drawn_capture *capture, struct change *changes, uint64_t alignment)
{
    uint64_t alive = 0;
    for (size_t i = 0; i < capture->count; i++) {
        const struct rpi_drawn_block *block = &capture->blocks[i];
        uint64_t bytes = (block->bytes + alignment - 1) / alignment * alignment;
        changes[2 * i] = (struct change){block->first, bytes, true};
        changes[2 * i + 1] = (struct change){block->last, bytes, false};
    }
    qsort(changes, 2 * capture->count, sizeof *changes, by_time);
    for (size_t i = 0; i < 2 * capture->count; i++) {
        alive = changes[i].begins ? alive + changes[i].bytes : alive - changes[i].bytes;
        if (alive > capture->peak) {
            capture->peak = alive;
            capture->peak_at = changes[i].at;
        }
    }
}

rp_status rpi_drawing_find_peaks(struct rpi_drawing *drawing, uint64_t alignment,
                                 struct rp_error *err)
{
    size_t most = 0;
    for (size_t i = 0; i < drawing->captures.count; i++)
        most = drawing->captures.data[i].count > most ? drawing->captures.data[i].count : most;
    struct change *changes = rpi_calloc(2 * most + 1, sizeof *changes);
    if (!changes)
        return rpi_error_host_memory(err, "plan", 2 * most * sizeof *changes);
    for (size_t i = 0; i < drawing->captures.count; i++)
        find_peak(&drawing->captures.data[i], changes, alignment);
    rpi_free(changes);
    return RP_OK;
}
