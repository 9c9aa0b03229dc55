/* SPDX-License-Identifier: MIT */
#include "memory/place/place_view.h"

#include <assert.h>
#include <string.h>

struct rpi_place_view *rpi_place_view_create(uint32_t index)
{
    assert(index < 64);
    struct rpi_place_view *view = rpi_calloc(1, sizeof *view);
    if (view)
        view->index = index;
    return view;
}

void rpi_place_view_destroy(struct rpi_place_view *view)
{
    if (!view)
        return;
    for (uint32_t c = 0; c < view->chains; c++)
        rpi_vec_finish(&view->waiting[c]);
    rpi_free(view->waiting);
    rpi_free(view->clock);
    rpi_free(view->other);
    rpi_gap_set_finish(&view->gaps);
    rpi_free(view);
}

void rpi_place_view_reset(struct rpi_place_view *view, struct rpi_segments *segments)
{
    uint64_t bit = (uint64_t)1 << view->index;
    for (size_t i = 0; i < segments->all.count; i++)
        segments->all.data[i].dead &= ~bit;
    rpi_gap_set_clear(&view->gaps);
    for (uint32_t c = 0; c < view->chains; c++) {
        view->clock[c] = 0;
        view->waiting[c].count = 0;
    }
    view->seen = 0;
    view->made = false;
}

/* ---- Gaps ---------------------------------------------------------------------------------- */

bool rpi_place_view_reserve(struct rpi_place_view *view, size_t segments, size_t gaps)
{
    if (!rpi_gap_set_reserve(&view->gaps, gaps))
        return false;
    if (segments <= view->others)
        return true;
    uint32_t *grown = rpi_vec_grow(view->other, &view->others, segments, sizeof *grown);
    if (!grown)
        return false;
    view->other = grown;
    return true;
}

static bool is_dead_at(const struct rpi_place_view *view, const struct rpi_segments *segments,
                       uint32_t segment)
{
    return segment != RPI_NO_SEGMENT && rpi_place_view_is_dead(view, &segments->all.data[segment]);
}

static void insert_gap(struct rpi_place_view *view, const struct rpi_segments *segments,
                       uint32_t first, uint32_t last)
{
    assert(segments->all.data[first].offset <= segments->all.data[last].offset);
    uint64_t offset = segments->all.data[first].offset, end = segments->all.data[last].end;
    view->other[first] = last;
    view->other[last] = first;
    rpi_gap_set_insert(&view->gaps, (struct rpi_gap){end - offset, offset, first});
}

static void remove_gap(struct rpi_place_view *view, const struct rpi_segments *segments,
                       uint32_t first, uint32_t last)
{
    assert(view->other[first] == last && view->other[last] == first);
    uint64_t offset = segments->all.data[first].offset, end = segments->all.data[last].end;
    rpi_gap_set_remove(&view->gaps, end - offset, offset);
}

void rpi_place_view_add(struct rpi_place_view *view, struct rpi_segments *segments,
                        uint32_t segment)
{
    struct rpi_segment *added = &segments->all.data[segment];
    assert(!rpi_place_view_is_dead(view, added));
    uint32_t first = segment, last = segment;
    if (is_dead_at(view, segments, added->prev)) {
        first = view->other[added->prev];
        remove_gap(view, segments, first, added->prev);
    }
    if (is_dead_at(view, segments, added->next)) {
        last = view->other[added->next];
        remove_gap(view, segments, added->next, last);
    }
    insert_gap(view, segments, first, last);
    added->dead |= (uint64_t)1 << view->index;
}

void rpi_place_view_split(struct rpi_place_view *view, const struct rpi_segments *segments,
                          uint32_t lower, uint32_t upper)
{
    assert(segments->all.data[lower].next == upper);
    if (is_dead_at(view, segments, segments->all.data[upper].next))
        return; /* neither is the upper end of the gap */
    uint32_t first =
        is_dead_at(view, segments, segments->all.data[lower].prev) ? view->other[lower] : lower;
    view->other[first] = upper;
    view->other[upper] = first;
}

/* The ends of the gap that first .. last lie in. */
static void find_ends(const struct rpi_place_view *view, const struct rpi_segments *segments,
                      uint32_t *first, uint32_t *last)
{
    assert(is_dead_at(view, segments, *first) && is_dead_at(view, segments, *last));
    uint32_t low = *first, high = *last;
    for (;;) {
        uint32_t below = segments->all.data[low].prev, above = segments->all.data[high].next;
        if (!is_dead_at(view, segments, below)) {
            *first = low;
            *last = view->other[low];
            return;
        }
        if (!is_dead_at(view, segments, above)) {
            *first = view->other[high];
            *last = high;
            return;
        }
        low = below;
        high = above;
    }
}

