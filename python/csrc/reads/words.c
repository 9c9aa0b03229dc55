/* SPDX-License-Identifier: MIT */
#include "reads/words.h"

#include "base/python.h"

#include <stdlib.h>
#include <string.h>

bool rpp_words_reserve(struct rpp_words *words, size_t most)
{
    rpp_assert_gil();
    *words = (struct rpp_words){.list = PyMem_Calloc(most + 1, sizeof *words->list),
                                .places = PyMem_Calloc(most + 1, sizeof *words->places)};
    if (words->list && words->places)
        return true;
    rpp_words_drop(words);
    return false;
}

bool rpp_words_copy(struct rpp_words *words, const struct rpp_words *other, size_t more)
{
    rpp_assert_gil();
    if (!rpp_words_reserve(words, other->count + more))
        return false;
    memcpy(words->list, other->list, other->count * sizeof *words->list);
    memcpy(words->places, other->places, other->count * sizeof *words->places);
    words->count = other->count;
    words->is_settled = other->is_settled && more == 0;
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
    words->list[number] = (struct rpp_word){at, value};
    words->places[number] = number;
    return number;
}

void rpp_words_cut(struct rpp_words *words, size_t count)
{
    assert(count <= words->count && !words->is_settled);
    words->count = count;
}

uint64_t *rpp_words_value(struct rpp_words *words, size_t number)
{
    assert(number < words->count);
    return &words->list[words->places[number]].value;
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

bool rpp_words_hold(const struct rpp_words *words)
{
    uint64_t other = 0;
    for (size_t i = 0; i < words->count; i++)
        other |= *words->list[i].at ^ words->list[i].value;
    return other == 0;
}
