/* SPDX-License-Identifier: MIT */
#include "graph/capture/compare.h"

#include "base/hostmem.h"
#include "base/idmap.h"
#include "base/log.h"
#include "graph/template/param_types.h"
#include "graph/template/params.h"
#include "graph/template/view.h"
#include "memory/range/rehearsal_range.h"
#include "reprise_framework.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct comparing {
    const struct rp_driver *driver;
    const struct rpi_rehearsal_range *rehearsal_range;
    const struct rpi_arena *eager, *pool;
    const struct rpi_staging *staging;
    const struct rp_pool *home;
    struct rpi_heaps *heaps;
    const struct rpi_rehearsal *rehearsal;
    const struct rpi_recorded *recorded;
    const struct rpi_in_use *in_use;
    size_t arg_count;
    uint32_t *order; /* the rehearsal's arguments and blocks by address; RPI_ABSENT ends it */
    struct rpi_params before, after; /* of the node at hand, in rehearsal and record */
    uint32_t node;                   /* its number */
    struct rpi_scalar_table scalars;
    const struct rpi_suspects *earlier; /* of the attempts before */
    size_t earlier_count;
    struct rpi_suspects suspects;
    struct rpi_comparison made;
};

/* ---- Errors -------------------------------------------------------------------------------- */

static rp_status diverged(const struct comparing *c, struct rp_error *err, const char *difference)
{
    char name[160];
    rpi_params_describe(&c->after, c->driver, name, sizeof name);
    return rpi_error(err, RP_ERROR_DIVERGED, "rp_graph_capture",
                     "'%.60s': node %u (%s) differs between two captures of the same work: %s. The "
                     "callable must do the same each time and take every address from its call",
                     c->rehearsal->record.name, c->node, name, difference);
}

static rp_status unsupported(const struct comparing *c, struct rp_error *err, const char *why)
{
    char name[160];
    rpi_params_describe(&c->after, c->driver, name, sizeof name);
    return rpi_error(err, RP_ERROR_UNSUPPORTED, "rp_graph_capture", "'%.60s': node %u (%s): %s",
                     c->rehearsal->record.name, c->node, name, why);
}

static void describe_block(const struct comparing *c, size_t block, char *text, size_t bytes)
{
    if (block < c->arg_count)
        snprintf(text, bytes, "argument %zu", block);
    else
        snprintf(text, bytes, "block %zu (%" PRIu64 " bytes)", block - c->arg_count,
                 c->rehearsal->blocks.data[block].bytes);
}

/* ---- Addresses ----------------------------------------------------------------------------- */

static const struct rpi_rehearsed *rehearsed(const struct comparing *c, uint32_t block)
{
    return &c->rehearsal->blocks.data[block];
}

static int order_addresses(const void *left, const void *right, void *user)
{
    const struct comparing *c = user;
    uint64_t a = rehearsed(c, *(const uint32_t *)left)->address;
    uint64_t b = rehearsed(c, *(const uint32_t *)right)->address;
    return (a > b) - (a < b);
}

static rp_status make_order(struct comparing *c, struct rp_error *err)
{
    uint32_t count = (uint32_t)c->rehearsal->blocks.count;
    c->order = rpi_calloc(count + 1, sizeof *c->order);
    if (!c->order)
        return rpi_error_host_memory(err, "rp_graph_capture", count * sizeof *c->order);
    for (uint32_t i = 0; i < count; i++)
        c->order[i] = i;
    qsort_r(c->order, count, sizeof *c->order, order_addresses, c);
    c->order[count] = RPI_ABSENT;
    return RP_OK;
}

/* Where in the order the last block is that starts at or below the address; false when there is
 * none. */
