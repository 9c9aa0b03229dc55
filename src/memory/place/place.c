/* SPDX-License-Identifier: MIT */
#include "memory/place/place.h"

#include "memory/range/arena.h"

#include <assert.h>

void rpi_place_init(struct rpi_place *place, const struct rpi_order *order, uint64_t alignment,
                    uint64_t height)
{
    *place = (struct rpi_place){
        .order = order, .alignment = alignment, .height = rpi_round_up(height, alignment)};
    rpi_segments_init(&place->segments);
}

void rpi_place_finish(struct rpi_place *place)
{
    for (size_t v = 0; v < place->views.count; v++)
        rpi_place_view_destroy(place->views.data[v]);
    rpi_vec_finish(&place->views);
    rpi_vec_finish(&place->blocks);
    rpi_vec_finish(&place->markers);
    rpi_vec_finish(&place->freed);
    rpi_segments_finish(&place->segments);
    place->view = NULL;
}

static rp_status no_memory(struct rp_error *err)
{
    return rpi_error_host_memory(err, "placing a block", sizeof(struct rpi_segment));
}

/* Puts a segment where the range had memory from the start. */
static bool open_range(struct rpi_place *place)
{
    assert(place->height % place->alignment == 0);
    if (place->segments.first != RPI_NO_SEGMENT || !place->height)
        return true;
    if (!rpi_segments_reserve(&place->segments, 1))
        return false;
    rpi_segments_append(&place->segments, place->height);
    return true;
}

/* ---- Looking ------------------------------------------------------------------------------- */

/* Makes a freed block's segments gaps of the view, or lets it wait. */
static bool consider(struct rpi_place *place, struct rpi_place_view *view, uint32_t block)
{
    assert(block < place->blocks.count && place->blocks.data[block].freed);
    const struct rpi_place_block *b = &place->blocks.data[block];
    const struct rpi_place_marker *markers = place->markers.data + b->first_marker;
    if (b->first_piece == RPI_NO_SEGMENT)
        return true; /* taken by others meanwhile */
    for (uint32_t i = 0; i < b->marker_count; i++)
        if (view->clock[markers[i].chain] < markers[i].position)
            return rpi_place_view_wait(view, markers[i].chain, markers[i].position, block);
    struct rpi_segment *all = place->segments.all.data;
    for (uint32_t s = b->first_piece; s != RPI_NO_SEGMENT; s = all[s].piece_next) {
        if (rpi_place_view_is_dead(view, &all[s]))
            continue;
        if (!rpi_place_view_reserve(view, place->segments.all.count, 1))
            return false;
        rpi_place_view_add(view, &place->segments, s);
    }
    return true;
}

/* Looks at what was freed or came into sight since the last look. */
static bool catch_up(struct rpi_place *place, struct rpi_place_view *view)
{
    for (uint32_t c = 0; c < view->chains; c++) {
        struct rpi_waiting due;
        while (rpi_place_view_due(view, c, &due)) {
            if (!consider(place, view, due.block)) {
                rpi_place_view_wait(view, c, due.position, due.block);
                return false;
            }
        }
    }
    while (view->seen < place->freed.count) {
        if (!consider(place, view, place->freed.data[view->seen]))
            return false;
        view->seen++;
    }
    return true;
}

/* Makes the view know all segments, from nothing. */
static bool make(struct rpi_place *place, struct rpi_place_view *view)
{
    assert(!view->made && !rpi_gap_set_count(&view->gaps));
    struct rpi_segment *all = place->segments.all.data;
    if (!rpi_place_view_reserve(view, place->segments.all.count, 0))
        return false;
    for (uint32_t s = place->segments.first; s != RPI_NO_SEGMENT; s = all[s].next) {
        uint32_t block = all[s].block;
        if (block == RPI_NO_BLOCK) {
            if (!rpi_place_view_reserve(view, place->segments.all.count, 1))
                return false;
            rpi_place_view_add(view, &place->segments, s);
        } else if (place->blocks.data[block].first_piece == s &&
                   place->blocks.data[block].marker_count && !consider(place, view, block)) {
            return false;
        }
    }
    view->seen = place->freed.count;
    view->made = true;
    return true;
}

