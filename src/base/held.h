/* SPDX-License-Identifier: MIT
 *
 * What a debug build asserts of locks: somebody holds this one. That is cheap and knows no thread,
 * so it finds a lock that nobody took, not one that another thread has.
 */
#ifndef REPRISE_BASE_HELD_H
#define REPRISE_BASE_HELD_H

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>

#ifdef NDEBUG
#define rpi_assert_held(lock) ((void)sizeof(lock))
#else
#define rpi_assert_held(lock) assert(rpi_is_held((pthread_mutex_t *)(lock)))

static inline bool rpi_is_held(pthread_mutex_t *lock)
{
    if (pthread_mutex_trylock(lock) != 0)
        return true;
    pthread_mutex_unlock(lock);
    return false;
}
#endif

#endif
