/* SPDX-License-Identifier: MIT
 *
 * A chart of dots in rows as one self-contained SVG, no scripts, no fonts to fetch: in each row
 * what somebody else takes, what we take, and the least that can be taken.
 */
#ifndef REPRISE_CLI_CHART_H
#define REPRISE_CLI_CHART_H

#include <stddef.h>
#include <stdio.h>

/* Amounts are in the chart's unit, all above 0. */
struct chart_row {
    const char *name, *detail; /* detail stands small below the name */
    double theirs, ours, least;
};

struct chart {
    const char *title, *subtitle, *footnote;
    const char *unit;                  /* "MiB" */
    const char *theirs, *ours, *least; /* what the three dots are */
    const struct chart_row *rows;      /* are drawn by saving, the largest share first */
    size_t row_count;
};

/* Texts are escaped; all of them are UTF-8. Nonzero when the stream took everything. */
int chart_write(FILE *out, const struct chart *chart);

#endif