void rpi_place_view_cut(struct rpi_place_view *view, struct rpi_segments *segments, uint32_t first,
                        uint32_t last)
{
    struct rpi_segment *all = segments->all.data;
    uint64_t bit = (uint64_t)1 << view->index;
    uint32_t at = first, past = all[last].next;
    while (at != past) {
        if (!(all[at].dead & bit)) {
            at = all[at].next;
            continue;
        }
        uint32_t to = at;
        while (to != last && (all[all[to].next].dead & bit))
            to = all[to].next;
        uint32_t low = at, high = to, below = all[at].prev, above = all[to].next;
        find_ends(view, segments, &low, &high);
        remove_gap(view, segments, low, high);
        if (low != at)
            insert_gap(view, segments, low, below);
        if (high != to)
            insert_gap(view, segments, above, high);
        for (uint32_t s = at; s != above; s = all[s].next)
            all[s].dead &= ~bit;
        at = above;
    }
}

/* ---- Waiting ------------------------------------------------------------------------------- */

bool rpi_place_view_chains(struct rpi_place_view *view, uint32_t chains)
{
    if (chains <= view->chains)
        return true;
    uint32_t *clock = rpi_reallocarray(view->clock, chains, sizeof *clock);
    if (!clock)
        return false;
    view->clock = clock;
    struct rpi_wait_heap *waiting = rpi_reallocarray(view->waiting, chains, sizeof *waiting);
    if (!waiting)
        return false;
    view->waiting = waiting;
    memset(clock + view->chains, 0, (chains - view->chains) * sizeof *clock);
    memset(waiting + view->chains, 0, (chains - view->chains) * sizeof *waiting);
    view->chains = chains;
    return true;
}

bool rpi_place_view_wait(struct rpi_place_view *view, uint32_t chain, uint32_t position,
                         uint32_t block)
{
    assert(chain < view->chains && position);
    struct rpi_wait_heap *heap = &view->waiting[chain];
    if (!rpi_vec_push(heap, ((struct rpi_waiting){position, block})))
        return false;
    struct rpi_waiting *data = heap->data;
    size_t at = heap->count - 1;
    while (at && data[(at - 1) / 2].position > position) {
        data[at] = data[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    data[at] = (struct rpi_waiting){position, block};
    return true;
}

bool rpi_place_view_due(struct rpi_place_view *view, uint32_t chain,
                        struct rpi_waiting *out_waiting)
{
    assert(chain < view->chains);
    struct rpi_wait_heap *heap = &view->waiting[chain];
    struct rpi_waiting *data = heap->data;
    if (!heap->count || data[0].position > view->clock[chain])
        return false;
    *out_waiting = data[0];
    struct rpi_waiting moved = data[--heap->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= heap->count)
            break;
        child += child + 1 < heap->count && data[child + 1].position < data[child].position;
        if (data[child].position >= moved.position)
            break;
        data[at] = data[child];
        at = child;
    }
    data[at] = moved;
    return true;
}

/* ---- Checking ------------------------------------------------------------------------------ */

bool rpi_place_view_is_valid(const struct rpi_place_view *view, const struct rpi_segments *segments)
{
    const struct rpi_segment *all = segments->all.data;
    size_t gaps = 0;
    uint32_t first = RPI_NO_SEGMENT;
    for (uint32_t s = segments->first; s != RPI_NO_SEGMENT; s = all[s].next) {
        if (!rpi_place_view_is_dead(view, &all[s]))
            continue;
        if (!is_dead_at(view, segments, all[s].prev))
            first = s;
        if (is_dead_at(view, segments, all[s].next))
            continue;
        uint64_t bytes = all[s].end - all[first].offset;
        const struct rpi_gap *gap = rpi_gap_set_first_from(&view->gaps, bytes, all[first].offset);
        if (view->other[first] != s || view->other[s] != first || !gap || gap->bytes != bytes ||
            gap->offset != all[first].offset || gap->segment != first)
            return false;
        gaps++;
    }
    return gaps == rpi_gap_set_count(&view->gaps) && rpi_gap_set_is_valid(&view->gaps);
}
