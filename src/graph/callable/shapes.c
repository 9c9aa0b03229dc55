/* SPDX-License-Identifier: MIT */
#include "graph/callable/shapes.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- Storages ------------------------------------------------------------------------------ */

rp_status rpi_look_reserve(struct rpi_look *look, size_t arg_count, struct rp_error *err)
{
    if (arg_count < look->room)
        return RP_OK;
    size_t room = arg_count + 1; /* none of the arrays is empty */
    struct rpi_look made = {.args = rpi_calloc(room, sizeof *made.args),
                            .places = rpi_calloc(room, sizeof *made.places),
                            .storages = rpi_calloc(room, sizeof *made.storages),
                            .order = rpi_calloc(room, sizeof *made.order),
                            .addresses = rpi_calloc(room, sizeof *made.addresses),
                            .fresh = rpi_calloc(room, sizeof *made.fresh),
                            .room = room};
    if (!made.args || !made.places || !made.storages || !made.order || !made.addresses ||
        !made.fresh) {
        rpi_look_finish(&made);
        return rpi_error_host_memory(err, "rp_callable_call", room * sizeof *made.args);
    }
    rpi_look_finish(look);
    *look = made;
    return RP_OK;
}

void rpi_look_finish(struct rpi_look *look)
{
    rpi_free(look->args);
    rpi_free(look->places);
    rpi_free(look->storages);
    rpi_free(look->order);
    rpi_free(look->addresses);
    rpi_free(look->fresh);
    *look = (struct rpi_look){0};
}

/* Where the argument begins; first of all come those that lie nowhere. */
static uint64_t begin_of(const struct rp_arg *arg)
{
    return arg->bytes ? arg->address : 0;
}

/* By insertion, from the order of the last call on: mostly nothing is to do. */
static void sort_by_address(struct rpi_look *look)
{
    uint32_t *order = look->order;
    if (look->ordered != look->arg_count)
        for (size_t i = 0; i < look->arg_count; i++)
            order[i] = (uint32_t)i;
    look->ordered = look->arg_count;
    for (size_t i = 1; i < look->arg_count; i++) {
        uint32_t moved = order[i];
        size_t j = i;
        for (; j && begin_of(&look->args[order[j - 1]]) > begin_of(&look->args[moved]); j--)
            order[j] = order[j - 1];
        order[j] = moved;
    }
}

/* The arguments order[first .. end) hang together and end at `top`: one storage where one of them
 * is written, else one each. A place's storage is the lowest argument in it, for now. */
static void close_group(struct rpi_look *look, size_t first, size_t end, uint64_t top)
{
    uint32_t lowest = look->order[first];
    bool written = false;
    for (size_t i = first; i < end; i++) {
        uint32_t k = look->order[i];
        lowest = k < lowest ? k : lowest;
        written |= look->args[k].role != RP_ARG_IN;
    }
    uint64_t start = look->args[look->order[first]].address;
    bool one = written && end - first > 1;
    for (size_t i = first; i < end; i++) {
        uint32_t k = look->order[i];
        look->places[k] = (struct rpi_place_in_storage){one ? lowest : k,
                                                        one ? look->args[k].address - start : 0};
    }
    look->joined |= one;
    if (one)
        look->storages[lowest] =
            (struct rp_arg){.address = start, .bytes = top - start, .role = RP_ARG_INOUT};
    else
        for (size_t i = first; i < end; i++)
            look->storages[look->order[i]] = look->args[look->order[i]];
}

static void find_groups(struct rpi_look *look)
{
    size_t first = 0;
    uint64_t top = 0;
    for (size_t i = 0; i < look->arg_count; i++) {
        const struct rp_arg *arg = &look->args[look->order[i]];
        uint64_t begin = begin_of(arg), end = begin ? begin + arg->bytes : 0;
        if (i > first && begin >= top) {
            close_group(look, first, i, top);
            first = i;
            top = 0;
        }
        top = end > top ? end : top;
    }
    if (look->arg_count)
        close_group(look, first, look->arg_count, top);
}

/* Numbers the storages in the order of their lowest arguments, and moves them there. */
static void number_storages(struct rpi_look *look)
{
    assert(look->arg_count < look->room);
    look->storage_count = 0;
    for (uint32_t k = 0; k < look->arg_count; k++) {
        uint32_t lowest = look->places[k].storage;
        if (lowest != k) {
            look->places[k].storage = look->places[lowest].storage;
            continue;
        }
        look->storages[look->storage_count] = look->storages[k];
        look->places[k].storage = (uint32_t)look->storage_count++;
    }
}

/* ---- Hash ---------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 32);
}

/* As rpi_tensor_is compares: strides that say nothing do not count. */
static uint64_t mix_arg(uint64_t hash, const struct rp_arg *arg)
{
    bool empty = false;
    hash = mix(hash, (uint64_t)arg->role << 48 | (uint64_t)arg->dtype << 8 | arg->rank);
    hash = mix(hash, arg->bytes);
    for (uint32_t i = 0; i < arg->rank; i++) {
        hash = mix(hash, (uint64_t)arg->shape[i]);
        empty |= arg->shape[i] == 0;
    }
    uint64_t contiguous = 1;
    for (uint32_t i = arg->rank; !empty && i-- > 0;) {
        if (arg->shape[i] > 1)
            hash = mix(hash, arg->strides ? (uint64_t)arg->strides[i] : contiguous);
        contiguous *= (uint64_t)arg->shape[i];
    }
    return hash;
}

