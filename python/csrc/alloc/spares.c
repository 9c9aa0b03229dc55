/* SPDX-License-Identifier: MIT */
#include "alloc/spares.h"

#include <assert.h>
#include <time.h>

enum { MOST_SPARES = 256, SPARE_MS = 250 };

struct spare {
    uint64_t address, since_ms;
    size_t bytes;
    int ordinal;
    struct CUstream_st *stream;
};

static struct {
    pthread_mutex_t lock;
    struct spare list[MOST_SPARES];
    size_t count;
} spares = {.lock = PTHREAD_MUTEX_INITIALIZER};
/* Read without the lock by allocations that no spare can be for. */
static atomic_size_t spare_count;
static _Thread_local bool spares_frees;

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

bool rpp_spare_keep(uint64_t address, size_t bytes, int ordinal, struct CUstream_st *stream)
{
    assert(address && bytes);
    if (!spares_frees)
        return false;
    struct spare made = {address, now_ms(), bytes, ordinal, stream};
    pthread_mutex_lock(&spares.lock);
    bool room = spares.count < MOST_SPARES;
    if (room)
        spares.list[spares.count++] = made;
    atomic_store(&spare_count, spares.count);
    pthread_mutex_unlock(&spares.lock);
    return room;
}

/* The lock is held. */
static struct spare remove_spare(size_t i)
{
    assert(i < spares.count);
    rpp_assert_held(&spares.lock);
    struct spare removed = spares.list[i];
    spares.list[i] = spares.list[--spares.count];
    atomic_store(&spare_count, spares.count);
    return removed;
}

uint64_t rpp_spare_take(size_t bytes, int ordinal, struct CUstream_st *stream)
{
    uint64_t address = 0;
    if (!atomic_load(&spare_count))
        return 0;
    pthread_mutex_lock(&spares.lock);
    for (size_t i = 0; !address && i < spares.count; i++) {
        const struct spare *spare = &spares.list[i];
        if (spare->bytes == bytes && spare->ordinal == ordinal && spare->stream == stream)
            address = remove_spare(i).address;
    }
    pthread_mutex_unlock(&spares.lock);
    return address;
}

/* One that is old, out of the list; address 0: there is none. */
static struct spare take_old(uint64_t now)
{
    struct spare old = {0};
    pthread_mutex_lock(&spares.lock);
    for (size_t i = 0; !old.address && i < spares.count; i++)
        if (now - spares.list[i].since_ms >= SPARE_MS)
            old = remove_spare(i);
    pthread_mutex_unlock(&spares.lock);
    return old;
}

void rpp_spare_free_old(void)
{
    uint64_t now = now_ms();
    while (atomic_load(&spare_count)) {
        struct spare old = take_old(now);
        struct rp_heap *heap = old.address ? rpp_heap_made(old.ordinal) : NULL;
        if (!heap)
            return;
        rp_heap_free(heap, old.address, NULL);
    }
}

void rpp_spare_frees_here(bool on)
{
    spares_frees = on;
    if (on)
        rpp_spare_free_old();
}
