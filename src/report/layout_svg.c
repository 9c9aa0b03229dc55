/* SPDX-License-Identifier: MIT
 *
 * All measures are in SVG units. The page, top to bottom:
 *
 *     title, subtitle, legend
 *     for each row of captures:
 *         brackets that say how they relate, the outermost first
 *         names of the captures
 *         plots, side by side; addresses on the left, height and bound on the right
 *         below each plot its peak: where most is alive, and how much
 *
 * Colours tell streams where a capture has several, sizes otherwise.
 */
#include "report/layout_svg.h"

#include "base/text.h"
#include "recording/drawing.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    WIDTH = 1080, /* pages show it at two thirds of that: texts are large enough to be read then */
    LEFT = 92,
    RIGHT = 944, /* end of the plots; labels of lines stand to the right of it */
    HEAD = 128,
    BRACKET = 26,
    NAMES = 52,
    PLOT = 500,
    FOOT = 48,
    GAP = 16,         /* between plots */
    ROW = 8,          /* most captures side by side */
    MOST_LEVELS = 4,  /* of brackets */
    MOST_TIPS = 20000 /* blocks that are described when pointed at */
};

#define INK   "#1d2430"
#define BOUND "#c2410c"

static const char *const stream_colors[] = {"#4f7fd1", "#e58a3c", "#53a873", "#c95d72",
                                            "#8f70c2", "#b39151", "#4fa7b5", "#d07fb4"};
/* For powers of four, the largest first. */
static const char *const size_colors[] = {"#17457f", "#2c6cb0", "#5593cf",
                                          "#8ab6e0", "#b7d2ec", "#d9e6f4"};
enum {
    STREAM_COLORS = sizeof stream_colors / sizeof *stream_colors,
    SIZE_COLORS = sizeof size_colors / sizeof *size_colors,
    SIZE_STEP = 4 /* from one colour of sizes to the next */
};

struct page {
    FILE *out;
    const struct rpi_drawing *drawing;
    size_t rows, in_row; /* of captures, and how many of them stand in one */
    size_t levels;       /* of brackets */
    double row_height;
    double top_value;     /* bytes at the top of a plot */
    uint64_t first_class; /* blocks from so many bytes have the first colour of sizes */
    uint32_t streams;     /* most of a capture */
    bool tips, has_kept;
};

/* ---- Texts --------------------------------------------------------------------------------- */

/* Style names a CSS class, or several. */
static void text_at(FILE *out, const char *style, double x, double y, const char *text)
{
    fprintf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", style, x, y);
    rpi_text_xml(out, text);
    fputs("</text>\n", out);
}

/* The text, cut where it would not fit so many letters. Cuts no UTF-8 letter in two. */
static void fit(char *out, size_t room, const char *text, double letters)
{
    size_t most = letters < 4 ? 4 : (size_t)letters;
    most = most < room - 4 ? most : room - 4;
    size_t length = strlen(text);
    if (length <= most) {
        memcpy(out, text, length + 1);
        return;
    }
    length = most - 1;
    while (length && ((unsigned char)text[length] & 0xc0) == 0x80)
        length--;
    snprintf(out, room, "%.*s\xe2\x80\xa6", (int)length, text); /* an ellipsis */
}

enum { SIZE_TEXT = 32 };