static bool find_place(const struct comparing *c, uint64_t address, size_t *out_place)
{
    size_t low = 0, high = c->rehearsal->blocks.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (rehearsed(c, c->order[middle])->address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    *out_place = low - 1;
    return low > 0;
}

static bool find_block(const struct comparing *c, uint64_t address, uint32_t *out_block)
{
    size_t place;
    if (!find_place(c, address, &place))
        return false;
    *out_block = c->order[place];
    return true;
}

/* Does the address lie in a block of the rehearsal, or at its end? */
static bool in_block(const struct comparing *c, uint64_t address)
{
    uint32_t k;
    return find_block(c, address, &k) &&
           address - rehearsed(c, k)->address <= rehearsed(c, k)->bytes;
}

/* Is `after` to the record's block k what `before` is to the rehearsal's? */
static bool corresponds(const struct comparing *c, uint32_t k, uint64_t before, uint64_t after)
{
    return k < c->rehearsal->blocks.count && k < c->recorded->addresses.count &&
           before - rehearsed(c, k)->address == after - c->recorded->addresses.data[k];
}

static rp_status doubt(struct comparing *c, size_t block, struct rp_error *err)
{
    if (block < c->arg_count && !rpi_vec_push(&c->made.doubtful, (uint32_t)block))
        return rpi_error_host_memory(err, "rp_graph_capture", sizeof(uint32_t));
    return RP_OK;
}

/* A word of the record that is no site. Where it could be an argument's address, nobody knows
 * whether it has to move with the argument. */
static rp_status add_unproved(struct comparing *c, uint64_t after, struct rp_error *err)
{
    rp_status status = RP_OK;
    if (!rpi_staging_holds(c->staging, after))
        return RP_OK;
    for (uint32_t k = 0; status == RP_OK && k < c->arg_count; k++)
        if (after - c->recorded->addresses.data[k] <= rehearsed(c, k)->bytes)
            status = doubt(c, k, err);
    return status;
}

/* Is the address behind the block's end? */
static bool is_behind(const struct comparing *c, uint32_t block, uint64_t address)
{
    return address > rehearsed(c, block)->address + rehearsed(c, block)->bytes;
}

/* The block that both words are addresses of, RPI_ABSENT when there is none: the one that holds the
 * address or that it lies behind, or, in the gap between two, the next one. */
static uint32_t match_block(const struct comparing *c, uint64_t before, uint64_t after)
{
    size_t place;
    if (!find_place(c, before, &place))
        return corresponds(c, c->order[0], before, after) ? c->order[0] : RPI_ABSENT;
    uint32_t k = c->order[place], next = c->order[place + 1];
    if (corresponds(c, k, before, after))
        return k;
    return is_behind(c, k, before) && corresponds(c, next, before, after) ? next : RPI_ABSENT;
}

/* What stands there is no suspect. */
static void explain(struct comparing *c, uint32_t offset, uint32_t bytes)
{
    if (c->scalars.count && c->after.type == CU_GRAPH_NODE_TYPE_KERNEL)
        rpi_suspects_mark(&c->suspects, offset, bytes, RPI_BYTE_EXPLAINED);
}

static rp_status add_site(struct comparing *c, uint32_t offset, uint32_t block, uint64_t before,
                          uint64_t after, struct rp_error *err)
{
    explain(c, offset, sizeof before);
    uint64_t distance = before - rehearsed(c, block)->address;
    struct rpi_site site = {c->node, offset, block, (int64_t)distance};
    if (!rpi_vec_push(&c->made.sites, site))
        return rpi_error_host_memory(err, "rp_graph_capture", sizeof site);
    /* In the gap behind a block, and as far from the next one in both captures. */
    size_t place;
    if (!find_place(c, before, &place) || c->order[place] != block || !is_behind(c, block, before))
        return RP_OK;
    uint32_t next = c->order[place + 1];
    if (!corresponds(c, next, before, after))
        return RP_OK;
    rp_status status = doubt(c, block, err);
    return status == RP_OK ? doubt(c, next, err) : status;
}

/* A parameter that is one word, and lies where eager runs have their memory. */
static bool is_eager(const struct comparing *c, const struct rpi_field *field, uint64_t address)
{
    return field->kind == RPI_FIELD_VALUE && address - c->eager->base < c->eager->reserved;
}

static uint64_t word_at(const struct rpi_params *params, uint32_t offset)
{
    uint64_t word;
    memcpy(&word, params->image.data + offset, sizeof word);
    return word;
}

static rp_status survivor(const struct comparing *c, uint32_t offset, uint64_t address,
                          struct rp_error *err)
{
    char name[160], block[64] = "an earlier run";
    rpi_params_describe(&c->after, c->driver, name, sizeof name);
    uint32_t k;
    if (in_block(c, address) && find_block(c, address, &k))
        describe_block(c, k, block, sizeof block);
    return rpi_error(
        err, RP_ERROR_CAPTURE, "rp_graph_capture",
        "'%.60s': node %u (%s) uses 0x%" PRIx64 ", which belonged to %s and is free: "
        "the callable kept an address from one call to the next. Take every address "
        "from the call. It stands at byte %u of the node's parameters, where 0x%" PRIx64
        " stood in the rehearsal",
        c->rehearsal->record.name, c->node, name, address, block, offset,
        word_at(&c->before, offset));
}

/* ---- Addresses of others ------------------------------------------------------------------- */

static enum rpi_touch touch_of(const struct comparing *c, uint32_t offset)
{
    if (c->after.type == CU_GRAPH_NODE_TYPE_KERNEL)
        return RPI_TOUCH_UNKNOWN;
    bool reads =
        c->after.type == CU_GRAPH_NODE_TYPE_MEMCPY && offset == offsetof(CUDA_MEMCPY3D, srcDevice);
    return reads ? RPI_TOUCH_READS : RPI_TOUCH_WRITES;
}

enum certainty {
    FOREIGN_SURE,    /* a parameter of its own */
    FOREIGN_PADDING, /* it may be padding, which holds what was on the stack */
    FOREIGN_HALF     /* it may be halves of two others */
};

/* A word that is the same in both captures, and may be an address in a heap: then the graph uses
 * memory there beside its arguments. A word of padding that looks like one counts: what it costs is
 * a graph that is captured anew when a block is freed that it never used. */
static rp_status add_outside(struct comparing *c, uint64_t address, struct rp_error *err)
{
    if (!rpi_heaps_have(c->heaps, address) || rpi_vec_push(&c->made.outside, address))
        return RP_OK;
    return rpi_error_host_memory(err, "rp_graph_capture", sizeof address);
}

/* A word that is the same in both captures, so no address that either gave. It is a use of a block
 * that an earlier graph of the sequence keeps, or outlived whatever it was an address of. */
static rp_status compare_foreign(struct comparing *c, uint32_t offset, uint64_t address,
                                 enum certainty certainty, struct rp_error *err)
{
    struct rpi_foreign foreign;
    rpi_reads_find(c->home, address, &foreign);
    if (foreign.kind == RPI_FOREIGN_KEPT) {
        struct rpi_foreign_use use = {address - c->pool->base, c->node, touch_of(c, offset)};
        return rpi_vec_push(&c->made.foreign, use)
                   ? RP_OK
                   : rpi_error_host_memory(err, "rp_graph_capture", sizeof use);
    }
    if (foreign.kind == RPI_FOREIGN_UNKNOWN || certainty == FOREIGN_HALF)
        return RP_OK;
    char name[160];
    rpi_params_describe(&c->after, c->driver, name, sizeof name);
    if (certainty == FOREIGN_SURE)
        return rpi_error(err, RP_ERROR_CAPTURE, "rp_graph_capture",
                         "'%.60s': node %u (%.100s) uses 0x%" PRIx64
                         ", which is in %s: the callable kept an address from another call. Take "
                         "every address from the call, or give the memory as an argument",
                         c->rehearsal->record.name, c->node, name, address, foreign.text);
    rpi_log(RP_LOG_WARNING,
            "'%.60s': node %u (%.100s) may use 0x%" PRIx64
            ", which is in %s: byte %u of its parameters, which may be padding as well",
            c->rehearsal->record.name, c->node, name, address, foreign.text, offset);
    return RP_OK;
}

/* ---- Parameters ---------------------------------------------------------------------------- */

static rp_status unmatched(const struct comparing *c, uint32_t offset, uint64_t before,
                           uint64_t after, struct rp_error *err)
{
    char difference[192], block[64] = "no block";
    uint32_t k;
    bool found = find_block(c, before, &k);
    if (found)
        describe_block(c, k, block, sizeof block);
    if (found && k < c->recorded->addresses.count &&
        after - c->recorded->addresses.data[k] < rehearsed(c, k)->bytes) {
        snprintf(difference, sizeof difference,
                 "the address at byte %u of its parameters was 0x%" PRIx64
                 " bytes into %s, and is 0x%" PRIx64 " bytes into it now",
                 offset, before - rehearsed(c, k)->address, block,
                 after - c->recorded->addresses.data[k]);
        return diverged(c, err, difference);
    }
    snprintf(difference, sizeof difference,
             "the address at byte %u of its parameters was of %s, and is 0x%" PRIx64 " now", offset,
             block, after);
    return diverged(c, err, difference);
}

/* Is the word as far behind the beginning of a block, or of several, as it was, and behind its end
 * too? Libraries work out where the parts of a workspace would be that a small problem does not
 * need, and tell kernels. Nobody may use memory there, so the record is right as it is; but an
 * argument that it may be computed from stays where it was recorded. */
static rp_status add_behind(struct comparing *c, uint64_t before, uint64_t after, bool *out_found,
                            struct rp_error *err)
{
    static const uint64_t most = 1ull << 30;
    rp_status status = RP_OK;
    *out_found = false;
    for (uint32_t k = 0; status == RP_OK && k < c->rehearsal->blocks.count; k++) {
        if (before - rehearsed(c, k)->address > most || !corresponds(c, k, before, after))
            continue;
        *out_found = true;
        status = doubt(c, k, err);
    }
    return status;
}

/* Does the driver know of device memory there? It may answer for any memory of the host. */
static bool is_memory(const struct rp_driver *driver, uint64_t address)
{
    CUmemorytype type = 0;
    return driver->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
               CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE;
}

/* Is it an address of this process? */
static bool is_host(uint64_t address)
{
    enum { LEAST_PAGE = 4096 };
    unsigned char resident;
    return address >= LEAST_PAGE &&
           mincore((void *)(uintptr_t)(address & ~(uint64_t)(LEAST_PAGE - 1)), 1, &resident) == 0;
}

bool rpi_are_host(const struct rp_driver *driver, uint64_t before, uint64_t after)
{
    return is_host(before) && is_host(after) && !is_memory(driver, after);
}

bool rpi_are_padding(const struct rp_driver *driver, const struct rpi_params *params,
                     const struct rpi_field *field, uint64_t before, uint64_t after)
{
    static const uint64_t padding = 0xffffff00;
    if (before == after || ((before ^ after) & ~padding) != 0 || before >> 32 == 0 ||
        field->kind != RPI_FIELD_VALUE || field->bytes != sizeof before ||
        params->type != CU_GRAPH_NODE_TYPE_KERNEL)
        return false;
    return !is_memory(driver, before) && !is_memory(driver, after) &&
           rpi_param_is_class(driver, params->kernel.func, (size_t)(field - params->fields.data));
}

/* Two words that are not the same, nor addresses in the same block. */
static rp_status compare_others(struct comparing *c, uint32_t offset, uint64_t before,
                                uint64_t after, struct rp_error *err)
{
    bool behind;
    rp_status status = add_behind(c, before, after, &behind, err);
    if (status != RP_OK || behind) {
        explain(c, offset, sizeof before);
        return status;
    }
    if (rpi_rehearsal_range_holds(c->rehearsal_range, before))
        return unmatched(c, offset, before, after, err);
    char difference[128];
    snprintf(difference, sizeof difference,
             "byte %u of its parameters was 0x%" PRIx64 ", and is 0x%" PRIx64 " now", offset,
             before, after);
    return diverged(c, err, difference);
}

/* Does a parameter of one word differ in its padding alone? */
static bool is_padding(const struct comparing *c, const struct rpi_field *field, uint64_t before,
                       uint64_t after)
{
    return rpi_are_padding(c->driver, &c->after, field, before, after);
}

/* Is it what a capture before these two left in the padding of a struct, or behind what the struct
 * holds? Nothing of theirs is there in the rehearsal. What a callable keeps from call to call is
 * the same in both, and somebody has it. */
static bool is_left_over(const struct comparing *c, const struct rpi_field *field, uint64_t before,
                         uint64_t after)
{
    if (!rpi_rehearsal_range_holds(c->rehearsal_range, after) || in_block(c, after) ||
        (field->kind != RPI_FIELD_STRUCT && !is_padding(c, field, before, after)))
        return false;
    return before != after || (c->in_use->ask && !c->in_use->ask(after, c->in_use->user));
}

/* ---- Scalars ------------------------------------------------------------------------------- */

static uint64_t bytes_at(const struct rpi_params *params, uint32_t offset, uint32_t bytes)
{
    uint64_t word = 0;
    memcpy(&word, params->image.data + offset, bytes);
    return word;
}

/* Notes the scalar that stands there in 4 or 8 bytes. *out_found: there is one. */
static rp_status find_scalar(struct comparing *c, uint32_t offset, uint32_t bytes, bool *out_found,
                             struct rp_error *err)
{
    struct rpi_scalar_site site = {.node = c->node, .offset = offset};
    *out_found = false;
    if (c->after.type != CU_GRAPH_NODE_TYPE_KERNEL)
        return RP_OK;
    *out_found =
        rpi_scalar_table_find(&c->scalars, bytes, bytes_at(&c->before, offset, bytes),
                              bytes_at(&c->after, offset, bytes), &site.scalar, &site.form);
    if (!*out_found)
        return RP_OK;
    explain(c, offset, bytes);
    if (rpi_vec_push(&c->made.scalars, site))
        return RP_OK;
    return rpi_error_host_memory(err, "rp_graph_capture", sizeof site);
}

static bool is_same(const struct comparing *c, uint32_t offset, uint32_t bytes)
{
    return bytes_at(&c->before, offset, bytes) == bytes_at(&c->after, offset, bytes);
}

/* What may be padding, and differs. Where replays change scalars, judge_suspects asks whether it
 * was computed from them. */
static void add_rubbish(struct comparing *c)
{
    c->made.sites.rubbish++;
}

/* Is the word a suspect that looks like an address? That it is one is no error then: these captures
 * are not taken. */
static bool may_be_number(const struct comparing *c, uint32_t offset)
{
    enum { WORD = 8 };
    return c->scalars.count && c->after.type == CU_GRAPH_NODE_TYPE_KERNEL &&
           rpi_rehearsal_range_holds(c->rehearsal_range, bytes_at(&c->after, offset, WORD)) &&
           rpi_suspects_have(&c->suspects, c->earlier, c->earlier_count, offset, WORD);
}

/* The word that differs is a scalar, or a half of it is: the other one may be padding then.
 * *out_found: there is one. */
static rp_status find_scalars(struct comparing *c, uint32_t offset, bool *out_found,
                              struct rp_error *err)
{
    enum { HALF = 4 };
    bool low = false, high = false;
    rp_status status = find_scalar(c, offset, 2 * HALF, out_found, err);
    if (status != RP_OK || *out_found)
        return status;
    status = find_scalar(c, offset, HALF, &low, err);
    if (status == RP_OK)
        status = find_scalar(c, offset + HALF, HALF, &high, err);
    *out_found = low || high;
    if (status == RP_OK && low != high && !is_same(c, offset + (low ? HALF : 0), HALF))
        add_rubbish(c);
    return status;
}

/* The 4 bytes at an end of a field that no whole word has. */
static rp_status compare_end(struct comparing *c, const struct rpi_field *field, uint32_t offset,
                             struct rp_error *err)
{
    enum { HALF = 4 };
    bool found;
    if (!c->scalars.count || field->kind == RPI_FIELD_HOST || is_same(c, offset, HALF))
        return RP_OK;
    rp_status status = find_scalar(c, offset, HALF, &found, err);
    if (status == RP_OK && !found)
        add_rubbish(c);
    return status;
}

/* Both ends of a struct, or of one that is as large as a word and lies across two. */
static rp_status compare_ends(struct comparing *c, const struct rpi_field *field,
                              struct rp_error *err)
{
    enum { WORD = 8, HALF = 4 };
    uint32_t end = field->offset + field->bytes, tail = end & ~(uint32_t)(WORD - 1);
    rp_status status = RP_OK;
    if (field->offset % WORD == HALF && field->bytes >= HALF)
        status = compare_end(c, field, field->offset, err);
    if (status == RP_OK && tail >= field->offset && end - tail >= HALF)
        status = compare_end(c, field, tail, err);
    return status;
}

/* ---- Parameters, word by word -------------------------------------------------------------- */

/* A word at a place where a pointer can be aligned. What looks like an address of the rehearsal in
 * a struct, and not like the record's, may be what an earlier call left on the stack, or bytes of
 * that behind others that mean something (PyTorch's tables of tensors): no argument that the
 * record's word could belong to is bound then, and the record is right as it is. */
static rp_status compare_word(struct comparing *c, const struct rpi_field *field, uint32_t offset,
                              struct rp_error *err)
{
    uint64_t before = word_at(&c->before, offset), after = word_at(&c->after, offset);
    bool found = false;
    if (c->scalars.count && before != after) {
        rp_status status = find_scalars(c, offset, &found, err);
        if (status != RP_OK || found)
            return status;
    }
    if (is_left_over(c, field, before, after)) {
        c->made.sites.rubbish++;
        return add_unproved(c, after, err);
    }
    if (field->kind == RPI_FIELD_STRUCT && may_be_number(c, offset))
        return RP_OK;
    if (rpi_rehearsal_range_holds(c->rehearsal_range, after) || is_eager(c, field, after))
        return survivor(c, offset, after, err);
    if (rpi_rehearsal_range_holds(c->rehearsal_range, before)) {
        uint32_t block = match_block(c, before, after);
        if (block != RPI_ABSENT)
            return add_site(c, offset, block, before, after, err);
        if (field->kind != RPI_FIELD_STRUCT && !is_padding(c, field, before, after))
            return compare_others(c, offset, before, after, err);
    }
    if (before == after && field->kind != RPI_FIELD_HOST) {
        rp_status status = compare_foreign(
            c, offset, after, field->kind == RPI_FIELD_VALUE ? FOREIGN_SURE : FOREIGN_PADDING, err);
        if (status == RP_OK)
            status = add_outside(c, after, err);
        return status == RP_OK ? add_unproved(c, after, err) : status;
    }
    if (field->kind == RPI_FIELD_HOST)
        return add_unproved(c, after, err);
    bool host = field->kind == RPI_FIELD_VALUE && field->bytes == 8 &&
                rpi_are_host(c->driver, before, after);
    if (field->kind == RPI_FIELD_STRUCT || host || is_padding(c, field, before, after)) {
        add_rubbish(c);
        return add_unproved(c, after, err);
    }
    return compare_others(c, offset, before, after, err);
}

/* A packed struct can hold a pointer at a multiple of 4. Two halves of other words look like one
 * now and then, so only what both captures prove counts, and nothing else is an error. */
static rp_status compare_half(struct comparing *c, uint32_t offset, struct rp_error *err)
{
    uint64_t before = word_at(&c->before, offset), after = word_at(&c->after, offset);
    if (rpi_rehearsal_range_holds(c->rehearsal_range, after))
        return RP_OK;
    uint32_t block = RPI_ABSENT;
    rp_status status = RP_OK;
    if (rpi_rehearsal_range_holds(c->rehearsal_range, before))
        block = match_block(c, before, after);
    else if (before == after && after - c->pool->base < c->pool->reserved)
        status = compare_foreign(c, offset, after, FOREIGN_HALF, err);
    else if (before == after)
        status = add_outside(c, after, err);
    if (status != RP_OK)
        return status;
    return block == RPI_ABSENT ? add_unproved(c, after, err)
                               : add_site(c, offset, block, before, after, err);
}

static rp_status compare_field(struct comparing *c, const struct rpi_field *field,
                               struct rp_error *err)
{
    uint32_t end = field->offset + field->bytes, offset = (field->offset + 7u) & ~7u;
    rp_status status = RP_OK;
    for (; status == RP_OK && offset + 8 <= end; offset += 8)
        status = compare_word(c, field, offset, err);
    if (field->kind == RPI_FIELD_STRUCT)
        for (uint32_t half = (field->offset + 3u) & ~3u; status == RP_OK && half + 8 <= end;
             half += 4)
            if (half % 8 != 0)
                status = compare_half(c, half, err);
    if (status == RP_OK && field->bytes >= 8)
        status = compare_ends(c, field, err);
    /* One byte is mostly an empty struct of C++ (a functor), given as whatever the stack held. */
    if (status != RP_OK || field->kind != RPI_FIELD_VALUE || field->bytes >= 8 || field->bytes == 1)
        return status;
    bool found = false;
    if (field->bytes == sizeof(float))
        status = find_scalar(c, field->offset, field->bytes, &found, err);
    if (status != RP_OK || found)
        return status;
    if (memcmp(c->before.image.data + field->offset, c->after.image.data + field->offset,
               field->bytes) != 0) {
        char difference[96];
        snprintf(difference, sizeof difference, "the %u bytes at byte %u of its parameters changed",
                 field->bytes, field->offset);
        return diverged(c, err, difference);
    }
    return RP_OK;
}

/* ---- Nodes --------------------------------------------------------------------------------- */

static const char *attributes_differ(const struct rp_driver *driver, CUgraphNode before,
                                     CUgraphNode after)
{
    static const struct {
        CUkernelNodeAttrID id;
        size_t bytes;
        const char *name;
    } attributes[] = {
        {CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 12, "its cluster size changed"},
        {CU_LAUNCH_ATTRIBUTE_COOPERATIVE, sizeof(int), "whether it is cooperative changed"},
        {CU_LAUNCH_ATTRIBUTE_PRIORITY, sizeof(int), "its priority changed"},
    };
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        CUkernelNodeAttrValue a = {{0}}, b = {{0}};
        CUresult first = driver->cuGraphKernelNodeGetAttribute(before, attributes[i].id, &a);
        CUresult second = driver->cuGraphKernelNodeGetAttribute(after, attributes[i].id, &b);
        if (first == CUDA_SUCCESS && second == CUDA_SUCCESS &&
            memcmp(&a, &b, attributes[i].bytes) != 0)
            return attributes[i].name;
    }
    return NULL;
}

