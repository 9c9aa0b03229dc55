/* SPDX-License-Identifier: MIT
 *
 * Nearness is the share of a text's trigrams, three letters or digits in a row, that an entry's key
 * or title has too, or a name that people ask about it by: it stands typing errors, words in
 * another order, and pieces of names. A text counts as a whole, or for less by its longest word.
 * Case, blanks and signs are left out, as in rp_explain. Trigrams tell little of a short word with
 * a wrong letter: where a few edits make the longest word a name that people ask by, that is near
 * too.
 */
#include "explain_near.h"
#include "explain/explain.h"
#include "near.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { MOST_LETTERS = 512, TRIGRAM = 3 };

/* Letters and digits alone, in small letters; the length. */
static size_t squeeze(const char *text, char *out)
{
    size_t length = 0;
    for (; *text && length < MOST_LETTERS - 1; text++)
        if (isalnum((unsigned char)*text))
            out[length++] = (char)tolower((unsigned char)*text);
    out[length] = '\0';
    return length;
}

/* Per mille of the trigrams of `part`, which is squeezed, that `whole` has. */
static unsigned share_of(const char *part, const char *whole)
{
    size_t length = strlen(part), found = 0;
    if (length < TRIGRAM)
        return 0;
    for (size_t i = 0; i + TRIGRAM <= length; i++) {
        char trigram[TRIGRAM + 1] = {part[i], part[i + 1], part[i + 2], '\0'};
        found += strstr(whole, trigram) != NULL;
    }
    return (unsigned)(1000 * found / (length - TRIGRAM + 1));
}

static void longest_word(const char *query, char *out)
{
    char word[MOST_LETTERS];
    size_t longest = 0;
    out[0] = '\0';
    while (*query) {
        size_t length = strcspn(query, " \t\n.:,;()'\"`");
        if (length > longest && length < MOST_LETTERS) {
            memcpy(word, query, length);
            word[length] = '\0';
            longest = length;
            squeeze(word, out);
        }
        query += length + (query[length] != '\0');
    }
}

struct ranking {
    const struct rp_explanation **near;
    unsigned score[EXPLAIN_MOST_NEAR];
    size_t count;
};

/* Takes an entry in behind those that are as near. */
static void rank(struct ranking *r, const struct rp_explanation *e, unsigned score)
{
    size_t place = r->count;
    while (place && r->score[place - 1] < score)
        place--;
    if (place == EXPLAIN_MOST_NEAR)
        return;
    r->count += r->count < EXPLAIN_MOST_NEAR;
    for (size_t i = r->count - 1; i > place; i--) {
        r->near[i] = r->near[i - 1];
        r->score[i] = r->score[i - 1];
    }
    r->near[place] = e;
    r->score[place] = score;
}

static unsigned larger(unsigned a, unsigned b)
{
    return a > b ? a : b;
}

/* How near an entry is; 0: not near. What the text has of the entry's key decides among equals. */
static unsigned score_of(const struct rp_explanation *e, const char *all, const char *word)
{
    enum { LEAST = 500, OF_WORD = 60, OF_KEY = 50 }; /* per mille, and per cent */
    char key[MOST_LETTERS], text[MOST_LETTERS];
    const char *topic;
    squeeze(e->key, key);
    squeeze(e->title, text);
    unsigned score = larger(share_of(all, key), share_of(all, text));
    score = larger(score, OF_WORD * larger(share_of(word, key), share_of(word, text)) / 100);
    for (size_t i = 0; (topic = rpi_explanation_topic(e, i)); i++) {
        size_t best = SIZE_MAX;
        squeeze(topic, text);
        score = larger(score, larger(share_of(all, text), OF_WORD * share_of(word, text) / 100));
        if (cli_nearer(word, text, &best))
            score = larger(score, 1000 - 100 * (unsigned)best);
    }
    return score <= LEAST ? 0 : score + OF_KEY * share_of(key, all) / 100;
}

size_t explain_near(const char *query, const struct rp_explanation **out_near)
{
    char all[MOST_LETTERS], word[MOST_LETTERS];
    struct ranking r = {.near = out_near};
    const struct rp_explanation *e;
    squeeze(query, all);
    longest_word(query, word);
    for (size_t i = 0; (e = rp_explanation_at(i)); i++) {
        unsigned score = score_of(e, all, word);
        if (score)
            rank(&r, e, score);
    }
    return r.count;
}
