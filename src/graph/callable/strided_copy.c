/* SPDX-License-Identifier: MIT */
#include "graph/callable/strided_copy.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

/* Drivers take pitches up to this one. */
#define MOST_PITCH ((uint64_t)INT32_MAX)

/* One dimension of a walk: sizes in elements, steps in bytes; b is unused when filling. */
struct level {
    uint64_t size, a, b;
};

/* The innermost first. Level 0 is one run without gaps. */
struct walk {
    struct level levels[RP_MOST_RANK + 1];
    uint32_t count;
};

/* False when there is nothing in the box. */
static bool make_walk(struct walk *walk, const int64_t *sizes, const int64_t *a, const int64_t *b,
                      uint32_t rank, uint32_t element)
{
    assert(element && rank <= RP_MOST_RANK);
    walk->levels[0] = (struct level){element, 1, 1}; /* a run of bytes */
    walk->count = 1;
    for (uint32_t i = rank; i-- > 0;) {
        struct level next = {(uint64_t)sizes[i], (uint64_t)a[i] * element,
                             (uint64_t)b[i] * element};
        struct level *last = &walk->levels[walk->count - 1];
        if (!next.size)
            return false;
        if (next.size == 1)
            continue;
        if (next.a == last->size * last->a && next.b == last->size * last->b)
            last->size *= next.size;
        else
            walk->levels[walk->count++] = next;
    }
    return true;
}

typedef CUresult (*visit_fn)(void *what, uint64_t a, uint64_t b);

/* Calls visit with the start of each piece that has the first `done` levels. */
static CUresult visit_pieces(const struct walk *walk, uint32_t done, uint64_t a, uint64_t b,
                             visit_fn visit, void *what)
{
    assert(done && done <= walk->count);
    uint64_t at[RP_MOST_RANK + 1] = {0};
    for (;;) {
        CUresult result = visit(what, a, b);
        if (result != CUDA_SUCCESS)
            return result;
        uint32_t i = done;
        for (; i < walk->count; i++) {
            const struct level *level = &walk->levels[i];
            a += level->a;
            b += level->b;
            if (++at[i] < level->size)
                break;
            at[i] = 0;
            a -= level->a * level->size;
            b -= level->b * level->size;
        }
        if (i >= walk->count)
            return CUDA_SUCCESS;
    }
}

/* Can level 1 be rows of the run in level 0? */
static bool has_rows(const struct walk *walk)
{
    const struct level *run = &walk->levels[0], *rows = &walk->levels[1];
    return walk->count > 1 && rows->a >= run->size && rows->b >= run->size &&
           rows->a <= MOST_PITCH && rows->b <= MOST_PITCH;
}

/* ---- Copies -------------------------------------------------------------------------------- */

struct copying {
    const struct rp_driver *driver;
    const struct walk *walk;
    CUstream stream;
    bool rows;
};

static CUresult copy_piece(void *what, uint64_t to, uint64_t from)
{
    const struct copying *c = what;
    const struct level *run = &c->walk->levels[0];
    if (!c->rows)
        return c->driver->cuMemcpyDtoDAsync(to, from, run->size, c->stream);
    const struct level *rows = &c->walk->levels[1];
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = from,
                          .srcPitch = rows->b,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = to,
                          .dstPitch = rows->a,
                          .WidthInBytes = run->size,
                          .Height = rows->size};
    return c->driver->cuMemcpy2DAsync(&copy, c->stream);
}

rp_status rpi_strided_copy(const struct rp_driver *driver, const struct rpi_strided *to,
                           const struct rpi_strided *from, const int64_t *sizes, uint32_t rank,
                           uint32_t element, CUstream stream, struct rp_error *err)
{
    struct walk walk;
    if (!make_walk(&walk, sizes, to->strides, from->strides, rank, element))
        return RP_OK;
    struct copying copying = {driver, &walk, stream, has_rows(&walk)};
    CUresult result =
        visit_pieces(&walk, copying.rows ? 2 : 1, to->address, from->address, copy_piece, &copying);
    return result == CUDA_SUCCESS
               ? RP_OK
               : rpi_error_driver(err, result,
                                  copying.rows ? "cuMemcpy2DAsync" : "cuMemcpyDtoDAsync",
                                  "copying a padded argument");
}