const char *rpi_kernels_differ(const struct rp_driver *driver, const struct rpi_params *before,
                               const struct rpi_params *after, CUgraphNode node_before,
                               CUgraphNode node_after)
{
    const CUDA_KERNEL_NODE_PARAMS *a = &before->kernel, *b = &after->kernel;
    if (a->func != b->func || a->kern != b->kern)
        return "it was another kernel";
    if (a->gridDimX != b->gridDimX || a->gridDimY != b->gridDimY || a->gridDimZ != b->gridDimZ)
        return "its grid changed";
    if (a->blockDimX != b->blockDimX || a->blockDimY != b->blockDimY ||
        a->blockDimZ != b->blockDimZ)
        return "its block size changed";
    if (a->sharedMemBytes != b->sharedMemBytes)
        return "its shared memory changed";
    return attributes_differ(driver, node_before, node_after);
}

static rp_status compare_kernels(struct comparing *c, CUgraphNode before, CUgraphNode after,
                                 struct rp_error *err)
{
    const char *difference = rpi_kernels_differ(c->driver, &c->before, &c->after, before, after);
    if (difference)
        return diverged(c, err, difference);
    if (c->after.kernel.kernelParams && !(c->driver->capabilities & RPI_CAP_PARAM_INFO))
        return unsupported(c, err,
                           "this driver does not tell the sizes of a kernel's parameters, so that "
                           "they cannot be compared. A driver of CUDA 12.4 or later does; "
                           "parameters in one packed buffer work with this one too");
    return RP_OK;
}

