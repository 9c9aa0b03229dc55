/* SPDX-License-Identifier: MIT
 *
 * The set of living handles, so that a stale or foreign one is an error and not a crash: a hash
 * table with open addressing and backward-shift deletion (Knuth, volume 3, 6.4, algorithm R), at
 * most half full. A question costs one expected probe.
 */
#include "driver/host/state.h"

static size_t home_of(const void *pointer, size_t capacity)
{
    uint64_t x = (uint64_t)(uintptr_t)pointer * 0x9e3779b97f4a7c15u;
    return (size_t)(x >> 32) & (capacity - 1);
}

static void insert(struct rpi_host_handle *slots, size_t capacity, struct rpi_host_handle handle)
{
    size_t i = home_of(handle.pointer, capacity);
    while (slots[i].pointer)
        i = (i + 1) & (capacity - 1);
    slots[i] = handle;
}

static bool grow(struct rpi_host_handles *handles)
{
    size_t capacity = handles->capacity ? handles->capacity * 2 : 256;
    struct rpi_host_handle *slots = rpi_calloc(capacity, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < handles->capacity; i++)
        if (handles->slots[i].pointer)
            insert(slots, capacity, handles->slots[i]);
    rpi_free(handles->slots);
    handles->slots = slots;
    handles->capacity = capacity;
    return true;
}

static size_t find(const struct rpi_host_handles *handles, const void *pointer)
{
    size_t i = home_of(pointer, handles->capacity);
    while (handles->slots[i].pointer && handles->slots[i].pointer != pointer)
        i = (i + 1) & (handles->capacity - 1);
    return i;
}

bool rpi_host_handle_add(const void *pointer, enum rpi_host_kind kind)
{
    rpi_assert_held(&rpi_host.lock);
    struct rpi_host_handles *handles = &rpi_host.handles;
    if (2 * (handles->count + 1) > handles->capacity && !grow(handles))
        return false;
    insert(handles->slots, handles->capacity, (struct rpi_host_handle){pointer, kind});
    handles->count++;
    return true;
}

void rpi_host_handle_remove(const void *pointer)
{
    rpi_assert_held(&rpi_host.lock);
    struct rpi_host_handles *handles = &rpi_host.handles;
    if (handles->capacity == 0)
        return;
    size_t mask = handles->capacity - 1, hole = find(handles, pointer);
    if (!handles->slots[hole].pointer)
        return;
    for (size_t i = (hole + 1) & mask; handles->slots[i].pointer; i = (i + 1) & mask) {
        /* An entry may move into the hole unless its home lies behind the hole. */
        size_t home = home_of(handles->slots[i].pointer, handles->capacity);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            handles->slots[hole] = handles->slots[i];
            hole = i;
        }
    }
    handles->slots[hole].pointer = NULL;
    handles->count--;
}

bool rpi_host_handle_is(const void *pointer, enum rpi_host_kind kind)
{
    rpi_assert_held(&rpi_host.lock);
    const struct rpi_host_handles *handles = &rpi_host.handles;
    if (!pointer || handles->capacity == 0)
        return false;
    const struct rpi_host_handle *slot = &handles->slots[find(handles, pointer)];
    return slot->pointer && slot->kind == kind;
}

void *rpi_host_handle_find(enum rpi_host_kind kind, bool (*is)(const void *, const void *),
                           const void *of)
{
    rpi_assert_held(&rpi_host.lock);
    const struct rpi_host_handles *handles = &rpi_host.handles;
    for (size_t i = 0; i < handles->capacity; i++)
        if (handles->slots[i].pointer && handles->slots[i].kind == kind &&
            (!is || is(handles->slots[i].pointer, of)))
            return (void *)(uintptr_t)handles->slots[i].pointer;
    return NULL;
}

void *rpi_host_handle_any(enum rpi_host_kind kind)
{
    rpi_assert_held(&rpi_host.lock);
    return rpi_host_handle_find(kind, NULL, NULL);
}

void rpi_host_handles_finish(void)
{
    rpi_assert_held(&rpi_host.lock);
    rpi_free(rpi_host.handles.slots);
    rpi_host.handles = (struct rpi_host_handles){0};
}
