/* SPDX-License-Identifier: MIT */
#include "base/gate.h"

#include "base/held.h"

#include <assert.h>
#include <pthread.h>
#include <stddef.h>

struct rpi_gate_thread {
    struct rpi_gate *waits_for; /* guarded by all.lock; NULL: it runs */
};

/* One of each thread that ever takes a gate: its address is the thread's name. */
static _Thread_local struct rpi_gate_thread self;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t left; /* a gate was left that somebody may wait for */
    atomic_uint waiting; /* threads between announcing themselves and being done with waiting */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .left = PTHREAD_COND_INITIALIZER};

bool rpi_gate_try(struct rpi_gate *gate)
{
    struct rpi_gate_thread *nobody = NULL;
    return atomic_compare_exchange_strong(&gate->holder, &nobody, &self);
}

bool rpi_gate_is_own(const struct rpi_gate *gate)
{
    return atomic_load(&gate->holder) == &self;
}

/* Does the chain of who waits for whom lead from the gate back to this thread? With all.lock held:
 * a thread that waits stays so, and what it holds stays taken, until that is let go. A holder that
 * is running ends the chain. */
static bool leads_back(struct rpi_gate *gate)
{
    rpi_assert_held(&all.lock);
    while (gate) {
        struct rpi_gate_thread *holder = atomic_load(&gate->holder);
        if (holder == &self)
            return true;
        gate = holder ? holder->waits_for : NULL;
    }
    return false;
}

/* With all.lock held and this thread counted as waiting: whoever leaves the gate from now on sees
 * that, takes the lock, and so comes after the wait has begun. */
static enum rpi_gate_answer wait_for(struct rpi_gate *gate)
{
    rpi_assert_held(&all.lock);
    enum rpi_gate_answer answer = RPI_GATE_TAKEN;
    while (answer == RPI_GATE_TAKEN && !rpi_gate_try(gate)) {
        if (leads_back(gate)) {
            answer = RPI_GATE_CIRCLE;
        } else {
            self.waits_for = gate;
            pthread_cond_wait(&all.left, &all.lock);
            self.waits_for = NULL;
        }
    }
    return answer;
}

enum rpi_gate_answer rpi_gate_take(struct rpi_gate *gate)
{
    if (rpi_gate_try(gate))
        return RPI_GATE_TAKEN;
    if (atomic_load(&gate->holder) == &self)
        return RPI_GATE_OWN;
    pthread_mutex_lock(&all.lock);
    atomic_fetch_add(&all.waiting, 1);
    enum rpi_gate_answer answer = wait_for(gate);
    atomic_fetch_sub(&all.waiting, 1);
    pthread_mutex_unlock(&all.lock);
    return answer;
}

void rpi_gate_leave(struct rpi_gate *gate)
{
    assert(rpi_gate_is_own(gate));
    assert(atomic_load(&gate->holder) == &self);
    atomic_store(&gate->holder, NULL);
    if (!atomic_load(&all.waiting))
        return;
    pthread_mutex_lock(&all.lock);
    pthread_cond_broadcast(&all.left);
    pthread_mutex_unlock(&all.lock);
}
