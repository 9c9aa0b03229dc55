/* SPDX-License-Identifier: MIT
 *
 * "did you mean": the known word that a wrong one is nearest to.
 */
#ifndef REPRISE_CLI_NEAR_H
#define REPRISE_CLI_NEAR_H

#include <stddef.h>

/* Edits from one word to the other: letters put in, left out, changed, or changed places with their
 * neighbour. Case does not count. Words of more than 31 letters are as far from all as SIZE_MAX. */
size_t cli_distance(const char *a, const char *b);

/* Is `word` nearer to `known` than *best, and near enough to have been meant: one edit in three
 * letters? Then *best becomes that distance. SIZE_MAX is the first *best. */
int cli_nearer(const char *word, const char *known, size_t *best);

#endif
