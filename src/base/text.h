/* SPDX-License-Identifier: MIT
 *
 * Texts that others wrote, UTF-8 or not, on their way to terminals, JSON, XML and HTML.
 *
 * A control here is a character that steers what shows it, or that no text may hold: C0, DEL and
 * C1; line and paragraph separators; marks, embeddings and isolates that turn the direction of
 * writing; and Unicode's noncharacters, some of which XML forbids.
 */
#ifndef REPRISE_BASE_TEXT_H
#define REPRISE_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* How many of at most `bytes` bytes are the UTF-8 character at text, and its code; 0: none is. */
size_t rpi_utf8_get(const char *text, size_t bytes, uint32_t *out_code);

/* Is it UTF-8 without controls? */
bool rpi_text_is_plain(const char *text, size_t bytes);

/* Makes a text fit for a terminal, in place: a control, and a byte that is no UTF-8, becomes '?', a
 * tab or the end of a line a blank. Returns its length, never more than before; text[length] is
 * written where it is shorter. */
size_t rpi_text_mask(char *text, size_t bytes);

/* The same for a text of several lines, whose ends stay. */
size_t rpi_text_mask_lines(char *text, size_t bytes);

/* Formats one line into room bytes, masked. What is too long loses its middle, so that both the
 * file that a message begins with and the reason that it ends with are left. */
void rpi_text_line(char *out, size_t room, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/* The character that *text begins with, as it stands in a JSON string or in XML and HTML; moves
 * *text behind it and returns its length. *text is no empty string. Controls are escaped in JSON
 * and U+FFFD in XML, where ends of lines are blanks; what is no UTF-8 is U+FFFD in both. */
enum { RPI_MOST_LETTER = 16 };
size_t rpi_text_json_letter(const char **text, char out[RPI_MOST_LETTER]);
size_t rpi_text_xml_letter(const char **text, char out[RPI_MOST_LETTER]);

/* A whole JSON string, quotes included; a text between XML tags or quotes. */
void rpi_text_json(FILE *out, const char *text);
void rpi_text_xml(FILE *out, const char *text);

#endif