static rp_status compare_graphs(struct comparing *c, CUgraph before, CUgraph after,
                                size_t *out_nodes, size_t *out_edges, struct rp_error *err);

/* Nodes whose parameters are not all read could hold addresses that nobody compares: none is taken
 * on trust. */
static rp_status check_type(const struct comparing *c, struct rp_error *err)
{
    switch (c->after.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return RP_OK;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return unsupported(c, err,
                           "memory of the driver's own pools cannot be planned. Allocate with "
                           "rp_call_alloc and free with rp_call_free");
    default:
        return unsupported(c, err,
                           "what a node of this type uses cannot be compared between two captures. "
                           "Do this work outside the callable");
    }
}

static bool is_event(CUgraphNodeType type)
{
    return type == CU_GRAPH_NODE_TYPE_WAIT_EVENT || type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
}

static CUevent event_of(const struct rpi_params *params)
{
    CUevent event;
    memcpy(&event, params->image.data, sizeof event);
    return event;
}

/* Does the node copy from memory of the host? A number that was computed from a scalar may lie
 * there. */
static bool copies_from_host(const struct rpi_params *params)
{
    CUDA_MEMCPY3D copy;
    if (params->type != CU_GRAPH_NODE_TYPE_MEMCPY)
        return false;
    memcpy(&copy, params->image.data, sizeof copy);
    return copy.srcMemoryType == CU_MEMORYTYPE_HOST;
}

