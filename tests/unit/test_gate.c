/* SPDX-License-Identifier: MIT
 *
 * Gates: a thread that would wait for itself or in a circle is told so, whichever way the threads
 * run; all others get in, one at a time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/gate.h"

enum { RING = 5, ROUNDS = 200, CROWD = 4, TURNS = 5000 };

static void own_gates_are_told(void **state)
{
    (void)state;
    struct rpi_gate gate = {NULL}, other = {NULL};
    assert_int_equal(rpi_gate_take(&gate), RPI_GATE_TAKEN);
    assert_int_equal(rpi_gate_take(&gate), RPI_GATE_OWN);
    assert_false(rpi_gate_try(&gate));
    assert_int_equal(rpi_gate_take(&other), RPI_GATE_TAKEN);
    rpi_gate_leave(&gate);
    assert_true(rpi_gate_try(&gate));
    rpi_gate_leave(&gate);
    rpi_gate_leave(&other);
}

struct ring {
    pthread_barrier_t begun;
    struct rpi_gate gates[RING];
    atomic_int circles, taken;
};

struct seat {
    struct ring *ring;
    int index;
};

/* Takes its own gate, then its neighbour's once all have their own. */
static void *reach_round(void *argument)
{
    struct seat *seat = argument;
    struct ring *ring = seat->ring;
    struct rpi_gate *own = &ring->gates[seat->index];
    struct rpi_gate *next = &ring->gates[(seat->index + 1) % RING];
    enum rpi_gate_answer first = rpi_gate_take(own);
    pthread_barrier_wait(&ring->begun);
    enum rpi_gate_answer second = rpi_gate_take(next);
    atomic_fetch_add(&ring->circles, second == RPI_GATE_CIRCLE);
    atomic_fetch_add(&ring->taken, first == RPI_GATE_TAKEN && second == RPI_GATE_TAKEN);
    if (second == RPI_GATE_TAKEN)
        rpi_gate_leave(next);
    rpi_gate_leave(own);
    return NULL;
}

static void circles_are_told(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct ring ring = {.circles = 0};
        struct seat seats[RING];
        pthread_t threads[RING];
        assert_int_equal(pthread_barrier_init(&ring.begun, NULL, RING), 0);
        for (int i = 0; i < RING; i++) {
            seats[i] = (struct seat){&ring, i};
            assert_int_equal(pthread_create(&threads[i], NULL, reach_round, &seats[i]), 0);
        }
        for (int i = 0; i < RING; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&ring.begun);
        assert_true(ring.circles >= 1); /* the last to come, and who came while it was told */
        assert_int_equal(ring.circles + ring.taken, RING);
        assert_true(ring.taken >= 1);
    }
}

struct crowd {
    struct rpi_gate gate;
    long count; /* guarded by it */
};

static void *take_turns(void *argument)
{
    struct crowd *crowd = argument;
    for (int i = 0; i < TURNS; i++) {
        if (rpi_gate_take(&crowd->gate) != RPI_GATE_TAKEN)
            return crowd;
        crowd->count++;
        rpi_gate_leave(&crowd->gate);
    }
    return NULL;
}

static void one_at_a_time(void **state)
{
    (void)state;
    struct crowd crowd = {.count = 0};
    pthread_t threads[CROWD];
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_turns, &crowd), 0);
    for (int i = 0; i < CROWD; i++) {
        void *refused;
        pthread_join(threads[i], &refused);
        assert_null(refused);
    }
    assert_int_equal(crowd.count, CROWD * TURNS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_gates_are_told),
        cmocka_unit_test(circles_are_told),
        cmocka_unit_test(one_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
