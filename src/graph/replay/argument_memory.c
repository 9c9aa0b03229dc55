/* SPDX-License-Identifier: MIT */
#include "graph/replay/argument_memory.h"

#include "base/held.h"
#include "graph/objects/blocks.h"
#include "graph/objects/objects.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

enum { MOST_KNOWN = 4096 }; /* ranges that are kept; they start over then */

/* What an argument's memory is: what a replay may use, then what it may not. */
enum finding {
    FOUND_FOREIGN,   /* memory of the device, or pinned of the host */
    FOUND_ON_LOAN,   /* memory of another pool, which may give it back at any time */
    FOUND_OWN,       /* a kept block that may be read or written, or the graph's own memory */
    FOUND_STALE,     /* a kept block that does not hold what is to be read */
    FOUND_NO_BLOCK,  /* memory of the pool that no graph keeps for others */
    FOUND_STAGING,   /* where arguments are copied to */
    FOUND_REHEARSED, /* an address of a rehearsal */
    FOUND_EAGER,     /* memory of eager runs */
    FOUND_UNKNOWN,   /* nothing that the driver knows */
    FOUND_ELSEWHERE, /* memory of another device */
    FOUND_UNMAPPED,  /* its end is not mapped */
    FOUND_SHORT,     /* its allocation ends before it does */
    FOUND_ENDLESS,   /* it reaches past the last address */
    FOUND_FAILURE    /* the driver did not answer */
};

/* With what goes with it. */
struct found {
    enum finding is;
    struct rpi_range whole;       /* FOREIGN: around it, all as good; SHORT: its allocation */
    struct rpi_owner owner;       /* EAGER: whose they are */
    struct rpi_block_place place; /* STALE: which */
    uint64_t offset;              /* NO_BLOCK: in the pool */
    int ordinal;                  /* ELSEWHERE: the device's */
    CUresult result;              /* FAILURE */
};

/* ---- Looking ------------------------------------------------------------------------------- */

/* Looks at memory of the pool. Fine are a kept block, to be read when it holds what its graph wrote
 * there, and the graph's own memory, out of which is copied. */
static enum finding look_in_pool(const struct rp_graph *graph, struct rpi_range range, bool read,
                                 struct found *found)
{
    assert(range.from - graph->pool->core->memory.arena.base <
           graph->pool->core->memory.arena.reserved);
    uint64_t base = graph->pool->core->memory.arena.base;
    struct rpi_range in_pool = {range.from - base, range.to - base};
    found->offset = in_pool.from;
    enum rpi_block_state state = rpi_blocks_look(graph->pool, in_pool, read, &found->place);
    if (state == RPI_BLOCK_WHOLE || rpi_ranges_hold(&graph->member.all, in_pool))
        return FOUND_OWN;
    return state == RPI_BLOCK_STALE ? FOUND_STALE : FOUND_NO_BLOCK;
}

static bool ask(const struct rp_driver *driver, void *out, CUpointer_attribute attribute,
                uint64_t address)
{
    return driver->cuPointerGetAttribute(out, attribute, address) == CUDA_SUCCESS;
}

/* An allocation is one piece from its start to its end. Virtual memory is mapped in pieces of the
 * granularity, of which the first and the last are looked at. */
static enum finding look_at_extent(const struct rp_driver *driver, uint64_t granularity,
                                   struct rpi_range range, struct rpi_range *out_whole)
{
    assert(granularity && (granularity & (granularity - 1)) == 0);
    uint64_t size = 0;
    CUdeviceptr start = 0;
    CUcontext context = NULL;
    if (!ask(driver, &context, CU_POINTER_ATTRIBUTE_CONTEXT, range.from) || !context) {
        int mapped = 1;
        if (ask(driver, &mapped, CU_POINTER_ATTRIBUTE_MAPPED, range.to - 1) && !mapped)
            return FOUND_UNMAPPED;
        *out_whole = (struct rpi_range){range.from / granularity * granularity,
                                        rpi_round_up(range.to, granularity)};
        return FOUND_FOREIGN;
    }
    *out_whole = range;
    if (!ask(driver, &start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, range.from) ||
        !ask(driver, &size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, range.from) || range.from < start)
        return FOUND_FOREIGN; /* not told: the address alone was good */
    *out_whole = (struct rpi_range){start, start + size};
    return range.to > start + size ? FOUND_SHORT : FOUND_FOREIGN;
}

/* Asks the driver. Pinned host memory is as good as the device's own. */
static enum finding look_in_driver(const struct rp_pool *pool, struct rpi_range range,
                                   struct found *found)
{
    const struct rp_driver *driver = pool->device->driver;
    unsigned type = 0;
    int mapped = 1;
    found->result =
        driver->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, range.from);
    if (found->result != CUDA_SUCCESS && found->result != CUDA_ERROR_INVALID_VALUE)
        return FOUND_FAILURE;
    if (found->result != CUDA_SUCCESS ||
        (ask(driver, &mapped, CU_POINTER_ATTRIBUTE_MAPPED, range.from) && !mapped))
        return FOUND_UNKNOWN;
    if (type == CU_MEMORYTYPE_DEVICE &&
        ask(driver, &found->ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, range.from) &&
        found->ordinal != (int)pool->device->handle)
        return FOUND_ELSEWHERE;
    return look_at_extent(driver, pool->core->memory.arena.granularity, range, &found->whole);
}