/* Its parameters are suspects, as far as nothing explains them. What lies between two is padding.
 */
static rp_status suspect_kernel(struct comparing *c, struct rp_error *err)
{
    enum { WORD = 8 };
    uint32_t bytes = (uint32_t)c->after.image.count, end = 0;
    bool tells_fields = (c->driver->capabilities & RPI_CAP_PARAM_INFO) && c->after.kernel.func;
    if (!rpi_suspects_add(&c->suspects, c->after.kernel.func, c->node, c->before.image.data,
                          c->after.image.data, bytes))
        return rpi_error_host_memory(err, "rp_graph_capture", bytes);
    for (size_t i = 0; i < c->after.fields.count; i++) {
        const struct rpi_field *field = &c->after.fields.data[i];
        if (field->offset > end)
            explain(c, end, field->offset - end);
        if (tells_fields && field->bytes >= WORD)
            rpi_suspects_mark(&c->suspects, field->offset, field->bytes, RPI_BYTE_OF_STRUCT);
        end = field->offset + field->bytes;
    }
    if (end < bytes)
        explain(c, end, bytes - end);
    return RP_OK;
}

static rp_status compare_node(struct comparing *c, CUgraphNode before, CUgraphNode after,
                              struct rp_error *err)
{
    rp_status status = rpi_params_read(&c->before, c->driver, before, err);
    if (status == RP_OK)
        status = rpi_params_read(&c->after, c->driver, after, err);
    if (status != RP_OK)
        return status;
    if (c->before.type != c->after.type)
        return diverged(c, err, "it was of another type");
    status = check_type(c, err);
    if (status == RP_OK && c->after.type == CU_GRAPH_NODE_TYPE_KERNEL)
        status = compare_kernels(c, before, after, err);
    if (status == RP_OK && is_event(c->after.type) && event_of(&c->before) != event_of(&c->after))
        status = diverged(c, err, "it was another event. Create it outside of the callable");
    if (status == RP_OK && (c->before.image.count != c->after.image.count ||
                            c->before.fields.count != c->after.fields.count))
        status = diverged(c, err, "the size of its parameters changed");
    if (status == RP_OK && c->scalars.count && c->after.type == CU_GRAPH_NODE_TYPE_KERNEL)
        status = suspect_kernel(c, err);
    for (size_t i = 0; status == RP_OK && i < c->after.fields.count; i++)
        status = compare_field(c, &c->after.fields.data[i], err);
    if (status == RP_OK && c->scalars.count && copies_from_host(&c->after))
        status =
            diverged(c, err,
                     "it copies from the host, where a number may lie that was computed from a "
                     "scalar (rp_call_scalar)");
    c->made.hidden |= c->after.hidden;
    CUgraph child_before = c->before.child, child_after = c->after.child;
    size_t nodes, edges;
    c->node++;
    if (status == RP_OK && child_after)
        status = compare_graphs(c, child_before, child_after, &nodes, &edges, err);
    return status;
}

