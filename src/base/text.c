/* SPDX-License-Identifier: MIT */
#include "base/text.h"

#include "base/hostmem.h"

#include <assert.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* ---- Characters ---------------------------------------------------------------------------- */

/* The Unicode Standard, table 3-7: the second byte has fewer values after some first bytes. */
static const struct {
    unsigned char least, most, second_least, second_most;
    size_t bytes;
} forms[] = {
    {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
    {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
    {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
};

size_t rpi_utf8_get(const char *text, size_t bytes, uint32_t *out_code)
{
    const unsigned char *p = (const unsigned char *)text;
    for (size_t f = 0; bytes && f < sizeof forms / sizeof *forms; f++) {
        size_t length = forms[f].bytes;
        if (*p < forms[f].least || *p > forms[f].most)
            continue;
        if (length > bytes ||
            (length > 1 && (p[1] < forms[f].second_least || p[1] > forms[f].second_most)))
            return 0;
        uint32_t code = length == 1 ? *p : *p & (0x7fu >> length);
        for (size_t i = 1; i < length; i++) {
            if ((p[i] & 0xc0) != 0x80)
                return 0;
            code = code << 6 | (p[i] & 0x3f);
        }
        *out_code = code;
        return length;
    }
    return 0;
}

static bool is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e ||
           code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069) || (code >= 0xfdd0 && code <= 0xfdef) ||
           (code & 0xfffe) == 0xfffe;
}

/* Are these eight bytes printable ASCII? A byte is below 0x20 where subtracting that borrows, and
 * 0x7f where adding one reaches the top bit. */
static bool eight_are_printable(const char *text)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t word;
    memcpy(&word, text, sizeof word);
    return !((word | (word - 0x20 * ones) | (word + ones)) & 0x80 * ones);
}

bool rpi_text_is_plain(const char *text, size_t bytes)
{
    const char *end = text + bytes;
    while (text < end) {
        uint32_t code;
        if (end - text >= 8 && eight_are_printable(text)) {
            text += 8;
            continue;
        }
        size_t length = rpi_utf8_get(text, (size_t)(end - text), &code);
        if (!length || is_control(code))
            return false;
        text += length;
    }
    return true;
}

/* ---- Terminals ----------------------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == '\n' || c == '\r' || c == '\t';
}

static size_t mask(char *text, size_t bytes, bool lines)
{
    size_t to = 0;
    for (size_t from = 0; from < bytes;) {
        uint32_t code = 0;
        size_t length = rpi_utf8_get(text + from, bytes - from, &code);
        if (length && (!is_control(code) || (lines && code == '\n'))) {
            memmove(text + to, text + from, length);
            to += length;
        } else {
            text[to++] = is_blank(text[from]) ? ' ' : '?';
        }
        from += length ? length : 1;
    }
    assert(to <= bytes);
    if (to < bytes)
        text[to] = '\0';
    return to;
}

size_t rpi_text_mask(char *text, size_t bytes)
{
    return mask(text, bytes, false);
}

size_t rpi_text_mask_lines(char *text, size_t bytes)
{
    return mask(text, bytes, true);
}

/* Is this byte inside a character? */
static bool is_inside(char c)
{
    return (c & 0xc0) == 0x80;
}

/* Takes what does not fit out of the middle: two thirds of the room are for the end. */
static void cut_middle(char *out, size_t room, const char *text, size_t bytes)
{
    assert(bytes >= room && room > 6); /* the gap and its end */
    static const char gap[] = " ... ";
    size_t head = (room - sizeof gap) / 3, tail = room - sizeof gap - head;
    while (head && is_inside(text[head]))
        head--;
    const char *rest = text + bytes - tail;
    while (is_inside(*rest))
        rest++;
    snprintf(out, room, "%.*s%s%s", (int)head, text, gap, rest);
}

void rpi_text_line(char *out, size_t room, const char *format, va_list args)
{
    assert(room);
    char near[1024], *text = near;
    va_list again;
    va_copy(again, args);
    int wanted = vsnprintf(near, sizeof near, format, args);
    size_t bytes = wanted < 0 ? 0 : (size_t)wanted;
    if (bytes >= sizeof near) {
        text = rpi_malloc(bytes + 1);
        if (text)
            vsnprintf(text, bytes + 1, format, again);
        else
            bytes = sizeof near - 1; /* its end is lost, as so much else is without memory */
    }
    va_end(again);
    char *line = text ? text : near;
    bytes = rpi_text_mask(line, bytes);
    if (bytes < room)
        snprintf(out, room, "%s", bytes ? line : "");
    else
        cut_middle(out, room, line, bytes);
    if (text != near)
        rpi_free(text);
}

/* ---- JSON, XML and HTML -------------------------------------------------------------------- */

/* The character at *text, whose string ends with NUL; moves *text behind it. Returns its length,
 * or 0 for a byte that is none. */
static size_t take_letter(const char **text, uint32_t *out_code)
{
    size_t length = rpi_utf8_get(*text, strnlen(*text, 4), out_code);
    *text += length ? length : 1;
    return length;
}

static size_t put(char *out, const char *letter, size_t bytes)
{
    memcpy(out, letter, bytes);
    return bytes;
}

size_t rpi_text_json_letter(const char **text, char out[RPI_MOST_LETTER])
{
    assert(**text);
    const char *letter = *text;
    uint32_t code = 0xfffd;
    size_t length = take_letter(text, &code);
    if (length && (code == '"' || code == '\\'))
        return (size_t)snprintf(out, RPI_MOST_LETTER, "\\%c", (char)code);
    if (length && !is_control(code))
        return put(out, letter, length);
    if (code < 0x10000)
        return (size_t)snprintf(out, RPI_MOST_LETTER, "\\u%04x", (unsigned)code);
    code -= 0x10000;
    return (size_t)snprintf(out, RPI_MOST_LETTER, "\\u%04x\\u%04x",
                            (unsigned)(0xd800 + (code >> 10)), (unsigned)(0xdc00 + (code & 0x3ff)));
}

size_t rpi_text_xml_letter(const char **text, char out[RPI_MOST_LETTER])
{
    assert(**text);
    const char *letter = *text;
    uint32_t code = 0;
    size_t length = take_letter(text, &code);
    const char *entity = !length || (is_control(code) && !is_blank(*letter)) ? REPLACEMENT
                         : is_control(code)                                  ? " "
                         : code == '&'                                       ? "&amp;"
                         : code == '<'                                       ? "&lt;"
                         : code == '>'                                       ? "&gt;"
                         : code == '"'                                       ? "&quot;"
                                                                             : NULL;
    return entity ? put(out, entity, strlen(entity)) : put(out, letter, length);
}

void rpi_text_json(FILE *out, const char *text)
{
    char letter[RPI_MOST_LETTER];
    putc('"', out);
    while (*text)
        fwrite(letter, 1, rpi_text_json_letter(&text, letter), out);
    putc('"', out);
}

void rpi_text_xml(FILE *out, const char *text)
{
    char letter[RPI_MOST_LETTER];
    while (*text)
        fwrite(letter, 1, rpi_text_xml_letter(&text, letter), out);
}
