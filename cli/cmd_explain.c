/* SPDX-License-Identifier: MIT
 *
 * reprise explain: what a capture error or symptom is, why it comes, what to do.
 */
#include "cli.h"

#include "reprise.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static void print_usage(FILE *out)
{
    fprintf(out,
            "usage: reprise explain NUMBER|NAME|MESSAGE...\n"
            "       reprise explain --list\n\n"
            "Tells what an error of a CUDA graph capture, a symptom of graphs, or a call that\n"
            "cannot be captured is, why it usually comes and what to do:\n\n"
            "    reprise explain 901\n"
            "    reprise explain CUDA error: operation not permitted when stream is capturing\n"
            "    reprise explain memory-grows-with-shapes\n"
            "    reprise explain cudaStreamSynchronize\n"
            "    reprise explain '.item()'\n\n"
            "  --list    all that is known\n\n"
            "exit: 0 done, 1 nothing is known of it, 2 usage\n");
}

/* Prints text as lines of at most 78 columns, the first after `lead`, the others indented as far.
 */
static void print_wrapped(const char *lead, const char *text)
{
    int indent = (int)strlen(lead), column = indent;
    fputs(lead, stdout);
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (column > indent && column + 1 + length > 78) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", length, text);
        column += length;
        text += length;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void print_list(const char *title, const char *const *items)
{
    printf("\n%s\n", title);
    for (; *items; items++)
        print_wrapped("  - ", *items);
}

static void print_explanation(const struct rp_explanation *e)
{
    if (e->code)
        printf("%d %s: %s\n\n", e->code, e->key, e->title);
    else
        printf("%s: %s\n\n", e->key, e->title);
    print_wrapped("", e->meaning);
    print_list("Usual causes", e->causes);
    print_list("What to do", e->mends);
}

static void print_entry(FILE *out, const struct rp_explanation *e)
{
    if (e->code)
        fprintf(out, "%4d  %-42s %s\n", e->code, e->key, e->title);
    else
        fprintf(out, "      %-42s %s\n", e->key, e->title);
}

static int print_all(void)
{
    const struct rp_explanation *e;
    for (size_t i = 0; (e = rp_explanation_at(i)); i++)
        print_entry(stdout, e);
    return CLI_DONE;
}

/* The longest word of a query: what it is about. False where none says anything. */
static bool find_word(const char *query, char *out, size_t bytes)
{
    enum { SHORTEST = 3 };
    size_t longest = 0;
    while (*query) {
        size_t length = 0;
        while (isalnum((unsigned char)query[length]))
            length++;
        if (length > longest && length < bytes) {
            longest = length;
            snprintf(out, bytes, "%.*s", (int)length, query);
        }
        query += length ? length : 1;
    }
    return longest >= SHORTEST;
}

/* Says that nothing is known, and lists the entries in which the query's longest word occurs. */
static void print_near(const char *query)
{
    enum { MOST = 8 };
    char word[64];
    const struct rp_explanation *e;
    size_t count = 0;
    fprintf(stderr,
            "reprise explain: nothing is known of '%s'; 'reprise explain --list' shows what is",
            query);
    bool told = find_word(query, word, sizeof word);
    for (size_t i = 0; told && count < MOST && (e = rp_explanation_at(i)); i++) {
        if (!strcasestr(e->key, word) && !strcasestr(e->title, word))
            continue;
        fputs(count++ ? "" : ", among it:\n", stderr);
        print_entry(stderr, e);
    }
    fputs(count ? "" : "\n", stderr);
}

/* The arguments joined by blanks, so that a message need not be quoted. */
static void join(int count, char **words, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < count && used < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%s", i ? " " : "", words[i]);
}

static int explain(const char *query)
{
    const struct rp_explanation *found = rp_explain(query);
    if (!found) {
        print_near(query);
        return CLI_NO;
    }
    print_explanation(found);
    return CLI_DONE;
}

static bool is_number(const char *word)
{
    return *word && strspn(word, "0123456789") == strlen(word);
}

/* Numbers are explained one by one; anything else is one message. */
static int explain_words(int count, char **words)
{
    bool numbers = true;
    for (int i = 0; i < count; i++)
        numbers &= is_number(words[i]);
    if (!numbers) {
        char query[4096];
        join(count, words, query, sizeof query);
        return explain(query);
    }
    int code = CLI_DONE;
    for (int i = 0; i < count; i++) {
        if (i)
            putchar('\n');
        code |= explain(words[i]);
    }
    return code;
}

int cmd_explain(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : "";
    if (!strcmp(first, "--help") || !strcmp(first, "-h")) {
        print_usage(stdout);
        return CLI_DONE;
    }
    if (!strcmp(first, "--list"))
        return print_all();
    if (*first && *first != '-')
        return explain_words(argc - 1, argv + 1);
    if (*first)
        fprintf(stderr, "reprise explain: no option '%s'; 'reprise explain --help' tells more\n",
                first);
    else
        fprintf(stderr, "reprise explain: give a number, a name or a message; "
                        "'reprise explain --help' tells more\n");
    return CLI_USAGE;
}
