/* SPDX-License-Identifier: MIT
 *
 * What commands share in printing: tables, sizes, styles, JSON texts, progress, and reading
 * numbers.
 */
#ifndef REPRISE_CLI_OUTPUT_H
#define REPRISE_CLI_OUTPUT_H

#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A table whose first column is flush left and whose others are flush right. Cells are added from
 * left to right, row after row, and lose control characters. Running out of host memory ends the
 * program: a command has no use for half a table. */
struct cli_table {
    size_t columns;
    char **cells; /* [cell_count]; NULL: empty. A row that begins with a section has only that */
    bool *section;
    size_t cell_count, capacity;
};

void cli_table_init(struct cli_table *table, const char *const *headers, size_t columns);
void cli_table_cell(struct cli_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void cli_table_mib(struct cli_table *table, uint64_t bytes); /* "139.0" */
void cli_table_empty(struct cli_table *table, size_t cells);
/* A row of its own: a text over the whole width. */
void cli_table_section(struct cli_table *table, const char *text);
void cli_table_print(const struct cli_table *table, FILE *out);
void cli_table_finish(struct cli_table *table);

double cli_mib(uint64_t bytes);

/* A JSON string, quoted; base/text.h says what becomes of controls and of what is no UTF-8. */
static inline void cli_json_text(FILE *out, const char *text)
{
    rpi_text_json(out, text);
}

/* What turns a style on, and CLI_PLAIN off; "" where out is no terminal, TERM is dumb or not set,
 * or NO_COLOR is set (no-color.org). */
enum cli_style { CLI_PLAIN, CLI_BOLD, CLI_RED, CLI_GREEN, CLI_YELLOW };
const char *cli_style(FILE *out, enum cli_style style);

/* printf, whose texts lose control characters; ends of lines stay. */
void cli_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One line on standard error: "reprise COMMAND: ...", without control characters, whatever texts it
 * quotes. command may be NULL. */
void cli_say(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A whole number from least to most, in decimal digits only; false: it is not one. */
bool cli_number(const char *text, uint64_t least, uint64_t most, uint64_t *out);

/* A decimal number that is finite and not negative: digits, a point, an exponent, nothing else. */
bool cli_decimal(const char *text, double *out);
/* Bytes from 1 to 2^63 - 1: "64MiB", "1.5G" (of 1,024), "100MB" (of 1,000) or a whole number. */
bool cli_size(const char *text, uint64_t *out_bytes);

double cli_seconds(void); /* of a clock that only goes on */

/* One line on standard error that is written over, where that is a terminal and the work is known
 * to be long or more than a second has passed since the first call. cli_progress_end removes it. */
void cli_progress(bool long_work, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_progress_end(void);

#endif
