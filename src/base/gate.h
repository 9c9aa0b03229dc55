/* SPDX-License-Identifier: MIT
 *
 * A lock that is held while code of others runs, which may ask for more such locks, in any order.
 *
 * A thread that would wait for itself, or for one that waits for it, over any number of others, is
 * told so and gets no lock: a deadlock becomes an error. As no thread waits in a mutex while it
 * holds another, there is no order of locks to keep, and none for a sanitizer to find broken.
 *
 * Taking a free gate is one exchange of an atomic word. Who finds it taken goes through the
 * process's list of waiting threads, under one mutex, which is held for that look only.
 */
#ifndef REPRISE_BASE_GATE_H
#define REPRISE_BASE_GATE_H

#include <stdatomic.h>
#include <stdbool.h>

struct rpi_gate_thread;

/* All zero: free. Needs no destruction, but nobody may hold it or wait for it then. */
struct rpi_gate {
    _Atomic(struct rpi_gate_thread *) holder;
};

enum rpi_gate_answer {
    RPI_GATE_TAKEN,
    RPI_GATE_OWN,   /* the calling thread holds it already */
    RPI_GATE_CIRCLE /* its holder waits, over others perhaps, for what the calling thread holds */
};

/* Waits until the gate is free, where that can come to be. */
enum rpi_gate_answer rpi_gate_take(struct rpi_gate *gate);
/* False where it is taken, by whomever. */
bool rpi_gate_try(struct rpi_gate *gate);
/* Does the calling thread hold it? For asserts. */
bool rpi_gate_is_own(const struct rpi_gate *gate);
/* By the thread that took it. */
void rpi_gate_leave(struct rpi_gate *gate);

#endif
