/* SPDX-License-Identifier: MIT
 *
 * Introsort (Musser, 1997): quicksort by the median of three, insertion sort for short runs,
 * heapsort once a run has been split more than 2 log2 n times. Traces are nearly sorted, which the
 * middle element as pivot suits.
 */
#include "profile/sort.h"

enum { SHORT = 16 };

static bool before(const struct rpi_event *a, const struct rpi_event *b, enum rpi_event_order order)
{
    if (order == RPI_BY_LANE && a->lane != b->lane)
        return a->lane < b->lane;
    if (a->start != b->start)
        return a->start < b->start;
    return order == RPI_BY_LANE ? a->span > b->span : a->lane < b->lane;
}

static void swap(struct rpi_event *a, struct rpi_event *b)
{
    struct rpi_event kept = *a;
    *a = *b;
    *b = kept;
}

static void insertion(struct rpi_event *e, size_t count, enum rpi_event_order order)
{
    for (size_t i = 1; i < count; i++) {
        struct rpi_event moving = e[i];
        size_t to = i;
        for (; to > 0 && before(&moving, &e[to - 1], order); to--)
            e[to] = e[to - 1];
        e[to] = moving;
    }
}

static void sift_down(struct rpi_event *e, size_t root, size_t count, enum rpi_event_order order)
{
    for (size_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && before(&e[child], &e[child + 1], order))
            child++;
        if (!before(&e[root], &e[child], order))
            return;
        swap(&e[root], &e[child]);
    }
}

static void heapsort_events(struct rpi_event *e, size_t count, enum rpi_event_order order)
{
    for (size_t root = count / 2; root-- > 0;)
        sift_down(e, root, count, order);
    for (size_t last = count; last-- > 1;) {
        swap(&e[0], &e[last]);
        sift_down(e, 0, last, order);
    }
}

/* Puts the median of first, middle and last in the middle, and splits by it (Hoare): returns how
 * many are in the lower part, at least 1 and fewer than count. */
static size_t split(struct rpi_event *e, size_t count, enum rpi_event_order order)
{
    size_t middle = count / 2;
    if (before(&e[middle], &e[0], order))
        swap(&e[middle], &e[0]);
    if (before(&e[count - 1], &e[middle], order)) {
        swap(&e[count - 1], &e[middle]);
        if (before(&e[middle], &e[0], order))
            swap(&e[middle], &e[0]);
    }
    struct rpi_event pivot = e[middle];
    size_t low = 0, high = count - 1;
    for (;;) {
        do
            low++;
        while (before(&e[low], &pivot, order));
        do
            high--;
        while (before(&pivot, &e[high], order));
        if (low >= high)
            return low;
        swap(&e[low], &e[high]);
    }
}

static void sort_run(struct rpi_event *e, size_t count, unsigned splits, enum rpi_event_order order)
{
    while (count > SHORT) {
        if (!splits--) {
            heapsort_events(e, count, order);
            return;
        }
        size_t lower = split(e, count, order);
        if (lower < count - lower) {
            sort_run(e, lower, splits, order);
            e += lower;
            count -= lower;
        } else {
            sort_run(e + lower, count - lower, splits, order);
            count = lower;
        }
    }
    insertion(e, count, order);
}

void rpi_sort_events(struct rpi_events *events, enum rpi_event_order order)
{
    unsigned splits = 2;
    for (size_t n = events->count; n; n >>= 1)
        splits += 2;
    if (events->count)
        sort_run(events->data, events->count, splits, order);
}