static uint32_t clock_at(const struct rpi_frontier *frontier, uint32_t chain)
{
    return chain < frontier->chains ? frontier->clock[chain] : 0;
}

/* Sets the view's clock; false when it went back somewhere. */
static bool advance(struct rpi_place_view *view, const struct rpi_frontier *frontier)
{
    bool forward = true;
    for (uint32_t c = 0; c < view->chains; c++)
        forward &= clock_at(frontier, c) >= view->clock[c];
    if (forward)
        for (uint32_t c = 0; c < view->chains; c++)
            view->clock[c] = clock_at(frontier, c);
    return forward;
}

/* The stream's view, or one that can become it: new, or the least recent. NULL: no host memory. */
static struct rpi_place_view *find_view(struct rpi_place *place, uint32_t stream)
{
    assert(place->views.count <= RPI_PLACE_VIEWS);
    struct rpi_place_view *oldest = NULL;
    for (size_t v = 0; v < place->views.count; v++) {
        struct rpi_place_view *view = place->views.data[v];
        if (view->stream == stream)
            return view;
        oldest = !oldest || view->last_look < oldest->last_look ? view : oldest;
    }
    if (place->views.count < RPI_PLACE_VIEWS) {
        if (!rpi_vec_reserve(&place->views, place->views.count + 1))
            return NULL;
        oldest = rpi_place_view_create((uint32_t)place->views.count);
        if (oldest)
            place->views.data[place->views.count++] = oldest;
    } else {
        rpi_place_view_reset(oldest, &place->segments);
    }
    if (oldest)
        oldest->stream = stream;
    return oldest;
}

rp_status rpi_place_look(struct rpi_place *place, uint32_t stream,
                         const struct rpi_frontier *frontier, struct rp_error *err)
{
    place->view = NULL;
    if (!open_range(place))
        return no_memory(err);
    struct rpi_place_view *view = find_view(place, stream);
    if (!view || !rpi_place_view_chains(view, rpi_order_chains(place->order)))
        return no_memory(err);
    view->last_look = ++place->looks;
    if (!view->made || !advance(view, frontier)) {
        rpi_place_view_reset(view, &place->segments);
        advance(view, frontier);
        if (!make(place, view))
            return no_memory(err);
    } else if (!catch_up(place, view)) {
        return no_memory(err);
    }
    place->view = view;
    return RP_OK;
}

/* ---- Asking -------------------------------------------------------------------------------- */

bool rpi_place_fits(const struct rpi_place *place, uint64_t offset, uint64_t bytes)
{
    assert(bytes);
    assert(place->view);
    if (offset >= place->height)
        return true;
    const struct rpi_segment *all = place->segments.all.data;
    for (uint32_t s = rpi_segments_at(&place->segments, offset);
         s != RPI_NO_SEGMENT && all[s].offset < offset + bytes; s = all[s].next)
        if (!rpi_place_view_is_dead(place->view, &all[s]))
            return false;
    return true;
}

/* What fits in a gap of more times the size has no good fit: it is kept low instead. */
enum { TIGHT = 3 };

uint64_t rpi_place_find(const struct rpi_place *place, uint64_t bytes)
{
    assert(bytes);
    assert(place->view);
    const struct rpi_gap *gap = rpi_gap_set_first_from(&place->view->gaps, bytes, 0);
    if (gap && gap->bytes > TIGHT * bytes)
        gap = rpi_gap_set_lowest_from(&place->view->gaps, bytes);
    if (gap)
        return gap->offset;
    const struct rpi_segment *all = place->segments.all.data;
    uint32_t last = place->segments.last;
    uint64_t start = place->height;
    if (last != RPI_NO_SEGMENT && rpi_place_view_is_dead(place->view, &all[last]))
        start = all[rpi_place_view_gap_start(place->view, last)].offset;
    return start <= UINT64_MAX - rpi_round_up(bytes, place->alignment) ? start : UINT64_MAX;
}

