/* SPDX-License-Identifier: MIT */
#include "output.h"

#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void *need(void *pointer)
{
    if (!pointer) {
        fprintf(stderr, "reprise: host memory could not be allocated\n");
        exit(2);
    }
    return pointer;
}

/* ---- Words on terminals -------------------------------------------------------------------- */

const char *cli_style(FILE *out, enum cli_style style)
{
    static const char *const codes[] = {[CLI_PLAIN] = "\033[0m",
                                        [CLI_BOLD] = "\033[1m",
                                        [CLI_RED] = "\033[1;31m",
                                        [CLI_GREEN] = "\033[1;32m",
                                        [CLI_YELLOW] = "\033[1;33m"};
    const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");
    bool wanted = !(no_color && *no_color) && terminal && strcmp(terminal, "dumb") != 0 &&
                  isatty(fileno(out));
    return wanted ? codes[style] : "";
}

/* The text, which the caller frees. Ends the command where host memory is short. */
__attribute__((format(printf, 1, 0))) static char *make_text(const char *format, va_list args)
{
    char *text = NULL;
    return need(vasprintf(&text, format, args) < 0 ? NULL : text);
}

void cli_print(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = make_text(format, args);
    va_end(args);
    rpi_text_mask_lines(text, strlen(text));
    fputs(text, stdout);
    free(text);
}

void cli_say(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = make_text(format, args);
    va_end(args);
    rpi_text_mask(text, strlen(text));
    fprintf(stderr, "%sreprise%s%s:%s %s\n", cli_style(stderr, CLI_RED), command ? " " : "",
            command ? command : "", cli_style(stderr, CLI_PLAIN), text);
    free(text);
}

/* ---- Tables -------------------------------------------------------------------------------- */

static void add(struct cli_table *table, char *text, bool section)
{
    if (table->cell_count == table->capacity) {
        table->capacity = table->capacity ? 2 * table->capacity : 64;
        table->cells = need(realloc(table->cells, table->capacity * sizeof *table->cells));
        table->section = need(realloc(table->section, table->capacity * sizeof *table->section));
    }
    if (text)
        rpi_text_mask(text, strlen(text));
    table->section[table->cell_count] = section;
    table->cells[table->cell_count++] = text;
}

void cli_table_init(struct cli_table *table, const char *const *headers, size_t columns)
{
    *table = (struct cli_table){.columns = columns};
    for (size_t c = 0; c < columns; c++)
        add(table, need(strdup(headers[c])), false);
}

void cli_table_cell(struct cli_table *table, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(table, make_text(format, args), false);
    va_end(args);
}

double cli_mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

void cli_table_mib(struct cli_table *table, uint64_t bytes)
{
    cli_table_cell(table, "%.1f", cli_mib(bytes));
}

void cli_table_empty(struct cli_table *table, size_t cells)
{
    for (size_t c = 0; c < cells; c++)
        add(table, NULL, false);
}

void cli_table_section(struct cli_table *table, const char *text)
{
    add(table, need(strdup(text)), true);
    cli_table_empty(table, table->columns - 1);
}

/* What a text takes on the screen: its characters, not its bytes. */
static int width_of(const char *text)
{
    int width = 0;
    for (; text && *text; text++)
        width += (*text & 0xc0) != 0x80;
    return width;
}

static int column_width(const struct cli_table *table, size_t column)
{
    int widest = 0;
    for (size_t i = column; i < table->cell_count; i += table->columns) {
        int width = table->section[i] ? 0 : width_of(table->cells[i]);
        widest = widest < width ? width : widest;
    }
    return widest;
}

static void print_row(const struct cli_table *table, size_t row, const int *widths, FILE *out)
{
    size_t last = table->columns;
    while (last > 0 && (!table->cells[row + last - 1] || !*table->cells[row + last - 1]))
        last--;
    bool marked = !row || table->section[row];
    fputs(marked ? cli_style(out, CLI_BOLD) : "", out);
    for (size_t c = 0; c < last; c++) {
        const char *text = table->cells[row + c] ? table->cells[row + c] : "";
        int fill = widths[c] - width_of(text);
        fill = fill < 0 || (c == 0 && last == 1) ? 0 : fill;
        fprintf(out, "%s%*s%s%*s", c ? "  " : "", c ? fill : 0, "", text, c ? 0 : fill, "");
    }
    fputs(marked ? cli_style(out, CLI_PLAIN) : "", out);
    putc('\n', out);
}

void cli_table_print(const struct cli_table *table, FILE *out)
{
    int *widths = need(calloc(table->columns, sizeof *widths));
    for (size_t c = 0; c < table->columns; c++)
        widths[c] = column_width(table, c);
    for (size_t row = 0; row + table->columns <= table->cell_count; row += table->columns)
        print_row(table, row, widths, out);
    free(widths);
}

void cli_table_finish(struct cli_table *table)
{
    for (size_t i = 0; i < table->cell_count; i++)
        free(table->cells[i]);
    free(table->cells);
    free(table->section);
    *table = (struct cli_table){0};
}

/* ---- Numbers and progress ------------------------------------------------------------------ */

bool cli_number(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    if (!*text || strspn(text, "0123456789") != strlen(text))
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno || value < least || value > most)
        return false;
    *out = value;
    return true;
}

/* A factor of sizes; a unit without a letter for 1,024 is one of 1,000. */
static const struct unit {
    const char *name;
    double bytes;
} units[] = {{"", 1},       {"B", 1},        {"K", 0x1p10},   {"M", 0x1p20},   {"G", 0x1p30},
             {"T", 0x1p40}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
             {"KB", 1e3},   {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};

bool cli_decimal(const char *text, double *out)
{
    size_t before = strspn(text, "0123456789");
    const char *at = text + before;
    size_t after = *at == '.' ? strspn(at + 1, "0123456789") : 0;
    if (!before && !after)
        return false;
    at += *at == '.' ? 1 + after : 0;
    if (*at == 'e' || *at == 'E') {
        at += at[1] == '-' || at[1] == '+' ? 2 : 1;
        size_t digits = strspn(at, "0123456789");
        if (!digits)
            return false;
        at += digits;
    }
    double value = *at ? 0 : strtod(text, NULL);
    if (*at || !isfinite(value))
        return false;
    *out = value;
    return true;
}

bool cli_size(const char *text, uint64_t *out_bytes)
{
    if (cli_number(text, 1, INT64_MAX, out_bytes))
        return true;
    char number[32];
    size_t digits = strspn(text, "0123456789.");
    const char *name = text + digits + (text[digits] == ' ');
    double value;
    if (!digits || digits >= sizeof number || text[digits - 1] == '.')
        return false;
    snprintf(number, sizeof number, "%.*s", (int)digits, text);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        if (strcmp(name, units[u].name) != 0 || !*name || !cli_decimal(number, &value))
            continue;
        value *= units[u].bytes;
        *out_bytes = value >= 1 && value < 0x1p63 ? (uint64_t)value : 0;
        return *out_bytes > 0;
    }
    return false;
}

static bool progress_shown;

double cli_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void cli_progress(bool long_work, const char *format, ...)
{
    static double start;
    if (start == 0)
        start = cli_seconds();
    if (!isatty(STDERR_FILENO) || (!long_work && cli_seconds() - start < 1))
        return;
    char line[256]; /* a terminal's line is shorter: more would not be written over */
    va_list args;
    va_start(args, format);
    rpi_text_line(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
    progress_shown = true;
}

void cli_progress_end(void)
{
    if (progress_shown)
        fputs("\r\033[K", stderr);
    progress_shown = false;
}