/* ---- Graphs -------------------------------------------------------------------------------- */

static rp_status compare_counts(const struct comparing *c, const char *what, size_t before,
                                size_t after, struct rp_error *err)
{
    if (before == after)
        return RP_OK;
    return rpi_error(err, RP_ERROR_DIVERGED, "rp_graph_capture",
                     "'%.60s': the first capture has %zu %s, the second %zu. The callable must do "
                     "the same each time",
                     c->rehearsal->record.name, before, what, after);
}

static rp_status compare_edges(const struct comparing *c, const struct rpi_template_view *before,
                               const struct rpi_template_view *after, struct rp_error *err)
{
    for (size_t i = 0; i < after->edge_count; i++) {
        const struct rpi_edge *edge = &after->edges[i];
        if (rpi_edge_compare(&before->edges[i], edge) != 0)
            return rpi_error(err, RP_ERROR_DIVERGED, "rp_graph_capture",
                             "'%.60s': the edge from node %u to node %u is not the same in two "
                             "captures of the same work. The callable must do the same each time",
                             c->rehearsal->record.name, edge->from, edge->to);
    }
    return RP_OK;
}

static rp_status compare_views(struct comparing *c, const struct rpi_template_view *before,
                               const struct rpi_template_view *after, struct rp_error *err)
{
    /* Nodes first, as far as both go: the first node that differs says more than a count. */
    size_t count = before->node_count < after->node_count ? before->node_count : after->node_count;
    rp_status status = RP_OK;
    for (size_t i = 0; status == RP_OK && i < count; i++)
        status = compare_node(c, before->nodes[i], after->nodes[i], err);
    if (status == RP_OK)
        status = compare_counts(c, "nodes", before->node_count, after->node_count, err);
    if (status == RP_OK)
        status = compare_counts(c, "edges", before->edge_count, after->edge_count, err);
    if (status == RP_OK)
        status = compare_edges(c, before, after, err);
    return status;
}

