/* SPDX-License-Identifier: MIT
 *
 * What an exec takes of device memory: so many bytes for each path that its nodes lie on and for
 * each kernel and copy among them. These two prices are those of a chip and its driver; here they
 * are read off how free memory falls while execs of two graphs are made, one with many nodes a path
 * and one with few:
 *
 *     series    execs of one graph, made one after the other and kept; free memory after each
 *     fall      a driver takes memory in steps, so most execs take nothing and some a step
 *     each      what one exec takes
 *
 * There are two ways to read a series. Steps come first; lines follow where falls are uneven.
 *
 * Steps: a driver that takes from one pool had used up what it had at a fall, between the exec
 * before and this one. So from fall i to fall j, n execs further on, D bytes were used up by more
 * than n - 1 execs and fewer than n + 1, and all pairs of falls together leave little room for
 * `each`. What comes before the first fall is left out: it came of what the driver had in hand.
 *
 * Lines: a driver that takes from several pools, each with steps of its own, makes pairs that leave
 * no room. What it took is a line then, and for each pool a saw's teeth, which do not add up:
 * `each` is the slope of the least-squares line through the readings behind all execs. Teeth longer
 * than a series bend the line. In simulated drivers of two to five pools 56 MiB give both prices to
 * 2 % in 95 of 100, and 16 MiB to 14 and 27 %.
 *
 * Two series of each graph, taken in turns, have to agree; memory that others take or give back
 * meanwhile makes them differ. The slopes of two lines differ by less than 4 % in 95 of 100
 * simulated drivers, so 6 % are allowed. Of 416 beside which somebody took or gave memory once, 242
 * were told so, and none of the others had a price 12 % off (test_exec_bytes.c).
 */
#ifndef REPRISE_POLICY_EXEC_BYTES_H
#define REPRISE_POLICY_EXEC_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rpi_byte_prices {
    uint64_t path, node; /* bytes */
};

/* For so many kernel and copy nodes, on so many paths. Fills and empty nodes take next to nothing.
 */
uint64_t rpi_exec_bytes(const struct rpi_byte_prices *prices, size_t charged, size_t paths);

enum rpi_exec_way { RPI_EXEC_STEPS, RPI_EXEC_LINE, RPI_EXEC_WAYS };

/* A series ends with the first step of the driver beyond so much. */
#define RPI_EXEC_SERIES_BYTES(way) ((uint64_t)((way) == RPI_EXEC_STEPS ? 16 : 56) << 20)
enum { RPI_EXEC_SERIES_EXECS = 1024 }; /* or with so many */

struct rpi_exec_series {
    enum rpi_exec_way way;
    size_t execs, falls;
    double x, y, xx, xy; /* sums over all execs: of their numbers, and of what was taken by then */
    uint64_t before, lowest; /* free memory: at the beginning, and now */
    bool rose;               /* free memory rose: somebody else gave some back */
    struct {
        double exec, bytes; /* the exec's number; what was taken before it */
    } fall[RPI_EXEC_SERIES_EXECS];
};

void rpi_exec_series_begin(struct rpi_exec_series *series, enum rpi_exec_way way,
                           uint64_t free_bytes);
/* After one more exec. True once the falls tell what an exec takes, or tell that nothing will come
 * of the series. */
bool rpi_exec_series_add(struct rpi_exec_series *series, uint64_t free_bytes);
/* Bytes of one exec; 0: the series does not tell. */
double rpi_exec_series_each(const struct rpi_exec_series *series);

enum { RPI_EXEC_FIT_GRAPHS = 2, RPI_EXEC_FIT_TURNS = 2 };

/* A graph whose execs were measured. */
struct rpi_exec_fit_graph {
    size_t charged, paths;
    struct rpi_exec_series turns[RPI_EXEC_FIT_TURNS];
};

/* Did free memory fall often enough for a line, though not in even steps? Then longer series may
 * tell. */
bool rpi_exec_series_may_be_line(const struct rpi_exec_series *series);

/* The prices that explain what execs of both graphs take. Returns NULL, or why there are none: then
 * *out_prices is left alone. `like`: prices of another chip, from which no chip is a decade away.
 * Static text. */
const char *rpi_exec_fit(const struct rpi_exec_fit_graph graphs[RPI_EXEC_FIT_GRAPHS],
                         const struct rpi_byte_prices *like, struct rpi_byte_prices *out_prices);

#endif
