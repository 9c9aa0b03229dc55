/* SPDX-License-Identifier: MIT
 *
 * All measures are in SVG units. The chart, top to bottom:
 *
 *     title, subtitle, legend
 *     amounts on an axis, on which each line is twice the one before: equal distances are equal
 *         ratios, so that rows of 30 and of 3,000 MiB are read alike
 *     the rows: name, the three dots, the share that is saved
 *     footnote
 *
 * The least is a ring, so that our dot is seen where it lies on it. Our amount stands on one side
 * of the dots and theirs on the other, however near they are.
 */
#include "chart.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define OURS   "#2f6fde"
#define THEIRS "#7b8696"
#define LEAST  "#c2410c"

enum {
    WIDTH = 1080,
    MARGIN = 48,
    PLOT_LEFT = 236,
    PLOT_RIGHT = 880,
    SAVED = WIDTH - MARGIN, /* end of the last column */
    HEAD = 172,             /* above the rows */
    ROW = 50,
    FOOT = 62,
    DOT = 7,
    RING = 11,
    MOST_TICKS = 12
};

static void write_text(FILE *out, const char *text)
{
    for (const char *c = text; *c; c++) {
        if (*c == '&')
            fputs("&amp;", out);
        else if (*c == '<')
            fputs("&lt;", out);
        else if (*c == '>')
            fputs("&gt;", out);
        else
            fputc(*c, out);
    }
}

/* `style` names a CSS class, or several. */
static void text_at(FILE *out, const char *style, double x, double y, const char *text)
{
    fprintf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", style, x, y);
    write_text(out, text);
    fputs("</text>\n", out);
}

/* ---- The axis ------------------------------------------------------------------------------ */

/* From 2^first to 2^last. */
struct axis {
    int first, last;
};

/* Of at least one row. */
static struct axis choose_axis(const struct chart *chart)
{
    double least = chart->rows[0].least, most = least;
    for (size_t i = 0; i < chart->row_count; i++) {
        const struct chart_row *row = &chart->rows[i];
        least = fmin(least, fmin(row->least, fmin(row->ours, row->theirs)));
        most = fmax(most, fmax(row->least, fmax(row->ours, row->theirs)));
    }
    /* Room at both ends for an amount beside its dot. */
    struct axis axis = {(int)floor(log2(least / 1.4)), (int)ceil(log2(most * 1.4))};
    return axis;
}

static double x_of(const struct axis *axis, double amount)
{
    double doublings = log2(amount) - axis->first;
    return PLOT_LEFT + doublings * (PLOT_RIGHT - PLOT_LEFT) / (axis->last - axis->first);
}

static void write_axis(FILE *out, const struct chart *chart, const struct axis *axis, double bottom)
{
    char label[32];
    int step = (axis->last - axis->first) / MOST_TICKS + 1;
    for (int power = axis->first; power <= axis->last; power += step) {
        double amount = exp2(power), x = x_of(axis, amount);
        fprintf(out, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%.1f\"/>\n", x, x,
                HEAD, bottom);
        snprintf(label, sizeof label, "%g", amount);
        text_at(out, "tick", x, HEAD - 9, label);
    }
    text_at(out, "unit", PLOT_LEFT - 16, HEAD - 9, chart->unit);
    text_at(out, "unit", SAVED, HEAD - 9, "saved");
}

/* ---- Rows ---------------------------------------------------------------------------------- */

static double share_saved(const struct chart_row *row)
{
    return 1 - row->ours / row->theirs;
}

static void write_amount(FILE *out, const char *style, double x, double y, double amount)
{
    char label[32];
    snprintf(label, sizeof label, amount < 99.95 ? "%.1f" : "%.0f", amount);
    text_at(out, style, x, y, label);
}

