/* SPDX-License-Identifier: MIT */
#include "output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- Tables -------------------------------------------------------------------------------- */

static void *need(void *pointer)
{
    if (!pointer) {
        fprintf(stderr, "reprise: host memory could not be allocated\n");
        exit(2);
    }
    return pointer;
}

static void add(struct cli_table *table, char *text, bool section)
{
    if (table->cell_count == table->capacity) {
        table->capacity = table->capacity ? 2 * table->capacity : 64;
        table->cells = need(realloc(table->cells, table->capacity * sizeof *table->cells));
        table->section = need(realloc(table->section, table->capacity * sizeof *table->section));
    }
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
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    add(table, need(text), false);
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
    for (size_t c = 0; c < last; c++) {
        const char *text = table->cells[row + c] ? table->cells[row + c] : "";
        int fill = widths[c] - width_of(text);
        fill = fill < 0 || (c == 0 && last == 1) ? 0 : fill;
        fprintf(out, "%s%*s%s%*s", c ? "  " : "", c ? fill : 0, "", text, c ? 0 : fill, "");
    }
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

/* ---- JSON ---------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 character that text begins with, or 0. */
static int utf8_length(const unsigned char *text)
{
    static const struct {
        unsigned char mask, lead, least_second, most_second;
        int length;
    } forms[] = {{0xff, 0xe0, 0xa0, 0xbf, 3}, {0xff, 0xed, 0x80, 0x9f, 3},
                 {0xff, 0xf0, 0x90, 0xbf, 4}, {0xff, 0xf4, 0x80, 0x8f, 4},
                 {0xe0, 0xc0, 0x80, 0xbf, 2}, {0xf0, 0xe0, 0x80, 0xbf, 3},
                 {0xfc, 0xf0, 0x80, 0xbf, 4}};
    if (*text < 0x80)
        return 1;
    if (*text == 0xc0 || *text == 0xc1)
        return 0;
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        if ((*text & forms[f].mask) != forms[f].lead)
            continue;
        if (text[1] < forms[f].least_second || text[1] > forms[f].most_second)
            return 0;
        for (int i = 2; i < forms[f].length; i++)
            if ((text[i] & 0xc0) != 0x80)
                return 0;
        return forms[f].length;
    }
    return 0;
}

void cli_json_text(FILE *out, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    putc('"', out);
    while (*at) {
        int length = utf8_length(at);
        if (!length)
            fputs("\\ufffd", out);
        else if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7f)
            fprintf(out, "\\u%04x", *at);
        else
            fwrite(at, 1, (size_t)length, out);
        at += length ? length : 1;
    }
    putc('"', out);
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

static bool progress_shown;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void cli_progress(bool long_work, const char *format, ...)
{
    static double start;
    if (start == 0)
        start = seconds();
    if (!isatty(STDERR_FILENO) || (!long_work && seconds() - start < 1))
        return;
    va_list args;
    va_start(args, format);
    fputs("\r\033[K", stderr);
    vfprintf(stderr, format, args);
    va_end(args);
    fflush(stderr);
    progress_shown = true;
}

void cli_progress_end(void)
{
    if (progress_shown)
        fputs("\r\033[K", stderr);
    progress_shown = false;
}