static rp_status compare_graphs(struct comparing *c, CUgraph before, CUgraph after,
                                size_t *out_nodes, size_t *out_edges, struct rp_error *err)
{
    struct rpi_template_view first = {0}, second = {0};
    rp_status status = rpi_view_read(&first, c->driver, before, err);
    if (status == RP_OK)
        status = rpi_view_read(&second, c->driver, after, err);
    if (status == RP_OK)
        status = compare_views(c, &first, &second, err);
    *out_nodes = second.node_count;
    *out_edges = second.edge_count;
    rpi_view_finish(&first);
    rpi_view_finish(&second);
    return status;
}

static rp_status compare_named(const struct rpi_rehearsal *rehearsal, const char *what,
                               const char *function, size_t before, size_t after,
                               struct rp_error *err)
{
    if (before == after)
        return RP_OK;
    return rpi_error(err, RP_ERROR_DIVERGED, "rp_graph_capture",
                     "'%.60s': the callable named %zu %s (%s), and %zu in its rehearsal. It must "
                     "name the same in each run",
                     rehearsal->record.name, after, what, function, before);
}

/* Nothing else differs: what is suspect does. */
static rp_status judge_suspects(struct comparing *c, struct rp_error *err)
{
    enum { UNIT = 4 };
    struct rpi_suspect first;
    if (!rpi_suspects_complete(&c->suspects, c->earlier, c->earlier_count, &first))
        return RP_OK;
    uint32_t offset = first.offset & ~(uint32_t)(UNIT - 1), words[RPI_RUNS] = {0};
    uint32_t bytes = first.node->bytes - offset < UNIT ? first.node->bytes - offset : UNIT;
    for (size_t run = 0; run < RPI_RUNS; run++)
        memcpy(&words[run], c->suspects.images[run].data + first.node->first + offset, bytes);
    char difference[224];
    snprintf(difference, sizeof difference,
             "the number at byte %u of its parameters was 0x%" PRIx32 ", and is 0x%" PRIx32
             " now%s, which is no form of a scalar that was named (rp_call_scalar)",
             offset, words[0], words[1], words[0] == words[1] ? " and was another before" : "");
    c->node = first.node->node;
    c->after.type = CU_GRAPH_NODE_TYPE_KERNEL;
    c->after.kernel.func = (CUfunction)first.node->kernel;
    return diverged(c, err, difference);
}