/* ---- Fills --------------------------------------------------------------------------------- */

struct filling {
    const struct rp_driver *driver;
    struct walk walk; /* of the box that is being filled */
    CUstream stream;
    bool rows;
    uint32_t element;
    uint64_t bits;
};

/* Elements of more than four bytes: the first by its words, then by copies that double. */
static CUresult fill_wide(const struct filling *f, uint64_t at, uint64_t bytes)
{
    assert(f->element > 4 && bytes % f->element == 0);
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; result == CUDA_SUCCESS && i < f->element; i += 4) {
        uint32_t word = i < 8 ? (uint32_t)(f->bits >> (8 * i)) : 0;
        result = f->driver->cuMemsetD32Async(at + i, word, 1, f->stream);
    }
    for (uint64_t done = f->element; result == CUDA_SUCCESS && done < bytes; done *= 2) {
        uint64_t left = bytes - done;
        result = f->driver->cuMemcpyDtoDAsync(at + done, at, left < done ? left : done, f->stream);
    }
    return result;
}

static CUresult fill_piece(void *what, uint64_t at, uint64_t unused)
{
    const struct filling *f = what;
    assert(!f->rows || f->walk.count > 1);
    const struct level *run = &f->walk.levels[0];
    (void)unused;
    if (f->rows)
        return f->driver->cuMemsetD2D8Async(at, f->walk.levels[1].a, (unsigned char)f->bits,
                                            run->size, f->walk.levels[1].size, f->stream);
    if (!f->bits || f->element == 1)
        return f->driver->cuMemsetD8Async(at, (unsigned char)f->bits, run->size, f->stream);
    if (f->element == 2)
        return f->driver->cuMemsetD16Async(at, (unsigned short)f->bits, run->size / 2, f->stream);
    if (f->element == 4)
        return f->driver->cuMemsetD32Async(at, (unsigned)f->bits, run->size / 4, f->stream);
    return fill_wide(f, at, run->size);
}

static CUresult fill_box(struct filling *f, uint64_t at, const int64_t *strides,
                         const int64_t *sizes, uint32_t rank)
{
    if (!make_walk(&f->walk, sizes, strides, strides, rank, f->element))
        return CUDA_SUCCESS;
    f->rows = (!f->bits || f->element == 1) && has_rows(&f->walk);
    return visit_pieces(&f->walk, f->rows ? 2 : 1, at, at, fill_piece, f);
}

/* For each dimension the box of what is beyond `inner` along it, and within along those before. */
rp_status rpi_strided_fill_beyond(const struct rp_driver *driver, const struct rpi_strided *box,
                                  const int64_t *inner, const int64_t *outer, uint32_t rank,
                                  uint32_t element, uint64_t bits, CUstream stream,
                                  struct rp_error *err)
{
    struct filling filling = {.driver = driver, .stream = stream, .element = element, .bits = bits};
    int64_t sizes[RP_MOST_RANK];
    CUresult result = CUDA_SUCCESS;
    assert(rank <= RP_MOST_RANK);
    memcpy(sizes, outer, rank * sizeof *sizes);
    for (uint32_t d = 0; result == CUDA_SUCCESS && d < rank; d++) {
        if (outer[d] > inner[d]) {
            uint64_t start = (uint64_t)inner[d] * (uint64_t)box->strides[d] * element;
            sizes[d] = outer[d] - inner[d];
            result = fill_box(&filling, box->address + start, box->strides, sizes, rank);
        }
        sizes[d] = inner[d] < outer[d] ? inner[d] : outer[d];
    }
    return result == CUDA_SUCCESS
               ? RP_OK
               : rpi_error_driver(err, result, "cuMemsetD8Async", "filling a padded argument");
}