/* ---- Taking -------------------------------------------------------------------------------- */

/* Most segments and gaps of a view that taking a block adds: one that the block leaves below it
 * when the range grows, its own, and what it leaves of those it begins and ends in. */
enum { MOST_SEGMENTS = 4, MOST_GAPS = 3 };

static bool reserve_to_take(struct rpi_place *place)
{
    if (!open_range(place) || !rpi_segments_reserve(&place->segments, MOST_SEGMENTS) ||
        !rpi_vec_reserve(&place->blocks, place->blocks.count + 1))
        return false;
    for (size_t v = 0; v < place->views.count; v++)
        if (!rpi_place_view_reserve(place->views.data[v], place->segments.all.count + MOST_SEGMENTS,
                                    MOST_GAPS))
            return false;
    return true;
}

/* Adds segments up to `end`; what lies below `offset` is dead for all. */
static void grow(struct rpi_place *place, uint64_t offset, uint64_t end)
{
    assert(offset < end && offset % place->alignment == 0 && end % place->alignment == 0);
    if (end <= place->height)
        return;
    if (offset > place->height) {
        uint32_t below = rpi_segments_append(&place->segments, offset);
        for (size_t v = 0; v < place->views.count; v++)
            rpi_place_view_add(place->views.data[v], &place->segments, below);
    }
    rpi_segments_append(&place->segments, end);
    place->height = end;
}

/* Sees to it that a segment begins at the offset, and returns it. */
static uint32_t cut_at(struct rpi_place *place, uint32_t segment, uint64_t offset)
{
    assert(offset < place->segments.all.data[segment].end);
    if (place->segments.all.data[segment].offset == offset)
        return segment;
    uint32_t upper = rpi_segments_split(&place->segments, segment, offset);
    for (uint64_t dead = place->segments.all.data[upper].dead; dead; dead &= dead - 1)
        rpi_place_view_split(place->views.data[__builtin_ctzll(dead)], &place->segments, segment,
                             upper);
    return upper;
}

/* Takes the segment from its block. */
static void drop_piece(struct rpi_place *place, uint32_t segment)
{
    struct rpi_segment *all = place->segments.all.data;
    const struct rpi_segment *gone = &all[segment];
    if (gone->block == RPI_NO_BLOCK)
        return;
    assert(place->blocks.data[gone->block].freed);
    if (gone->piece_prev == RPI_NO_SEGMENT)
        place->blocks.data[gone->block].first_piece = gone->piece_next;
    else
        all[gone->piece_prev].piece_next = gone->piece_next;
    if (gone->piece_next != RPI_NO_SEGMENT)
        all[gone->piece_next].piece_prev = gone->piece_prev;
}

rp_status rpi_place_take(struct rpi_place *place, uint64_t offset, uint64_t bytes,
                         uint32_t *out_block, struct rp_error *err)
{
    assert(bytes && offset % place->alignment == 0 && offset <= UINT64_MAX - bytes);
    uint64_t end = rpi_round_up(offset + bytes, place->alignment);
    if (!reserve_to_take(place))
        return no_memory(err);
    grow(place, offset, end);
    struct rpi_segments *segments = &place->segments;
    uint32_t first = cut_at(place, rpi_segments_at(segments, offset), offset), last = first;
    while (segments->all.data[last].end < end)
        last = segments->all.data[last].next;
    if (segments->all.data[last].end > end)
        cut_at(place, last, end);

    uint64_t dead = 0;
    for (uint32_t s = first;; s = segments->all.data[s].next) {
        dead |= segments->all.data[s].dead;
        drop_piece(place, s);
        if (s == last)
            break;
    }
    for (; dead; dead &= dead - 1)
        rpi_place_view_cut(place->views.data[__builtin_ctzll(dead)], segments, first, last);
    rpi_segments_join(segments, first, last);
    uint32_t block = (uint32_t)place->blocks.count;
    segments->all.data[first].block = block;
    place->blocks.data[place->blocks.count++] = (struct rpi_place_block){.first_piece = first};
    *out_block = block;
    return RP_OK;
}

