/* SPDX-License-Identifier: MIT */
#include "graph/capture/word_proof.h"

#include "base/hostmem.h"
#include "base/idmap.h"
#include "base/log.h"
#include "graph/template/param_types.h"
#include "graph/template/params.h"
#include "memory/range/rehearsal_range.h"
#include "reprise_framework.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- Errors -------------------------------------------------------------------------------- */

rp_status rpi_node_diverged(const struct rpi_comparing *c, struct rp_error *err,
                            const char *difference)
{
    char name[160];
    rpi_params_describe(&c->after, c->driver, name, sizeof name);
    return rpi_error(err, RP_ERROR_DIVERGED, "rp_graph_capture",
                     "'%.60s': node %u (%s) differs between two captures of the same work: %s. The "
                     "callable must do the same each time and take every address from its call",
                     c->rehearsal->record.name, c->node, name, difference);
}

rp_status rpi_node_unsupported(const struct rpi_comparing *c, struct rp_error *err, const char *why)
{
    char name[160];
    rpi_params_describe(&c->after, c->driver, name, sizeof name);
    return rpi_error(err, RP_ERROR_UNSUPPORTED, "rp_graph_capture", "'%.60s': node %u (%s): %s",
                     c->rehearsal->record.name, c->node, name, why);
}

static void describe_block(const struct rpi_comparing *c, size_t block, char *text, size_t bytes)
{
    if (block < c->arg_count)
        snprintf(text, bytes, "argument %zu", block);
    else
        snprintf(text, bytes, "block %zu (%" PRIu64 " bytes)", block - c->arg_count,
                 c->rehearsal->blocks.data[block].bytes);
}

/* ---- Addresses ----------------------------------------------------------------------------- */

static const struct rpi_rehearsed *rehearsed(const struct rpi_comparing *c, uint32_t block)
{
    assert(block < c->rehearsal->blocks.count);
    return &c->rehearsal->blocks.data[block];
}

static int order_addresses(const void *left, const void *right, void *user)
{
    const struct rpi_comparing *c = user;
    uint64_t a = rehearsed(c, *(const uint32_t *)left)->address;
    uint64_t b = rehearsed(c, *(const uint32_t *)right)->address;
    return (a > b) - (a < b);
}