static const char *size_text(char *out, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    /* Some figures more for large ones: a height beside its bound. */
    while (bytes >= (unit < 2 ? 1024 : 10240) && unit + 1 < sizeof units / sizeof *units) {
        bytes /= 1024;
        unit++;
    }
    bool whole = unit == 0 || bytes == floor(bytes);
    snprintf(out, SIZE_TEXT, whole ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return out;
}

/* ---- Measuring ----------------------------------------------------------------------------- */

static void measure_blocks(struct page *page)
{
    const struct rpi_drawing *drawing = page->drawing;
    size_t total = 0;
    uint64_t largest = 0;
    for (size_t c = 0; c < drawing->captures.count; c++) {
        const struct rpi_drawn_capture *capture = &drawing->captures.data[c];
        for (size_t i = 0; i < capture->count; i++) {
            const struct rpi_drawn_block *block = &capture->blocks[i];
            largest = block->bytes > largest ? block->bytes : largest;
            page->streams = block->stream >= page->streams ? block->stream + 1 : page->streams;
            page->has_kept |= block->kept;
        }
        total += capture->count;
    }
    page->tips = total <= MOST_TIPS;
    page->first_class = 1;
    while (page->first_class <= largest / SIZE_STEP)
        page->first_class *= SIZE_STEP;
}

static void measure(struct page *page)
{
    const struct rpi_drawing *drawing = page->drawing;
    measure_blocks(page);
    page->rows = (drawing->captures.count + ROW - 1) / ROW;
    page->in_row = page->rows ? (drawing->captures.count + page->rows - 1) / page->rows : 0;
    for (size_t i = 0; i < drawing->parts.count; i++)
        if (drawing->parts.data[i].kind != RPI_COMPOSE_CAPTURE &&
            drawing->parts.data[i].depth >= page->levels)
            page->levels = drawing->parts.data[i].depth + 1;
    if (page->levels > MOST_LEVELS)
        page->levels = MOST_LEVELS;
    page->row_height = (double)page->levels * BRACKET + NAMES + PLOT + FOOT;
    uint64_t most = drawing->height > drawing->lower_bound ? drawing->height : drawing->lower_bound;
    page->top_value = most ? (double)most * 1.03 : 1;
}

static size_t size_class(const struct page *page, uint64_t bytes)
{
    size_t number = 0;
    for (uint64_t least = page->first_class; number + 1 < SIZE_COLORS && bytes < least;
         least /= SIZE_STEP)
        number++;
    return number;
}

static const char *color_of(const struct page *page, const struct rpi_drawn_block *block)
{
    return page->streams > 1 ? stream_colors[block->stream % STREAM_COLORS]
                             : size_colors[size_class(page, block->bytes)];
}

static double y_of(const struct page *page, double bottom, double bytes)
{
    return bottom - bytes * PLOT / page->top_value;
}

/* ---- The head ------------------------------------------------------------------------------ */

static double legend_item(FILE *out, double x, const char *fill, const char *more, const char *text)
{
    enum { Y = 104 };
    fprintf(out, "<rect x=\"%.1f\" y=\"%d\" width=\"14\" height=\"14\" rx=\"3\" fill=\"%s\"%s/>\n",
            x, Y - 12, fill, more);
    text_at(out, "legend", x + 21, Y, text);
    return x + 21 + (double)strlen(text) * 7.8 + 16;
}

static void write_legend(const struct page *page)
{
    FILE *out = page->out;
    double x = 40;
    char text[64], size[SIZE_TEXT];
    for (uint32_t s = 0; page->streams > 1 && s < page->streams && s < STREAM_COLORS; s++) {
        bool more = s == STREAM_COLORS - 1 && page->streams > STREAM_COLORS;
        snprintf(text, sizeof text, more ? "stream %u, and others" : "stream %u", s);
        x = legend_item(out, x, stream_colors[s], "", text);
    }
    uint64_t least = page->first_class;
    for (size_t i = 0; page->streams == 1 && i < SIZE_COLORS; i++) {
        snprintf(text, sizeof text, "%s%s", i + 1 < SIZE_COLORS ? "from " : "smaller",
                 i + 1 < SIZE_COLORS ? size_text(size, (double)least) : "");
        x = legend_item(out, x, size_colors[i], "", text);
        least /= SIZE_STEP;
    }
    if (page->has_kept)
        legend_item(out, x, "url(#kept)", " stroke=\"#8a93a1\"", "not freed");
}

static void write_head(const struct page *page)
{
    const struct rpi_drawing *drawing = page->drawing;
    char text[256], height[SIZE_TEXT], bound[SIZE_TEXT];
    size_t blocks = 0, captures = drawing->captures.count;
    for (size_t c = 0; c < captures; c++)
        blocks += drawing->captures.data[c].count;
    double ratio =
        drawing->lower_bound ? (double)drawing->height / (double)drawing->lower_bound : 1;
    snprintf(text, sizeof text,
             "%zu block%s of %zu capture%s in %s; the lower bound is %s, the ratio %.3f. Address "
             "upwards, %s to the right.",
             blocks, blocks == 1 ? "" : "s", captures, captures == 1 ? "" : "s",
             size_text(height, (double)drawing->height),
             size_text(bound, (double)drawing->lower_bound), ratio, drawing->order);
    text_at(page->out, "title", 40, 46, drawing->title);
    text_at(page->out, "subtitle", 40, 72, text);
    write_legend(page);
}

/* ---- Plots --------------------------------------------------------------------------------- */

/* Where the plots of a row stand: their widths grow with the root of their spans. */
struct row {
    size_t first, count;
    double x[ROW], width[ROW];
    double top, bottom; /* of the plots */
};

static struct row lay_row(const struct page *page, size_t index)
{
    size_t captures = page->drawing->captures.count;
    struct row row = {.first = index * page->in_row};
    row.count = captures - row.first < page->in_row ? captures - row.first : page->in_row;
    double weights[ROW] = {0}, sum = 0, x = LEFT;
    for (size_t i = 0; i < row.count; i++) {
        double span = page->drawing->captures.data[row.first + i].span;
        weights[i] = sqrt(span > 1 ? span : 1);
        sum += weights[i];
    }
    double room = RIGHT - LEFT - GAP * (double)(row.count - 1), even = room / (double)row.count / 2;
    for (size_t i = 0; i < row.count; i++) {
        row.x[i] = x;
        row.width[i] = even + room / 2 * weights[i] / sum;
        x += row.width[i] + GAP;
    }
    row.top = HEAD + (double)index * page->row_height + (double)page->levels * BRACKET + NAMES;
    row.bottom = row.top + PLOT;
    return row;
}

/* 1, 2, 4, 8 .. of a unit, so that about six steps reach the top. */
static void write_addresses(const struct page *page, const struct row *row)
{
    char text[SIZE_TEXT];
    double step = exp2(ceil(log2(page->top_value / 8)));
    for (unsigned k = 0; k * step <= page->top_value; k++) {
        double value = k * step;
        double y = y_of(page, row->bottom, value);
        for (size_t i = 0; value > 0 && i < row->count; i++)
            fprintf(page->out, "<path class=\"grid\" d=\"M%.1f %.1fh%.1f\"/>\n", row->x[i], y,
                    row->width[i]);
        text_at(page->out, "tick", LEFT - 10, y + 4, size_text(text, value));
    }
}

static void write_tip(const struct page *page, const struct rpi_drawn_block *block, size_t index)
{
    char size[SIZE_TEXT], at[SIZE_TEXT];
    fprintf(page->out, "<title>block %zu: %s at %s, from %.0f to %.0f, stream %u%s</title>", index,
            size_text(size, (double)block->bytes), size_text(at, (double)block->offset),
            block->first, block->last, block->stream, block->kept ? ", not freed" : "");
}

static void write_label(const struct page *page, const struct rpi_drawn_block *block, double x,
                        double y, double width, double height)
{
    char text[SIZE_TEXT];
    size_text(text, (double)block->bytes);
    if (height < 14 || width < (double)strlen(text) * 7.4 + 8)
        return;
    bool dark = page->streams > 1 || size_class(page, block->bytes) < 3;
    text_at(page->out, dark ? "block light" : "block", x + width / 2, y + height / 2 + 4, text);
}

static void write_block(const struct page *page, const struct row *row, size_t column, size_t index)
{
    const struct rpi_drawn_capture *capture = &page->drawing->captures.data[row->first + column];
    const struct rpi_drawn_block *block = &capture->blocks[index];
    double scale = row->width[column] / (capture->span > 0 ? capture->span : 1);
    double x = row->x[column] + block->first * scale, width = (block->last - block->first) * scale;
    double alignment = (double)page->drawing->alignment;
    double bytes = ceil((double)block->bytes / alignment) * alignment;
    double y = y_of(page, row->bottom, (double)block->offset + bytes);
    double height = y_of(page, row->bottom, (double)block->offset) - y;
    width = width < 0.5 ? 0.5 : width;
    height = height < 0.3 ? 0.3 : height;
    const char *shape = "";
    if (width > 5 && height > 5)
        shape = " class=\"edge\"";
    fprintf(page->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"%s",
            x, y, width, height, color_of(page, block), shape);
    fputs(page->tips ? ">" : "/>\n", page->out);
    if (page->tips) {
        write_tip(page, block, index);
        fputs("</rect>\n", page->out);
    }
    if (block->kept)
        fprintf(page->out,
                "<rect class=\"over\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>\n", x,
                y, width, height);
    write_label(page, block, x, y, width, height);
}

static void write_plot(const struct page *page, const struct row *row, size_t column)
{
    const struct rpi_drawn_capture *capture = &page->drawing->captures.data[row->first + column];
    double x = row->x[column], width = row->width[column];
    char name[128], detail[128], size[SIZE_TEXT];
    fit(name, sizeof name, capture->name, width / 8.8);
    snprintf(detail, sizeof detail, "%zu block%s, bound %s", capture->count,
             capture->count == 1 ? "" : "s", size_text(size, (double)capture->lower_bound));
    if (width < (double)strlen(detail) * 7)
        snprintf(detail, sizeof detail, width > 70 ? "%zu blocks" : "%zu", capture->count);
    text_at(page->out, "name", x, row->top - 26, name);
    text_at(page->out, "detail", x, row->top - 9, detail);
    for (size_t i = 0; i < capture->count; i++)
        write_block(page, row, column, i);
    fprintf(page->out, "<path class=\"base\" d=\"M%.1f %.1fv%dh%.1f\"/>\n", x, row->top, PLOT,
            width);
}

/* The first moment at which most is alive: a line through the plot, and below it how much and when.
 * The text stands below the line, as far as the plot reaches. */
static void write_peak(const struct page *page, const struct row *row, size_t column)
{
    const struct rpi_drawn_capture *capture = &page->drawing->captures.data[row->first + column];
    if (!capture->peak)
        return;
    char size[SIZE_TEXT], text[2][96], fitted[96];
    double left = row->x[column], width = row->width[column];
    double x = left + capture->peak_at * width / (capture->span > 0 ? capture->span : 1);
    snprintf(text[0], sizeof text[0], "peak %s", size_text(size, (double)capture->peak));
    snprintf(text[1], sizeof text[1], "%s %.0f%s", page->drawing->moment,
             capture->origin + capture->peak_at, page->streams > 1 ? " in host order" : "");
    fprintf(page->out, "<path class=\"peak\" d=\"M%.2f %.1fV%.1f\"/>\n", x, row->top, row->bottom);
    fprintf(page->out, "<path class=\"tip\" d=\"M%.2f %.1fl5 8h-10z\"/>\n", x, row->bottom + 2);
    for (int i = 0; i < 2; i++) {
        fit(fitted, sizeof fitted, text[i], width / 7.4);
        double half = (double)strlen(fitted) * 4, right = left + width - half;
        double middle = x < left + half ? left + half : x > right ? right : x;
        text_at(page->out, i ? "when" : "when much", middle, row->bottom + 24 + 16 * i, fitted);
    }
}

/* The height of the layout and the bound, across the row, with their values behind it. */
static void write_lines(const struct page *page, const struct row *row)
{
    const struct rpi_drawing *drawing = page->drawing;
    char text[SIZE_TEXT];
    double end = row->x[row->count - 1] + row->width[row->count - 1];
    double height = y_of(page, row->bottom, (double)drawing->height);
    double bound = y_of(page, row->bottom, (double)drawing->lower_bound);
    bool same = drawing->height == drawing->lower_bound;
    if (!same)
        fprintf(page->out, "<path class=\"height\" d=\"M%d %.1fH%.1f\"/>\n", LEFT, height, end);
    fprintf(page->out, "<path class=\"bound\" d=\"M%d %.1fH%.1f\"/>\n", LEFT, bound, end);
    /* The two labels must not lie over each other. */
    double below = bound + 4 > height + 36 ? bound + 4 : height + 36;
    text_at(page->out, same ? "mark optimal" : "mark", end + 10, height + 4,
            same ? "height = bound" : "height");
    text_at(page->out, same ? "mark optimal" : "mark", end + 10, height + 19,
            size_text(text, (double)drawing->height));
    if (same)
        return;
    text_at(page->out, "mark optimal", end + 10, below, "lower bound");
    text_at(page->out, "mark optimal", end + 10, below + 15,
            size_text(text, (double)drawing->lower_bound));
}

/* ---- Brackets ------------------------------------------------------------------------------ */

/* One past the last part below parts[i]. */
static size_t end_of(const struct rpi_drawing *drawing, size_t i)
{
    size_t end = i + 1;
    while (end < drawing->parts.count &&
           drawing->parts.data[end].depth > drawing->parts.data[i].depth)
        end++;
    return end;
}

static const char *kind_name(enum rpi_compose_kind kind)
{
    switch (kind) {
    case RPI_COMPOSE_ALTERNATIVES:
        return "alternatives";
    case RPI_COMPOSE_SEQUENCE:
        return "sequence";
    case RPI_COMPOSE_CONCURRENT:
        return "concurrent";
    case RPI_COMPOSE_CAPTURE:
        break;
    }
    return "capture";
}

/* The part of a group's bracket that falls into this row. captures counts those before it. */
static void write_bracket(const struct page *page, const struct row *row, size_t part,
                          size_t captures)
{
    const struct rpi_drawn_part *group = &page->drawing->parts.data[part];
    size_t end = end_of(page->drawing, part), last = captures;
    for (size_t i = part + 1; i < end; i++)
        last += page->drawing->parts.data[i].kind == RPI_COMPOSE_CAPTURE;
    size_t from = captures > row->first ? captures - row->first : 0;
    size_t to = last > row->first ? last - row->first : 0;
    to = to < row->count ? to : row->count;
    if (from >= to || group->depth >= page->levels)
        return;
    double y = row->top - NAMES - (double)(page->levels - group->depth) * BRACKET + 18;
    double x = row->x[from], width = row->x[to - 1] + row->width[to - 1] - x;
    char text[160], label[160];
    snprintf(text, sizeof text, "%s%s%s", group->name ? group->name : "", group->name ? ": " : "",
             kind_name(group->kind));
    fit(label, sizeof label, text, (width - 14) / 7.6);
    fprintf(page->out, "<path class=\"bracket\" d=\"M%.1f %.1fv-6h%.1fv6\"/>\n", x, y + 5, width);
    text_at(page->out, "kind", x + 6, y - 5, label);
}

static void write_row(const struct page *page, size_t index)
{
    const struct rpi_drawing *drawing = page->drawing;
    struct row row = lay_row(page, index);
    size_t captures = 0;
    for (size_t i = 0; i < drawing->parts.count; i++) {
        if (drawing->parts.data[i].kind == RPI_COMPOSE_CAPTURE)
            captures++;
        else
            write_bracket(page, &row, i, captures);
    }
    write_addresses(page, &row);
    for (size_t i = 0; i < row.count; i++) {
        write_plot(page, &row, i);
        write_peak(page, &row, i);
    }
    write_lines(page, &row);
}

/* ---- The page ------------------------------------------------------------------------------ */

static const char style[] =
    "<style>\n"
    "text{font-family:'Inter','Segoe UI','Helvetica Neue',Arial,'DejaVu Sans',sans-serif;"
    "fill:" INK "}\n"
    ".title{font-size:22px;font-weight:700}.subtitle{font-size:14px;fill:#5d6675}\n"
    ".legend{font-size:14px}.tick{font-size:13px;fill:#6b7483;text-anchor:end}\n"
    ".name{font-size:15px;font-weight:700}.detail{font-size:13px;fill:#6b7483}\n"
    ".kind{font-size:13px;fill:#5d6675}.bracket{stroke:#aab1bc;fill:none}\n"
    ".block{font-size:12px;text-anchor:middle}.light{fill:#fff}\n"
    ".mark{font-size:14px;font-weight:600}.optimal{fill:" BOUND "}\n"
    ".grid{stroke:#e3e6eb}.base{stroke:#aab1bc;fill:none}\n"
    ".edge{stroke:#fff;stroke-width:.7}.over{fill:url(#kept)}\n"
    ".peak{stroke:" INK ";stroke-dasharray:2 3}.tip{fill:" INK "}\n"
    ".when{font-size:13px;text-anchor:middle;fill:#6b7483}.much{font-weight:700;fill:" INK "}\n"
    ".height{stroke:" INK ";stroke-width:1.4}\n"
    ".bound{stroke:" BOUND ";stroke-width:1.8;stroke-dasharray:7 4}\n"
    "</style>\n"
    "<defs><pattern id=\"kept\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><path d=\"M0 0v6\" stroke=\"" INK "\" stroke-opacity=\".55\" "
    "stroke-width=\"2\"/></pattern></defs>\n";

void rpi_layout_svg_write(FILE *out, const void *drawing)
{
    struct page page = {.out = out, .drawing = drawing};
    measure(&page);
    double height = HEAD + (double)page.rows * page.row_height;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
            "viewBox=\"0 0 %d %.0f\" role=\"img\">\n<title>",
            WIDTH, height, WIDTH, height);
    rpi_text_xml(out, page.drawing->title);
    fprintf(out, "</title>\n%s<rect fill=\"#fff\" width=\"100%%\" height=\"100%%\"/>\n", style);
    write_head(&page);
    for (size_t i = 0; i < page.rows; i++)
        write_row(&page, i);
    fputs("</svg>\n", out);
}
