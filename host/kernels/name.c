/* SPDX-License-Identifier: MIT
 *
 * Types in mangled names. A type that was named before is written as a reference (S_, S4_); which
 * one is meant is not looked up, but taken to be the type before, as the types of one kernel are
 * mostly one.
 */
#include "kernels/kernel.h"

const char *rpi_name_after(const char *name, const char *key)
{
    const char *at = strstr(name, key);
    return at ? at + strlen(key) : NULL;
}

static int letter_type(char letter)
{
    switch (letter) {
    case 'h':
        return RPI_U8;
    case 'a':
        return RPI_I8;
    case 's':
        return RPI_I16;
    case 'i':
        return RPI_I32;
    case 'l':
        return RPI_I64;
    case 'f':
        return RPI_FLOAT;
    case 'd':
        return RPI_DOUBLE;
    case 'b':
        return RPI_BOOL;
    default:
        return RPI_NO_TYPE;
    }
}

/* N3c104HalfE, or with the name of the space referred back to: NS4_4HalfE. */
static bool nested_type(const char **at, int *type)
{
    static const struct {
        const char *name;
        int type;
    } known[] = {{"4HalfE", RPI_HALF}, {"8BFloat16E", RPI_BF16}};
    const char *inner = *at + 1;
    if (strncmp(inner, "3c10", 4) == 0)
        inner += 4;
    else if (*inner == 'S')
        inner += strcspn(inner, "_") + 1;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strncmp(inner, known[i].name, strlen(known[i].name)) == 0) {
            *type = known[i].type;
            *at = inner + strlen(known[i].name);
            return true;
        }
    }
    return false;
}

bool rpi_name_type(const char **at, int *type)
{
    int letter = letter_type(**at);
    if (letter != RPI_NO_TYPE) {
        *type = letter;
        (*at)++;
        return true;
    }
    if (**at == 'N')
        return nested_type(at, type);
    if (**at != 'S' || *type == RPI_NO_TYPE)
        return false;
    *at += strcspn(*at, "_") + 1;
    return true;
}
