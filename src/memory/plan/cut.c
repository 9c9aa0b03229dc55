/* SPDX-License-Identifier: MIT
 *
 * Cutting a problem where no block is alive across. In host order a block comes after all that are
 * before it, so every such cut is a prefix of the host order: it lies where no block of the prefix
 * keeps any lane waiting beyond the prefix. One pass, blocks times lanes.
 */
#include "memory/plan/parts.h"

#include "base/hostmem.h"

#include <assert.h>
#include <string.h>

/* Has every lane reached what the blocks so far wait for? A lane that waits for RPI_NEVER has only
 * done so when it has no allocation left. */
static bool nothing_waits(const uint32_t *reached, const uint32_t *needed, const uint32_t *size,
                          uint32_t lanes)
{
    for (uint32_t l = 0; l < lanes; l++)
        if (needed[l] > reached[l] && reached[l] < size[l])
            return false;
    return true;
}

rp_status rpi_plan_cut(const struct rpi_lifetimes *x, uint32_t *out_ends, uint32_t *out_pieces,
                       struct rp_error *err)
{
    uint32_t lanes = x->lanes, pieces = 0;
    uint32_t *reached = rpi_calloc((size_t)lanes * 3, sizeof *reached);
    if (!reached)
        return rpi_error_host_memory(err, "plan", (size_t)lanes * 3 * sizeof *reached);
    uint32_t *needed = reached + lanes, *size = needed + lanes;
    for (uint32_t i = 0; i < x->count; i++)
        size[x->lane[i]]++;
    for (uint32_t i = 0; i < x->count; i++) {
        const uint32_t *first = x->first + (size_t)i * lanes;
        reached[x->lane[i]]++;
        for (uint32_t l = 0; l < lanes; l++)
            needed[l] = first[l] > needed[l] ? first[l] : needed[l];
        if (i + 1 == x->count || nothing_waits(reached, needed, size, lanes))
            out_ends[pieces++] = i + 1;
    }
    assert(pieces <= x->count && (!x->count || out_ends[pieces - 1] == x->count));
    *out_pieces = pieces;
    rpi_free(reached);
    return RP_OK;
}

/* For each lane of x: how many blocks lie on it before `from` and in [from, to), and the lane it
 * becomes. */
struct lane_map {
    uint32_t base, size, lane;
};

static uint32_t map_lanes(const struct rpi_lifetimes *x, uint32_t from, uint32_t to,
                          struct lane_map *map)
{
    uint32_t lanes = 0;
    for (uint32_t i = from; i < to; i++) {
        struct lane_map *lane = &map[x->lane[i]];
        if (lane->size++ == 0) {
            lane->base = x->rank[i];
            lane->lane = lanes++;
        }
    }
    return lanes;
}

rp_status rpi_plan_extract(const struct rpi_lifetimes *x, uint32_t from, uint32_t to,
                           struct rpi_lifetimes *out, struct rp_error *err)
{
    assert(from < to && to <= x->count);
    struct lane_map *map = rpi_calloc(x->lanes, sizeof *map);
    if (!map)
        return rpi_error_host_memory(err, "plan", x->lanes * sizeof *map);
    uint32_t lanes = map_lanes(x, from, to, map);
    rp_status status = rpi_lifetimes_init(out, to - from, lanes ? lanes : 1, err);
    for (uint32_t i = from; !status && i < to; i++) {
        const uint32_t *first = x->first + (size_t)i * x->lanes;
        uint32_t *made = out->first + (size_t)(i - from) * lanes;
        out->bytes[i - from] = x->bytes[i];
        out->block[i - from] = x->block[i];
        out->lane[i - from] = map[x->lane[i]].lane;
        out->rank[i - from] = x->rank[i] - map[x->lane[i]].base;
        for (uint32_t l = 0; l < x->lanes; l++) {
            if (!map[l].size)
                continue;
            uint32_t rank = first[l] > map[l].base ? first[l] - map[l].base : 0;
            made[map[l].lane] = rank < map[l].size ? rank : RPI_NEVER;
        }
    }
    rpi_free(map);
    return status;
}