static enum finding look(const struct rp_graph *graph, struct rpi_range range, bool read,
                         struct found *found)
{
    const struct rp_pool *pool = graph->pool;
    enum finding is = FOUND_FOREIGN;
    if (range.to < range.from)
        return FOUND_ENDLESS;
    found->owner = rpi_address_owner(pool, range.from);
    switch (found->owner.kind) {
    case RPI_OWNER_SELF:
        return look_in_pool(graph, range, read, found);
    case RPI_OWNER_STAGING:
        return FOUND_STAGING;
    case RPI_OWNER_REHEARSAL:
        return FOUND_REHEARSED;
    case RPI_OWNER_EAGER:
        return FOUND_EAGER;
    case RPI_OWNER_OTHER:
        is = look_in_driver(pool, range, found);
        return is == FOUND_FOREIGN ? FOUND_ON_LOAN : is;
    case RPI_OWNER_NONE:
        break;
    }
    return look_in_driver(pool, range, found);
}

/* ---- Answering ----------------------------------------------------------------------------- */

/* Why an argument may not be there. */
static void say_why(const struct rp_graph *graph, const struct found *found, char *text,
                    size_t bytes)
{
    char whose[160];
    switch (found->is) {
    case FOUND_STALE:
        snprintf(text, bytes,
                 "lies in block %" PRIu32 " of graph '%.60s', which does not hold what that wrote: "
                 "it was not replayed, or another replay has overwritten it",
                 found->place.block, found->place.graph->name);
        return;
    case FOUND_NO_BLOCK:
        rpi_blocks_describe(graph->pool, found->offset, whose, sizeof whose);
        snprintf(text, bytes, "lies in %s: give memory of your own, or a block that a graph keeps",
                 whose);
        return;
    case FOUND_STAGING:
        snprintf(text, bytes, "lies where arguments of the pool's graphs are copied to");
        return;
    case FOUND_REHEARSED:
        snprintf(text, bytes, "was an address of a rehearsal: the callable kept it");
        return;
    case FOUND_EAGER:
        rpi_owner_describe(&found->owner, whose, sizeof whose);
        snprintf(text, bytes, "lies in %s, which is freed when a run is over", whose);
        return;
    case FOUND_UNKNOWN:
        snprintf(text, bytes,
                 "is no memory that the driver knows: it was given back, or is the host's");
        return;
    case FOUND_ELSEWHERE:
        snprintf(text, bytes, "is memory of device %d, but the graph runs on device %d",
                 found->ordinal, (int)graph->pool->device->handle);
        return;
    case FOUND_UNMAPPED:
        snprintf(text, bytes, "reaches into addresses that no memory is mapped to");
        return;
    case FOUND_SHORT:
        snprintf(text, bytes,
                 "reaches past the end of its allocation of %" PRIu64 " bytes at 0x%" PRIx64,
                 found->whole.to - found->whole.from, found->whole.from);
        return;
    case FOUND_ENDLESS:
        snprintf(text, bytes, "reaches past the last address");
        return;
    case FOUND_FOREIGN:
    case FOUND_ON_LOAN:
    case FOUND_OWN:
    case FOUND_FAILURE:
        break;
    }
    assert(!"a finding that is refused");
}

static rp_status refuse(const struct rp_graph *graph, size_t index, const struct rp_arg *arg,
                        const struct found *found, struct rp_error *err)
{
    char why[320] = "";
    if (found->is == FOUND_FAILURE)
        return rpi_error_driver(err, found->result, "cuPointerGetAttribute",
                                "looking at argument %zu of '%s'", index, graph->name);
    say_why(graph, found, why, sizeof why);
    return rpi_error(err, RP_ERROR_CONTRACT, "rp_graph_replay",
                     "argument %zu of graph '%.60s', %" PRIu64 " bytes at 0x%" PRIx64 ", %s", index,
                     graph->name, arg->bytes, arg->address, why);
}

/* Forgetting is allowed, also for want of memory: the driver is asked again. */
static void remember(struct rpi_ranges *known, struct rpi_range range)
{
    assert(range.from < range.to);
    if (known->count >= MOST_KNOWN)
        known->count = 0;
    (void)rpi_ranges_insert(known, range);
}

/* Does it lie in memory that was looked at before? */
static bool is_known(const struct rp_graph *graph, const struct rp_arg *arg)
{
    struct rpi_range range = {arg->address, arg->address + arg->bytes};
    return range.from < range.to && rpi_ranges_hold(&graph->pool->core->known, range);
}

static rp_status check(struct rp_graph *graph, size_t index, const struct rp_arg *arg,
                       struct rp_error *err)
{
    assert(arg->bytes && index < graph->arg_count);
    struct found found;
    struct rpi_range range = {arg->address, arg->address + arg->bytes};
    found.is = look(graph, range, arg->role != RP_ARG_OUT, &found);
    switch (found.is) {
    case FOUND_FOREIGN:
        remember(&graph->pool->core->known, found.whole);
        graph->contract.accepted[index] = arg->address;
        return RP_OK;
    case FOUND_ON_LOAN:
    case FOUND_OWN:
        return RP_OK;
    default:
        return refuse(graph, index, arg, &found, err);
    }
}

rp_status rpi_check_memory(struct rp_graph *graph, const struct rp_arg *args, struct rp_error *err)
{
    rpi_assert_held(&graph->pool->core->lock);
    rp_status status = RP_OK;
    for (size_t i = 0; status == RP_OK && i < graph->arg_count; i++) {
        uint64_t *accepted = &graph->contract.accepted[i];
        if (!args[i].bytes || args[i].address == *accepted)
            continue;
        if (is_known(graph, &args[i]))
            *accepted = args[i].address;
        else
            status = check(graph, i, &args[i], err);
    }
    return status;
}