rp_status rpi_place_free(struct rpi_place *place, uint32_t block, const uint32_t *nodes,
                         size_t count, struct rp_error *err)
{
    assert(block < place->blocks.count && !place->blocks.data[block].freed);
    if (!rpi_vec_reserve(&place->markers, place->markers.count + count) ||
        !rpi_vec_reserve(&place->freed, place->freed.count + 1))
        return rpi_error_host_memory(err, "rp_call_free", count * sizeof *nodes);
    struct rpi_place_block *freed = &place->blocks.data[block];
    freed->freed = true;
    freed->first_marker = (uint32_t)place->markers.count;
    freed->marker_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++)
        place->markers.data[place->markers.count++] =
            (struct rpi_place_marker){rpi_order_chain_of(place->order, nodes[i]),
                                      rpi_order_position_of(place->order, nodes[i])};
    if (count)
        place->freed.data[place->freed.count++] = block;
    return RP_OK;
}

/* ---- Checking ------------------------------------------------------------------------------ */

static bool should_be_dead(const struct rpi_place *place, const struct rpi_place_view *view,
                           const struct rpi_segment *segment)
{
    if (segment->block == RPI_NO_BLOCK)
        return true;
    const struct rpi_place_block *block = &place->blocks.data[segment->block];
    for (uint32_t i = 0; i < block->marker_count; i++) {
        const struct rpi_place_marker *marker = &place->markers.data[block->first_marker + i];
        if (marker->chain >= view->chains || view->clock[marker->chain] < marker->position)
            return false;
    }
    return block->freed && block->marker_count;
}

static bool pieces_are_valid(const struct rpi_place *place, uint32_t segment)
{
    const struct rpi_segment *all = place->segments.all.data;
    uint32_t block = all[segment].block;
    if (block == RPI_NO_BLOCK)
        return true;
    if (block >= place->blocks.count)
        return false;
    for (uint32_t s = place->blocks.data[block].first_piece; s != RPI_NO_SEGMENT;
         s = all[s].piece_next)
        if (s == segment)
            return true;
    return false;
}

static bool segment_is_valid(const struct rpi_place *place, uint32_t id)
{
    const struct rpi_segment *segment = &place->segments.all.data[id];
    if (segment->end <= segment->offset || segment->offset % place->alignment ||
        rpi_segments_at(&place->segments, segment->offset) != id ||
        rpi_segments_at(&place->segments, segment->end - 1) != id || !pieces_are_valid(place, id))
        return false;
    for (size_t v = 0; v < place->views.count; v++) {
        const struct rpi_place_view *view = place->views.data[v];
        bool dead = rpi_place_view_is_dead(view, segment);
        bool should = should_be_dead(place, view, segment);
        bool knows = view->made && view->seen == place->freed.count;
        if ((dead && !should) || (knows && should && !dead))
            return false;
    }
    return true;
}

bool rpi_place_is_valid(const struct rpi_place *place)
{
    uint64_t end = 0;
    size_t count = 0;
    for (uint32_t s = place->segments.first; s != RPI_NO_SEGMENT;
         s = place->segments.all.data[s].next) {
        if (place->segments.all.data[s].offset != end || !segment_is_valid(place, s))
            return false;
        end = place->segments.all.data[s].end;
        count++;
    }
    for (size_t v = 0; v < place->views.count; v++)
        if (!rpi_place_view_is_valid(place->views.data[v], &place->segments))
            return false;
    return (!count || end == place->height) &&
           count == rpi_gap_set_count(&place->segments.by_offset);
}
