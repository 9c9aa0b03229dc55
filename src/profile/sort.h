/* SPDX-License-Identifier: MIT
 *
 * Sorting events where they lie: the C library's qsort may take as much memory again.
 */
#ifndef REPRISE_PROFILE_SORT_H
#define REPRISE_PROFILE_SORT_H

#include "profile/trace.h"

enum rpi_event_order {
    RPI_BY_LANE, /* lane, start, the longer first */
    RPI_BY_START /* start, lane */
};

/* Heapsort where quicksort degenerates: O(n log n) in every case, no memory. */
void rpi_sort_events(struct rpi_events *events, enum rpi_event_order order);

#endif