static uint64_t hash_of(const struct rpi_look *look)
{
    uint64_t hash = mix(look->arg_count, look->key_bytes);
    for (size_t k = 0; k < look->arg_count; k++) {
        hash = mix_arg(hash, &look->args[k]);
        if (look->joined)
            hash = mix(mix(hash, look->places[k].storage), look->places[k].offset);
    }
    const unsigned char *key = look->key;
    for (size_t i = 0; i < look->key_bytes; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        size_t left = look->key_bytes - i;
        memcpy(&word, key + i, left < sizeof word ? left : sizeof word);
        hash = mix(hash, word);
    }
    return hash;
}

void rpi_look_at(struct rpi_look *look)
{
    assert(look->arg_count < look->room);
    look->joined = false;
    sort_by_address(look);
    find_groups(look);
    number_storages(look);
    look->hash = hash_of(look);
}

/* ---- The table ----------------------------------------------------------------------------- */

static bool is_shape(const struct rpi_shape *shape, const struct rpi_look *look)
{
    assert(shape->tensors && shape->places);
    if (shape->arg_count != look->arg_count || shape->key_bytes != look->key_bytes ||
        (shape->key_bytes && memcmp(shape->key, look->key, shape->key_bytes) != 0))
        return false;
    for (size_t k = 0; k < shape->arg_count; k++) {
        const struct rpi_place_in_storage *a = &shape->places[k], *b = &look->places[k];
        if (shape->roles[k] != look->args[k].role ||
            shape->tensors[k].bytes != look->args[k].bytes || a->storage != b->storage ||
            a->offset != b->offset || !rpi_tensor_is(&shape->tensors[k], &look->args[k]))
            return false;
    }
    return true;
}

struct rpi_shape *rpi_shapes_find(const struct rpi_shapes *shapes, const struct rpi_look *look)
{
    uint32_t i = rpi_idmap_get(&shapes->by_hash, look->hash);
    while (i != RPI_ABSENT && !is_shape(shapes->all.data[i], look))
        i = shapes->all.data[i]->next;
    return i == RPI_ABSENT ? NULL : shapes->all.data[i];
}

static void free_shape(struct rpi_shape *shape)
{
    for (size_t k = 0; shape->tensors && k < shape->arg_count; k++)
        rpi_tensor_finish(&shape->tensors[k]);
    rpi_free(shape->tensors);
    rpi_free(shape->roles);
    rpi_free(shape->places);
    rpi_free(shape->key);
    rpi_free(shape->text);
    rpi_free(shape->reason);
    rpi_free(shape);
}

/* "float32[64,128], 256 bytes", cut short where it is long; the key is told by its size. */
static char *describe(const struct rpi_shape *shape)
{
    enum { MOST = 2000 };
    char text[MOST + RPI_TENSOR_TEXT + 64];
    size_t used = 0;
    text[0] = 0;
    for (size_t k = 0; k < shape->arg_count && used < MOST; k++) {
        char tensor[RPI_TENSOR_TEXT];
        rpi_tensor_describe(&shape->tensors[k], tensor);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", k ? ", " : "", tensor);
    }
    if (used >= MOST)
        used += (size_t)snprintf(text + used, sizeof text - used, ", ...");
    if (shape->key_bytes)
        snprintf(text + used, sizeof text - used, "%skey of %zu bytes", used ? ", " : "",
                 shape->key_bytes);
    return rpi_strdup(text);
}

static rp_status fill_shape(struct rpi_shape *shape, const struct rpi_look *look,
                            struct rp_error *err)
{
    size_t count = shape->arg_count = look->arg_count;
    shape->tensors = rpi_calloc(count + 1, sizeof *shape->tensors);
    shape->roles = rpi_calloc(count + 1, sizeof *shape->roles);
    shape->places = rpi_calloc(count + 1, sizeof *shape->places);
    shape->key = rpi_malloc(look->key_bytes + 1);
    rp_status status = RP_OK;
    if (!shape->tensors || !shape->roles || !shape->places || !shape->key)
        status = rpi_error_host_memory(err, "rp_callable_call", count * sizeof *shape->tensors);
    for (size_t k = 0; status == RP_OK && k < count; k++) {
        shape->roles[k] = look->args[k].role;
        shape->places[k] = look->places[k];
        status = rpi_tensor_init(&shape->tensors[k], &look->args[k], err);
    }
    if (status != RP_OK)
        return status;
    shape->key_bytes = look->key_bytes;
    if (look->key_bytes)
        memcpy(shape->key, look->key, look->key_bytes);
    shape->text = describe(shape);
    return shape->text ? RP_OK : rpi_error_host_memory(err, "rp_callable_call", 1);
}

rp_status rpi_shapes_add(struct rpi_shapes *shapes, const struct rpi_look *look,
                         struct rpi_shape **out_shape, struct rp_error *err)
{
    assert(!rpi_shapes_find(shapes, look));
    struct rpi_shape *shape = rpi_calloc(1, sizeof *shape);
    if (!shape)
        return rpi_error_host_memory(err, "rp_callable_call", sizeof *shape);
    rp_status status = fill_shape(shape, look, err);
    uint32_t index = (uint32_t)shapes->all.count;
    shape->next = rpi_idmap_get(&shapes->by_hash, look->hash);
    if (status == RP_OK && (!rpi_vec_reserve(&shapes->all, shapes->all.count + 1) ||
                            !rpi_idmap_set(&shapes->by_hash, look->hash, index)))
        status = rpi_error_host_memory(err, "rp_callable_call", sizeof shape);
    if (status != RP_OK) {
        free_shape(shape);
        return status;
    }
    shapes->all.data[shapes->all.count++] = shape;
    assert(rpi_shapes_are_valid(shapes));
    *out_shape = shape;
    return RP_OK;
}

void rpi_shapes_finish(struct rpi_shapes *shapes)
{
    for (size_t i = 0; i < shapes->all.count; i++)
        free_shape(shapes->all.data[i]);
    rpi_vec_finish(&shapes->all);
    rpi_idmap_finish(&shapes->by_hash);
}
