/* SPDX-License-Identifier: MIT
 *
 * The optimal string alignment distance (Damerau 1964, each letter edited once), row by row.
 */
#include "near.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

enum { MOST_LETTERS = 31 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static int same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

size_t cli_distance(const char *a, const char *b)
{
    size_t rows = strlen(a), columns = strlen(b), d[MOST_LETTERS + 1][MOST_LETTERS + 1];
    if (rows > MOST_LETTERS || columns > MOST_LETTERS)
        return SIZE_MAX;
    for (size_t i = 0; i <= rows; i++)
        for (size_t k = 0; k <= columns; k++) {
            if (!i || !k) {
                d[i][k] = i + k;
                continue;
            }
            d[i][k] = least(least(d[i - 1][k], d[i][k - 1]) + 1,
                            d[i - 1][k - 1] + !same(a[i - 1], b[k - 1]));
            if (i > 1 && k > 1 && same(a[i - 1], b[k - 2]) && same(a[i - 2], b[k - 1]))
                d[i][k] = least(d[i][k], d[i - 2][k - 2] + 1);
        }
    return d[rows][columns];
}

int cli_nearer(const char *word, const char *known, size_t *best)
{
    size_t distance = cli_distance(word, known);
    if (distance >= *best || distance > (strlen(word) + 1) / 3)
        return 0;
    *best = distance;
    return 1;
}
