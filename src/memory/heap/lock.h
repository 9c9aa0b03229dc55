/* SPDX-License-Identifier: MIT
 *
 * The lock of a shelf: one atomic exchange to take it, one store to let it go, as that is what
 * nearly every allocation and free pays. Who finds it taken looks again for a while, then lets
 * others run, then sleeps, as it may be held while the driver maps memory or waits for a stream.
 * Not fair, not recursive. A zeroed lock is free.
 */
#ifndef REPRISE_MEMORY_HEAP_LOCK_H
#define REPRISE_MEMORY_HEAP_LOCK_H

#include <stdatomic.h>

struct rpi_heap_lock {
    atomic_int taken;
};

/* Waits until the lock was free once. */
void rpi_heap_lock_wait(struct rpi_heap_lock *lock);

static inline void rpi_heap_lock(struct rpi_heap_lock *lock)
{
    while (atomic_exchange_explicit(&lock->taken, 1, memory_order_acquire))
        rpi_heap_lock_wait(lock);
}

/* Does anybody hold it? For asserts. */
static inline int rpi_heap_is_locked(struct rpi_heap_lock *lock)
{
    return atomic_load_explicit(&lock->taken, memory_order_relaxed);
}

static inline void rpi_heap_unlock(struct rpi_heap_lock *lock)
{
    atomic_store_explicit(&lock->taken, 0, memory_order_release);
}

#endif
