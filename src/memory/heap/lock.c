/* SPDX-License-Identifier: MIT */
#include "memory/heap/lock.h"

#include <sched.h>
#include <time.h>

void rpi_heap_lock_wait(struct rpi_heap_lock *lock)
{
    enum { LOOKS = 100, YIELDS = 20 };
    for (int round = 0;; round++) {
        for (int look = 0; look < LOOKS; look++)
            if (!atomic_load_explicit(&lock->taken, memory_order_relaxed))
                return;
        if (round < YIELDS)
            sched_yield();
        else
            nanosleep(&(struct timespec){0, 50000}, NULL);
    }
}
