/* SPDX-License-Identifier: MIT
 *
 * Charts of grouped bars as one self-contained SVG: no scripts, no fonts to fetch.
 */
#ifndef REPRISE_CLI_CHART_H
#define REPRISE_CLI_CHART_H

#include <stddef.h>
#include <stdio.h>

struct chart_series {
    const char *name;
    const char *color;    /* "#2f6fde" */
    const double *values; /* one a category; a negative one is not drawn */
};

/* Bars over categories, one a series side by side, and at most one reference line. */
struct chart_panel {
    const char *title, *subtitle;
    const char *axis;            /* what the height is */
    const char *value_format;    /* printf format of one double, written over each bar */
    const char *const *category; /* names below the bars, in two lines where there is a '\n' */
    size_t categories;
    const struct chart_series *series;
    size_t series_count;
    double most;      /* end of the axis: higher bars are drawn broken; 0: the highest value */
    double reference; /* 0: none */
    const char *reference_name;
};

/* Writes panels one below the other. Texts are escaped; all of them are UTF-8. Nonzero when the
 * stream took everything. */
int chart_write(FILE *out, const char *title, const char *footnote,
                const struct chart_panel *panels, size_t panel_count);

#endif
