/* SPDX-License-Identifier: MIT
 *
 * Words of objects, references, that are as long as what they refer to is the same: types, cells
 * and functions are known by them. A call compares some hundreds, which other work has put out of
 * the processor's caches meanwhile. So they lie in the order of their addresses, where words of one
 * object, and objects that were made together, share lines and pages. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_WORDS_H
#define REPRISE_PYTHON_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rpp_word {
    const uint64_t *at;
    uint64_t value;
};

struct rpp_words {
    size_t count, room;
    bool is_settled;
    struct rpp_word *list;
    size_t *places; /* of each word, as they were added, where it is in the list */
};

/* Makes room for so many more, which are added and then settled with those that are there; false
 * without memory, and nothing changed. Zeroed words are empty ones. */
bool rpp_words_reserve(struct rpp_words *words, size_t more);
/* The same words, settled or not, with room for more; false without memory, and nothing made. */
bool rpp_words_copy(struct rpp_words *words, const struct rpp_words *other, size_t more);
/* Adds one; its number, by which it is known wherever it comes to lie. There is room. */
size_t rpp_words_add(struct rpp_words *words, const uint64_t *at, uint64_t value);
/* Takes back those from this number on. */
void rpp_words_cut(struct rpp_words *words, size_t count);
/* All were added: brings them in their order. */
void rpp_words_settle(struct rpp_words *words);
/* A word by its number. What is changed there leaves the order as it is. */
struct rpp_word *rpp_words_at(const struct rpp_words *words, size_t number);

/* Have so many from this number on their values, read one by one? */
bool rpp_words_hold_from(const struct rpp_words *words, size_t number, size_t count);
/* Has each its value? */
bool rpp_words_hold(const struct rpp_words *words);
void rpp_words_drop(struct rpp_words *words); /* zeroed ones are allowed */

#endif