static void write_row(FILE *out, const struct chart_row *row, const struct axis *axis, double y)
{
    enum { BESIDE = RING + 6 };
    double theirs = x_of(axis, row->theirs), ours = x_of(axis, row->ours);
    double least = x_of(axis, row->least);
    char saved[32];
    text_at(out, "name", MARGIN, y - 1, row->name);
    text_at(out, "detail", MARGIN, y + 15, row->detail);
    fprintf(out, "<line class=\"way\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", ours,
            theirs, y, y);
    fprintf(out, "<circle class=\"theirs\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"/>\n", theirs, y, DOT);
    fprintf(out, "<circle class=\"ours\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"/>\n", ours, y, DOT);
    fprintf(out, "<circle class=\"least\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"/>\n", least, y, RING);
    bool ours_first = row->ours <= row->theirs;
    write_amount(out, ours_first ? "amount left ink" : "amount ink",
                 ours_first ? fmin(ours, least) - BESIDE : ours + BESIDE, y + 4.5, row->ours);
    write_amount(out, ours_first ? "amount" : "amount left",
                 ours_first ? fmax(theirs, least + RING - DOT) + BESIDE
                            : fmin(theirs, least) - BESIDE,
                 y + 4.5, row->theirs);
    snprintf(saved, sizeof saved, "%.0f %%", 100 * share_saved(row));
    text_at(out, "saved", SAVED, y + 6, saved);
}

static int by_saving(const void *left, const void *right)
{
    double a = share_saved(left), b = share_saved(right);
    return (a < b) - (a > b);
}

static int write_rows(FILE *out, const struct chart *chart)
{
    struct chart_row *rows = calloc(chart->row_count, sizeof *rows);
    if (!rows)
        return 0;
    memcpy(rows, chart->rows, chart->row_count * sizeof *rows);
    qsort(rows, chart->row_count, sizeof *rows, by_saving);
    struct axis axis = choose_axis(chart);
    write_axis(out, chart, &axis, HEAD + (double)chart->row_count * ROW);
    for (size_t i = 0; i < chart->row_count; i++)
        write_row(out, &rows[i], &axis, HEAD + ((double)i + 0.5) * ROW);
    free(rows);
    return 1;
}

/* ---- The page ------------------------------------------------------------------------------ */

/* Widths of texts are guessed from their length, for a wide font. */
static double write_key(FILE *out, double x, const char *style, int radius, const char *text)
{
    enum { Y = 116 };
    fprintf(out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%d\" r=\"%d\"/>\n", style, x + RING, Y,
            radius);
    text_at(out, "key", x + 2 * RING + 7, Y + 4.5, text);
    return x + 2 * RING + 7 + (double)strlen(text) * 7.2 + 22;
}

static const char style[] =
    "<style>\n"
    "text{font-family:'Inter','Segoe UI','Helvetica Neue',Arial,'DejaVu Sans',sans-serif;"
    "fill:#1d2430}\n"
    ".head{font-size:25px;font-weight:700}.sub,.foot{font-size:13px;fill:#5d6675}\n"
    ".key{font-size:13.5px}.tick{font-size:12px;fill:#6b7483;text-anchor:middle}\n"
    ".unit{font-size:12px;fill:#6b7483;text-anchor:end}\n"
    ".name{font-size:15px;font-weight:600}.detail{font-size:12px;fill:#6b7483}\n"
    ".amount{font-size:13px;fill:#5d6675}.left{text-anchor:end}.ink{fill:" OURS
    ";font-weight:600}\n"
    ".saved{font-size:18px;font-weight:700;text-anchor:end}\n"
    ".grid{stroke:#e8ebef}.way{stroke:#cfd4dc;stroke-width:4}\n"
    ".theirs{fill:" THEIRS "}.ours{fill:" OURS "}\n"
    ".least{fill:none;stroke:" LEAST ";stroke-width:2}\n"
    "</style>\n";

int chart_write(FILE *out, const struct chart *chart)
{
    size_t height = HEAD + chart->row_count * ROW + FOOT;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%zu\" "
            "viewBox=\"0 0 %d %zu\" role=\"img\">\n<title>",
            WIDTH, height, WIDTH, height);
    write_text(out, chart->title);
    fprintf(out, "</title>\n%s<rect fill=\"#fff\" width=\"100%%\" height=\"100%%\"/>\n", style);
    text_at(out, "head", MARGIN, 50, chart->title);
    text_at(out, "sub", MARGIN, 77, chart->subtitle);
    double x = MARGIN - RING + DOT;
    x = write_key(out, x, "theirs", DOT, chart->theirs);
    x = write_key(out, x, "ours", DOT, chart->ours);
    write_key(out, x, "least", RING, chart->least);
    int good = !chart->row_count || write_rows(out, chart);
    text_at(out, "foot", MARGIN, (double)height - 22, chart->footnote);
    fputs("</svg>\n", out);
    return good && !ferror(out);
}