rp_status rpi_word_proof_order(struct rpi_comparing *c, struct rp_error *err)
{
    assert(!c->order);
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
static bool find_place(const struct rpi_comparing *c, uint64_t address, size_t *out_place)
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

static bool find_block(const struct rpi_comparing *c, uint64_t address, uint32_t *out_block)
{
    size_t place;
    if (!find_place(c, address, &place))
        return false;
    *out_block = c->order[place];
    return true;
}

/* Does the address lie in a block of the rehearsal, or at its end? */
static bool in_block(const struct rpi_comparing *c, uint64_t address)
{
    uint32_t k;
    return find_block(c, address, &k) &&
           address - rehearsed(c, k)->address <= rehearsed(c, k)->bytes;
}

/* Is `after` to the record's block k what `before` is to the rehearsal's? */
static bool corresponds(const struct rpi_comparing *c, uint32_t k, uint64_t before, uint64_t after)
{
    return k < c->rehearsal->blocks.count && k < c->recorded->addresses.count &&
           before - rehearsed(c, k)->address == after - c->recorded->addresses.data[k];
}

static rp_status doubt(struct rpi_comparing *c, size_t block, struct rp_error *err)
{
    if (block < c->arg_count && !rpi_vec_push(&c->made.doubtful, (uint32_t)block))
        return rpi_error_host_memory(err, "rp_graph_capture", sizeof(uint32_t));
    return RP_OK;
}

/* A word of the record that is no site. Where it could be an argument's address, nobody knows
 * whether it has to move with the argument. */
static rp_status add_unproved(struct rpi_comparing *c, uint64_t after, struct rp_error *err)
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
static bool is_behind(const struct rpi_comparing *c, uint32_t block, uint64_t address)
{
    return address > rehearsed(c, block)->address + rehearsed(c, block)->bytes;
}

/* The block that both words are addresses of, RPI_ABSENT when there is none: the one that holds the
 * address or that it lies behind, or, in the gap between two, the next one. */
static uint32_t match_block(const struct rpi_comparing *c, uint64_t before, uint64_t after)
{
    size_t place;
    if (!find_place(c, before, &place))
        return corresponds(c, c->order[0], before, after) ? c->order[0] : RPI_ABSENT;
    uint32_t k = c->order[place], next = c->order[place + 1];
    if (corresponds(c, k, before, after))
        return k;
    return is_behind(c, k, before) && corresponds(c, next, before, after) ? next : RPI_ABSENT;
}

void rpi_word_proof_explain(struct rpi_comparing *c, uint32_t offset, uint32_t bytes)
{
    if (c->scalars.count && c->after.type == CU_GRAPH_NODE_TYPE_KERNEL)
        rpi_suspects_mark(&c->suspects, offset, bytes, RPI_BYTE_EXPLAINED);
}

static rp_status add_site(struct rpi_comparing *c, uint32_t offset, uint32_t block, uint64_t before,
                          uint64_t after, struct rp_error *err)
{
    assert(corresponds(c, block, before, after));
    rpi_word_proof_explain(c, offset, sizeof before);
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
static bool is_eager(const struct rpi_comparing *c, const struct rpi_field *field, uint64_t address)
{
    return field->kind == RPI_FIELD_VALUE && address - c->eager->base < c->eager->reserved;
}

static uint64_t word_at(const struct rpi_params *params, uint32_t offset)
{
    assert(offset + sizeof(uint64_t) <= params->image.count);
    uint64_t word;
    memcpy(&word, params->image.data + offset, sizeof word);
    return word;
}

/* In a struct it may be what a call before left on the stack, which another capture need not meet
 * there. */
static rp_status survivor(struct rpi_comparing *c, const struct rpi_field *field, uint32_t offset,
                          uint64_t address, struct rp_error *err)
{
    c->made.may_be_left_over =
        field->kind == RPI_FIELD_STRUCT && word_at(&c->before, offset) != address;
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

static enum rpi_touch touch_of(const struct rpi_comparing *c, uint32_t offset)
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
static rp_status add_outside(struct rpi_comparing *c, uint64_t address, struct rp_error *err)
{
    if (!rpi_heaps_have(c->heaps, address) || rpi_vec_push(&c->made.outside, address))
        return RP_OK;
    return rpi_error_host_memory(err, "rp_graph_capture", sizeof address);
}

/* A word that is the same in both captures, so no address that either gave. It is a use of a block
 * that an earlier graph of the sequence keeps, or outlived whatever it was an address of. */
static rp_status compare_foreign(struct rpi_comparing *c, uint32_t offset, uint64_t address,
                                 enum rpi_touch touch, enum certainty certainty,
                                 struct rp_error *err)
{
    struct rpi_foreign foreign;
    rpi_reads_find(c->home, address, &foreign);
    if (foreign.kind == RPI_FOREIGN_KEPT) {
        struct rpi_foreign_use use = {address - c->pool->base, c->node, touch};
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

static rp_status unmatched(const struct rpi_comparing *c, uint32_t offset, uint64_t before,
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
        return rpi_node_diverged(c, err, difference);
    }
    snprintf(difference, sizeof difference,
             "the address at byte %u of its parameters was of %s, and is 0x%" PRIx64 " now", offset,
             block, after);
    return rpi_node_diverged(c, err, difference);
}

/* Is the word as far behind the beginning of a block, or of several, as it was, and behind its end
 * too? Libraries work out where the parts of a workspace would be that a small problem does not
 * need, and tell kernels. Nobody may use memory there, so the record is right as it is; but an
 * argument that it may be computed from stays where it was recorded. */
static rp_status add_behind(struct rpi_comparing *c, uint64_t before, uint64_t after,
                            bool *out_found, struct rp_error *err)
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
static rp_status compare_others(struct rpi_comparing *c, uint32_t offset, uint64_t before,
                                uint64_t after, struct rp_error *err)
{
    bool behind;
    rp_status status = add_behind(c, before, after, &behind, err);
    if (status != RP_OK || behind) {
        rpi_word_proof_explain(c, offset, sizeof before);
        return status;
    }
    if (rpi_rehearsal_range_holds(c->rehearsal_range, before))
        return unmatched(c, offset, before, after, err);
    char difference[128];
    snprintf(difference, sizeof difference,
             "byte %u of its parameters was 0x%" PRIx64 ", and is 0x%" PRIx64 " now", offset,
             before, after);
    return rpi_node_diverged(c, err, difference);
}

/* Does a parameter of one word differ in its padding alone? */
static bool is_padding(const struct rpi_comparing *c, const struct rpi_field *field,
                       uint64_t before, uint64_t after)
{
    return rpi_are_padding(c->driver, &c->after, field, before, after);
}

/* Is it what a capture before these two left in the padding of a struct, or behind what the struct
 * holds? Nothing of theirs is there in the rehearsal. What a callable keeps from call to call is
 * the same in both, and somebody has it. */
static bool is_left_over(const struct rpi_comparing *c, const struct rpi_field *field,
                         uint64_t before, uint64_t after)
{
    if (!rpi_rehearsal_range_holds(c->rehearsal_range, after) || in_block(c, after) ||
        (field->kind != RPI_FIELD_STRUCT && !is_padding(c, field, before, after)))
        return false;
    return before != after || (c->in_use->ask && !c->in_use->ask(after, c->in_use->user));
}

/* ---- Scalars ------------------------------------------------------------------------------- */

static uint64_t bytes_at(const struct rpi_params *params, uint32_t offset, uint32_t bytes)
{
    assert(bytes <= sizeof(uint64_t) && offset + bytes <= params->image.count);
    uint64_t word = 0;
    memcpy(&word, params->image.data + offset, bytes);
    return word;
}

/* Notes the scalar that stands there in 4 or 8 bytes. *out_found: there is one. */
static rp_status find_scalar(struct rpi_comparing *c, uint32_t offset, uint32_t bytes,
                             bool *out_found, struct rp_error *err)
{
    assert(bytes == sizeof(float) || bytes == sizeof(double));
    struct rpi_scalar_site site = {.node = c->node, .offset = offset};
    *out_found = false;
    if (c->after.type != CU_GRAPH_NODE_TYPE_KERNEL)
        return RP_OK;
    *out_found =
        rpi_scalar_table_find(&c->scalars, bytes, bytes_at(&c->before, offset, bytes),
                              bytes_at(&c->after, offset, bytes), &site.scalar, &site.form);
    if (!*out_found)
        return RP_OK;
    rpi_word_proof_explain(c, offset, bytes);
    if (rpi_vec_push(&c->made.scalars, site))
        return RP_OK;
    return rpi_error_host_memory(err, "rp_graph_capture", sizeof site);
}

static bool is_same(const struct rpi_comparing *c, uint32_t offset, uint32_t bytes)
{
    return bytes_at(&c->before, offset, bytes) == bytes_at(&c->after, offset, bytes);
}

/* What may be padding, and differs. Where replays change scalars, judge_suspects asks whether it
 * was computed from them. */
static void add_rubbish(struct rpi_comparing *c)
{
    c->made.sites.rubbish++;
}

/* Is the word a suspect that looks like an address? That it is one is no error then: these captures
 * are not taken. */
static bool may_be_number(const struct rpi_comparing *c, uint32_t offset)
{
    enum { WORD = 8 };
    return c->scalars.count && c->after.type == CU_GRAPH_NODE_TYPE_KERNEL &&
           rpi_rehearsal_range_holds(c->rehearsal_range, bytes_at(&c->after, offset, WORD)) &&
           rpi_suspects_have(&c->suspects, c->earlier, c->earlier_count, offset, WORD);
}

/* The word that differs is a scalar, or a half of it is: the other one may be padding then.
 * *out_found: there is one. */
static rp_status find_scalars(struct rpi_comparing *c, uint32_t offset, bool *out_found,
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
static rp_status compare_end(struct rpi_comparing *c, const struct rpi_field *field,
                             uint32_t offset, struct rp_error *err)
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
static rp_status compare_ends(struct rpi_comparing *c, const struct rpi_field *field,
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
static rp_status compare_word(struct rpi_comparing *c, const struct rpi_field *field,
                              uint32_t offset, struct rp_error *err)
{
    assert(offset % sizeof(uint64_t) == 0);
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
        return survivor(c, field, offset, after, err);
    if (rpi_rehearsal_range_holds(c->rehearsal_range, before)) {
        uint32_t block = match_block(c, before, after);
        if (block != RPI_ABSENT)
            return add_site(c, offset, block, before, after, err);
        if (field->kind != RPI_FIELD_STRUCT && !is_padding(c, field, before, after))
            return compare_others(c, offset, before, after, err);
    }
    if (before == after && field->kind != RPI_FIELD_HOST) {
        rp_status status =
            compare_foreign(c, offset, after, touch_of(c, offset),
                            field->kind == RPI_FIELD_VALUE ? FOREIGN_SURE : FOREIGN_PADDING, err);
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
static rp_status compare_half(struct rpi_comparing *c, uint32_t offset, struct rp_error *err)
{
    assert(offset % sizeof(uint64_t) == sizeof(uint32_t));
    uint64_t before = word_at(&c->before, offset), after = word_at(&c->after, offset);
    if (rpi_rehearsal_range_holds(c->rehearsal_range, after))
        return RP_OK;
    uint32_t block = RPI_ABSENT;
    rp_status status = RP_OK;
    if (rpi_rehearsal_range_holds(c->rehearsal_range, before))
        block = match_block(c, before, after);
    else if (before == after && after - c->pool->base < c->pool->reserved)
        status = compare_foreign(c, offset, after, touch_of(c, offset), FOREIGN_HALF, err);
    else if (before == after)
        status = add_outside(c, after, err);
    if (status != RP_OK)
        return status;
    return block == RPI_ABSENT ? add_unproved(c, after, err)
                               : add_site(c, offset, block, before, after, err);
}

rp_status rpi_word_proof_field(struct rpi_comparing *c, const struct rpi_field *field,
                               struct rp_error *err)
{
    assert(c->before.image.count == c->after.image.count);
    assert(field->offset + field->bytes <= c->after.image.count);
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
        return rpi_node_diverged(c, err, difference);
    }
    return RP_OK;
}

/* ---- Host data ----------------------------------------------------------------------------- */

/* An address in data of the record, as far as somebody else's memory is there. */
static rp_status add_tabled(struct rpi_comparing *c, uint64_t address, struct rp_error *err)
{
    enum { LEAST = 4096, MOST_BITS = 57 };
    if (address < LEAST || address >> MOST_BITS || rpi_staging_holds(c->staging, address))
        return RP_OK;
    if (address - c->pool->base < c->pool->reserved) {
        size_t kept = c->made.foreign.count;
        rp_status status = compare_foreign(c, 0, address, RPI_TOUCH_UNKNOWN, FOREIGN_HALF, err);
        if (status != RP_OK || c->made.foreign.count == kept)
            return status;
    } else if (!is_memory(c->driver, address)) {
        return RP_OK;
    }
    if (!rpi_vec_push(&c->made.tabled, address))
        return rpi_error_host_memory(err, "rp_graph_capture", sizeof address);
    return add_outside(c, address, err);
}

/* Is no word there a number that hangs on a scalar? */
static bool are_apart_from_scalars(const struct rpi_comparing *c, const unsigned char *before,
                                   const unsigned char *after, size_t bytes)
{
    for (size_t offset = 0; offset < bytes; offset += sizeof(uint64_t)) {
        uint64_t was, is;
        size_t end = bytes - offset;
        if (memcmp(before + offset, after + offset, end < sizeof is ? end : sizeof is) == 0)
            continue;
        if (end < sizeof is)
            return false;
        memcpy(&was, before + offset, sizeof was);
        memcpy(&is, after + offset, sizeof is);
        if (!rpi_rehearsal_range_holds(c->rehearsal_range, was) ||
            match_block(c, was, is) == RPI_ABSENT)
            return false;
    }
    return true;
}

rp_status rpi_word_proof_host_data(struct rpi_comparing *c, struct rp_error *err)
{
    enum { HALF = 4 };
    size_t was, bytes;
    size_t number = c->host_copies++;
    const unsigned char *before = rpi_host_data_of(&c->rehearsal->host_data, number, &was);
    const unsigned char *after = rpi_host_data_of(&c->recorded->host_data, number, &bytes);
    assert(was == bytes);
    rp_status status = RP_OK;
    for (size_t offset = 0; status == RP_OK && after && offset + sizeof(uint64_t) <= bytes;
         offset += HALF) {
        uint64_t word;
        memcpy(&word, after + offset, sizeof word);
        status = add_unproved(c, word, err);
        if (status == RP_OK)
            status = add_tabled(c, word, err);
    }
    if (status != RP_OK || !c->scalars.count ||
        (before && after && are_apart_from_scalars(c, before, after, bytes)))
        return status;
    return rpi_node_diverged(c, err,
                             "it copies from the host, where a number may lie that was computed "
                             "from a scalar (rp_call_scalar)");
}
