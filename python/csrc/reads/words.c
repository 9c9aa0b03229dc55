/* SPDX-License-Identifier: MIT */
#include "reads/words.h"

#include "base/python.h"

#include <stdlib.h>
#include <string.h>

/* Twice as many at once, so that adding them one by one copies each a few times. */
bool rpp_words_reserve(struct rpp_words *words, size_t more)
{
    rpp_assert_gil();
    size_t room = words->count + more;
    if (words->list && room <= words->room)
        return true;
    room += words->list ? words->count : 1;
    struct rpp_word *list = PyMem_Realloc(words->list, room * sizeof *list);
    if (list)
        words->list = list;
    size_t *places = list ? PyMem_Realloc(words->places, room * sizeof *places) : NULL;
    if (!places)
        return false;
    words->places = places;
    words->room = room;
    return true;
}

bool rpp_words_copy(struct rpp_words *words, const struct rpp_words *other, size_t more)
{
    rpp_assert_gil();
    *words = (struct rpp_words){0};
    if (!rpp_words_reserve(words, other->count + more)) {
        rpp_words_drop(words);
        return false;
    }
    if (other->count) {
        memcpy(words->list, other->list, other->count * sizeof *words->list);
        memcpy(words->places, other->places, other->count * sizeof *words->places);
    }
    words->count = other->count;
    words->is_settled = other->is_settled;
    return true;
}

void rpp_words_drop(struct rpp_words *words)
{
    PyMem_Free(words->list);
    PyMem_Free(words->places);
    *words = (struct rpp_words){0};
}

size_t rpp_words_add(struct rpp_words *words, const uint64_t *at, uint64_t value)
{
    size_t number = words->count++;
    assert(number < words->room);
    words->is_settled = false;
    words->list[number] = (struct rpp_word){at, value};
    words->places[number] = number;
    return number;
}

void rpp_words_cut(struct rpp_words *words, size_t count)
{
    assert(count == words->count || (count < words->count && !words->is_settled));
    words->count = count;
}

struct rpp_word *rpp_words_at(const struct rpp_words *words, size_t number)
{
    assert(number < words->count);
    return &words->list[words->places[number]];
}

/* ---- Their order --------------------------------------------------------------------------- */

/* A word on its way, with its number behind it. */
struct placed {
    struct rpp_word word;
    size_t number;
};

static int compare(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    if (x->word.at != y->word.at)
        return x->word.at < y->word.at ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Without memory for it they stay as they are, which is as right. */
void rpp_words_settle(struct rpp_words *words)
{
    rpp_assert_gil();
    if (words->is_settled)
        return;
    words->is_settled = true;
    struct placed *list = PyMem_Calloc(words->count + 1, sizeof *list);
    if (!list)
        return;
    for (size_t i = 0; i < words->count; i++)
        list[i] = (struct placed){words->list[words->places[i]], i};
    qsort(list, words->count, sizeof *list, compare);
    for (size_t i = 0; i < words->count; i++) {
        words->list[i] = list[i].word;
        words->places[list[i].number] = i;
    }
    PyMem_Free(list);
}

/* ---- Looks --------------------------------------------------------------------------------- */

static uint64_t difference(const struct rpp_word *word)
{
    return *word->at ^ word->value;
}

/* All are read, four at a time, which wait for each other's caches no longer than one does. */
bool rpp_words_hold(const struct rpp_words *words)
{
    uint64_t other = 0;
    for (size_t i = 0; i < words->count; i++)
        other |= difference(&words->list[i]);
    return other == 0;
}

bool rpp_words_hold_from(const struct rpp_words *words, size_t number, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (difference(rpp_words_at(words, number + i)) != 0)
            return false;
    return true;
}
