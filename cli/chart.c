/* SPDX-License-Identifier: MIT
 *
 * All measures are in SVG units. A panel, top to bottom:
 *
 *     title, subtitle, legend
 *     plot: horizontal grid lines with their value on the left, bars with theirs on top
 *     category names, one or two lines
 *
 * Widths of texts are guessed from their length, for a wide font: what is drawn with a narrower one
 * has more room, never less.
 */
#include "chart.h"

#include <math.h>
#include <string.h>

enum {
    WIDTH = 1080,
    MARGIN = 48,
    PLOT_LEFT = MARGIN + 56,
    PLOT_RIGHT = WIDTH - MARGIN,
    TITLE_HEIGHT = 84,
    PANEL_HEAD = 112, /* title, subtitle, legend, room for the highest value */
    PLOT_HEIGHT = 250,
    PANEL_FOOT = 58,
    PANEL_GAP = 26,
    PANEL_HEIGHT = PANEL_HEAD + PLOT_HEIGHT + PANEL_FOOT,
    FOOT_HEIGHT = 46
};

static void write_text(FILE *out, const char *text, size_t length)
{
    for (const char *c = text; c < text + length; c++) {
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
static void text_at(FILE *out, const char *style, double x, double y, const char *text,
                    size_t length)
{
    fprintf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", style, x, y);
    write_text(out, text, length);
    fputs("</text>\n", out);
}

/* 0 leaves the text out. */
static void text_sized(FILE *out, const char *style, double x, double y, const char *text,
                       size_t length, double size)
{
    if (size <= 0.0)
        return;
    fprintf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" font-size=\"%.1f\">", style, x, y, size);
    write_text(out, text, length);
    fputs("</text>\n", out);
}

static double text_width(const char *text, double size)
{
    size_t letters = 0;
    for (const char *c = text; *c; c++)
        letters += (*c & 0xc0) != 0x80; /* not the rest of a UTF-8 letter */
    return (double)letters * size * 0.62;
}

/* 1, 2, 2.5 or 5 times a power of ten, so that about four steps reach `most`. */
static double tick_step(double most)
{
    static const double nice[] = {1.0, 2.0, 2.5, 5.0, 10.0};
    double power = pow(10.0, floor(log10(most / 4.0)));
    for (size_t i = 0; i < sizeof nice / sizeof *nice; i++)
        if (nice[i] * power >= most / 4.0)
            return nice[i] * power;
    return 10.0 * power;
}

static double highest(const struct chart_panel *panel)
{
    double most = panel->reference;
    if (panel->most > 0.0)
        return panel->most;
    for (size_t s = 0; s < panel->series_count; s++)
        for (size_t c = 0; c < panel->categories; c++)
            most = fmax(most, panel->series[s].values[c]);
    return most > 0.0 ? most : 1.0;
}

static void write_legend(FILE *out, const struct chart_panel *panel, double y)
{
    double x = MARGIN;
    for (size_t s = 0; s < panel->series_count; s++) {
        const struct chart_series *series = &panel->series[s];
        fprintf(out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"13\" height=\"13\" rx=\"3\" fill=\"%s\"/>\n",
                x, y - 11, series->color);
        text_at(out, "legend", x + 20, y, series->name, strlen(series->name));
        x += 20 + text_width(series->name, 13) + 26;
    }
    if (panel->reference > 0.0) {
        fprintf(out,
                "<line class=\"reference\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", x,
                x + 22, y - 4.5, y - 4.5);
        text_at(out, "legend", x + 29, y, panel->reference_name, strlen(panel->reference_name));
    }
}

/* Grid lines and their values; `scale` is units of height for 1. */
static void write_grid(FILE *out, const struct chart_panel *panel, double bottom, double top_value,
                       double scale)
{
    double step = tick_step(top_value);
    int steps = (int)floor(top_value / step * 1.0001);
    for (int i = 0; i <= steps; i++) {
        char label[32];
        double value = i * step;
        double y = bottom - value * scale;
        fprintf(out, "<line class=\"%s\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                i ? "grid" : "base", PLOT_LEFT, PLOT_RIGHT, y, y);
        int length = snprintf(label, sizeof label, "%g", value);
        text_at(out, "tick", PLOT_LEFT - 10, y + 4, label, (size_t)length);
    }
    fprintf(out, "<text class=\"axis\" transform=\"translate(%d %.1f) rotate(-90)\">", MARGIN + 12,
            bottom - PLOT_HEIGHT / 2.0);
    write_text(out, panel->axis, strlen(panel->axis));
    fputs("</text>\n", out);
}

/* Two slanted gaps near the end of a bar that is higher than the axis. */
static void write_break(FILE *out, double x, double width, double top)
{
    for (int i = 0; i < 2; i++)
        fprintf(out, "<path class=\"break\" d=\"M%.1f %.1fl%.1f -9\"/>\n", x - 2, top + 27 + 8 * i,
                width + 4);
}

/* A bar with round upper corners and square feet. */
static void write_bar(FILE *out, const char *color, double x, double width, double bottom,
                      double height)
{
    double round = fmin(4.0, fmin(height, width / 2));
    fprintf(out,
            "<path fill=\"%s\" d=\"M%.1f %.1fv%.1fq0 %.1f %.1f %.1fh%.1fq%.1f 0 %.1f %.1fv%.1fz\"/>"
            "\n",
            color, x, bottom, -(height - round), -round, round, -round, width - 2 * round, round,
            round, round, height - round);
}

/* What all groups of a panel share. */
struct group_style {
    double slot, bar;                          /* widths */
    double name_size, detail_size, value_size; /* 0: there is no room for it */
};

enum { BAR_GAP = 3 };

/* At most `size`; less where a text of so many letters would not fit the room; 0 where it would be
 * too small to read. letter: width of one, in sizes. */
static double fitting(size_t letters, double size, double letter, double room)
{
    const double least = 6.5;
    double fits = room / ((double)(letters ? letters : 1) * letter);
    return fits < least ? 0.0 : fmin(size, fits);
}

static struct group_style style_groups(const struct chart_panel *panel)
{
    size_t name = 0, detail = 0, value = 0;
    for (size_t c = 0; c < panel->categories; c++) {
        const char *text = panel->category[c];
        size_t first = strcspn(text, "\n"), rest = strlen(text) - first;
        name = first > name ? first : name;
        detail = rest > detail ? rest : detail;
        for (size_t s = 0; s < panel->series_count; s++) {
            int length = snprintf(NULL, 0, panel->value_format, panel->series[s].values[c]);
            value = (size_t)length > value ? (size_t)length : value;
        }
    }
    double count = (double)panel->series_count;
    double slot = (double)(PLOT_RIGHT - PLOT_LEFT) / (double)panel->categories;
    double bar = fmin(46.0, (slot * 0.86 - (count - 1) * BAR_GAP) / count);
    return (struct group_style){.slot = slot,
                                .bar = bar,
                                .name_size = fitting(name, 13, 0.71, slot - 2),
                                .detail_size = fitting(detail, 11.5, 0.6, slot - 2),
                                .value_size = fitting(value, 11, 0.66, bar + BAR_GAP)};
}

static void write_group(FILE *out, const struct chart_panel *panel, size_t c,
                        const struct group_style *group, double bottom, double scale)
{
    double count = (double)panel->series_count, width = group->bar;
    double middle = PLOT_LEFT + ((double)c + 0.5) * group->slot;
    double x = middle - (count * width + (count - 1) * BAR_GAP) / 2;
    for (size_t s = 0; s < panel->series_count; s++, x += width + BAR_GAP) {
        double value = panel->series[s].values[c];
        char label[32];
        if (value < 0.0)
            continue;
        double height = fmin(value * scale, PLOT_HEIGHT);
        write_bar(out, panel->series[s].color, x, width, bottom, height);
        if (value * scale > PLOT_HEIGHT + 0.5)
            write_break(out, x, width, bottom - PLOT_HEIGHT);
        int length = snprintf(label, sizeof label, panel->value_format, value);
        text_sized(out, "value", x + width / 2, bottom - height - 6, label, (size_t)length,
                   group->value_size);
    }
    const char *name = panel->category[c], *second = strchr(name, '\n');
    text_sized(out, "category", middle, bottom + 22, name, strcspn(name, "\n"), group->name_size);
    if (second)
        text_sized(out, "detail", middle, bottom + 39, second + 1, strlen(second + 1),
                   group->detail_size);
}

static void write_panel(FILE *out, const struct chart_panel *panel, double top)
{
    double bottom = top + PANEL_HEAD + PLOT_HEIGHT;
    double top_value = highest(panel), scale = PLOT_HEIGHT / top_value;
    fprintf(out,
            "<rect class=\"card\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"12\"/>\n",
            MARGIN / 2, top, WIDTH - MARGIN, PANEL_HEIGHT);
    text_at(out, "title", MARGIN, top + 34, panel->title, strlen(panel->title));
    text_at(out, "subtitle", MARGIN, top + 55, panel->subtitle, strlen(panel->subtitle));
    write_legend(out, panel, top + 82);
    write_grid(out, panel, bottom, top_value, scale);
    struct group_style group = style_groups(panel);
    for (size_t c = 0; c < panel->categories; c++)
        write_group(out, panel, c, &group, bottom, scale);
    if (panel->reference > 0.0) {
        double y = bottom - panel->reference * scale;
        fprintf(out, "<line class=\"reference\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                PLOT_LEFT, PLOT_RIGHT, y, y);
    }
}

static const char style[] =
    "<style>\n"
    "text{font-family:'Inter','Segoe UI','Helvetica Neue',Arial,'DejaVu Sans',sans-serif;"
    "fill:#1d2430}\n"
    ".page{fill:#f4f5f7}.card{fill:#fff;stroke:#e3e6eb}\n"
    ".head{font-size:25px;font-weight:700}.title{font-size:17px;font-weight:700}\n"
    ".subtitle,.foot{font-size:12.5px;fill:#5d6675}.legend{font-size:13px}\n"
    ".tick{font-size:11.5px;fill:#6b7483;text-anchor:end}\n"
    ".axis{font-size:12px;fill:#6b7483;text-anchor:middle}\n"
    ".value{text-anchor:middle}\n"
    ".category{font-weight:600;text-anchor:middle}\n"
    ".detail{fill:#6b7483;text-anchor:middle}\n"
    ".grid{stroke:#e8ebef}.base{stroke:#aab1bc}\n"
    ".reference{stroke:#c2410c;stroke-width:1.8;stroke-dasharray:6 4}\n"
    ".break{stroke:#fff;stroke-width:3}\n"
    "</style>\n";

int chart_write(FILE *out, const char *title, const char *footnote,
                const struct chart_panel *panels, size_t panel_count)
{
    size_t height =
        TITLE_HEIGHT + panel_count * (PANEL_HEIGHT + PANEL_GAP) - PANEL_GAP + FOOT_HEIGHT;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%zu\" "
            "viewBox=\"0 0 %d %zu\" role=\"img\">\n<title>",
            WIDTH, height, WIDTH, height);
    write_text(out, title, strlen(title));
    fprintf(out, "</title>\n%s<rect class=\"page\" width=\"100%%\" height=\"100%%\"/>\n", style);
    text_at(out, "head", MARGIN, 52, title, strlen(title));
    for (size_t i = 0; i < panel_count; i++)
        write_panel(out, &panels[i], TITLE_HEIGHT + (double)i * (PANEL_HEIGHT + PANEL_GAP));
    text_at(out, "foot", MARGIN, (double)height - 18, footnote, strlen(footnote));
    fputs("</svg>\n", out);
    return !ferror(out);
}