rp_status rpi_compare(const struct rp_pool *pool, const struct rpi_rehearsal *rehearsal,
                      const struct rpi_recorded *recorded, size_t arg_count,
                      const struct rpi_in_use *in_use, const struct rpi_suspects *earlier,
                      size_t earlier_count, struct rpi_suspects *out_suspects,
                      struct rpi_comparison *out_comparison, struct rp_error *err)
{
    struct comparing c = {.driver = pool->device->driver,
                          .rehearsal_range = &pool->device->rehearsal_range,
                          .eager = &pool->core->eager,
                          .pool = &pool->core->memory.arena,
                          .staging = &pool->core->staging,
                          .home = pool,
                          .heaps = &pool->device->heaps,
                          .rehearsal = rehearsal,
                          .recorded = recorded,
                          .in_use = in_use,
                          .earlier = earlier,
                          .earlier_count = earlier_count,
                          .arg_count = arg_count};
    rp_status status = make_order(&c, err);
    if (status == RP_OK && !rpi_suspects_init(&c.suspects, &rehearsal->scalars, &recorded->scalars))
        status = rpi_error_host_memory(err, "rp_graph_capture",
                                       rehearsal->scalars.count * sizeof(double));
    if (status == RP_OK)
        status = compare_named(rehearsal, "scalars", "rp_call_scalar", rehearsal->scalars.count,
                               recorded->scalars.count, err);
    if (status == RP_OK)
        status = rpi_scalar_table_init(&c.scalars, &rehearsal->scalars, &recorded->scalars, err);
    if (status == RP_OK)
        status = compare_graphs(&c, rehearsal->template, recorded->template, &c.made.nodes,
                                &c.made.edges, err);
    if (status == RP_OK)
        status = compare_named(rehearsal, "values", "rp_call_value", rehearsal->values,
                               recorded->values.count, err);
    if (status == RP_OK)
        status = judge_suspects(&c, err);
    *out_suspects = c.suspects;
    rpi_scalar_table_finish(&c.scalars);
    rpi_free(c.order);
    rpi_params_finish(&c.before);
    rpi_params_finish(&c.after);
    if (status == RP_OK)
        *out_comparison = c.made;
    else
        rpi_comparison_finish(&c.made);
    return status;
}

void rpi_comparison_finish(struct rpi_comparison *comparison)
{
    rpi_vec_finish(&comparison->sites);
    rpi_vec_finish(&comparison->scalars);
    rpi_vec_finish(&comparison->doubtful);
    rpi_vec_finish(&comparison->foreign);
    rpi_vec_finish(&comparison->outside);
}
