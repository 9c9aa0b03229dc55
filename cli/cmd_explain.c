/* SPDX-License-Identifier: MIT
 *
 * reprise explain: what a capture error or symptom is, why it comes, what to do.
 */
#include "base/text.h"
#include "cli.h"
#include "explain_near.h"
#include "options.h"
#include "output.h"

#include "reprise.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_usage(FILE *out)
{
    fprintf(out,
            "usage: reprise explain [--json] NUMBER|NAME|MESSAGE...\n"
            "       reprise explain [--json] --list\n\n"
            "Tells what an error of a CUDA graph capture, a symptom of graphs, or a call that\n"
            "cannot be captured is, why it usually comes and what to do:\n\n"
            "    reprise explain 901\n"
            "    reprise explain CUDA error: operation not permitted when stream is capturing\n"
            "    reprise explain memory-grows-with-shapes\n"
            "    reprise explain cudaStreamSynchronize\n"
            "    reprise explain '.item()'\n\n"
            "  --list    all that is known\n"
            "  --json    print one JSON object and nothing else\n\n"
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

/* Says that nothing is known, and lists the entries whose names are nearest. */
static void print_near(const char *query)
{
    const struct rp_explanation *near[EXPLAIN_MOST_NEAR];
    size_t count = explain_near(query, near);
    fprintf(stderr,
            "reprise explain: nothing is known of '%s'; 'reprise explain --list' shows what is%s",
            query, count ? "; nearest are:\n" : "\n");
    for (size_t i = 0; i < count; i++)
        print_entry(stderr, near[i]);
}

/* ---- As data ------------------------------------------------------------------------------- */

static void write_list(const char *key, const char *const *items)
{
    printf(",\"%s\":[", key);
    for (size_t i = 0; items[i]; i++) {
        fputs(i ? "," : "", stdout);
        cli_json_text(stdout, items[i]);
    }
    fputs("]", stdout);
}

static void write_text(const char *key, const char *text)
{
    printf("\"%s\":", key);
    cli_json_text(stdout, text);
}

static void write_explanation(const struct rp_explanation *e)
{
    fputs("{", stdout);
    write_text("key", e->key);
    printf(",\"code\":%d,", e->code);
    write_text("title", e->title);
    fputs(",", stdout);
    write_text("meaning", e->meaning);
    write_list("causes", e->causes);
    write_list("mends", e->mends);
    fputs("}", stdout);
}

static void write_near(const char *query)
{
    const struct rp_explanation *near[EXPLAIN_MOST_NEAR];
    size_t count = explain_near(query, near);
    fputs(",\"near\":[", stdout);
    for (size_t i = 0; i < count; i++) {
        fputs(i ? "," : "", stdout);
        cli_json_text(stdout, near[i]->key);
    }
    fputs("]", stdout);
}

static int write_all(void)
{
    const struct rp_explanation *e;
    printf("{\"format\":\"reprise-explain/1\",\"known\":[");
    for (size_t i = 0; (e = rp_explanation_at(i)); i++) {
        fputs(i ? ",\n" : "\n", stdout);
        write_explanation(e);
    }
    puts("]}");
    return CLI_DONE;
}

/* One of the answers. */
static int write_answer(const char *query)
{
    const struct rp_explanation *found = rp_explain(query);
    fputs("{", stdout);
    write_text("query", query);
    fputs(",\"explanation\":", stdout);
    if (found) {
        write_explanation(found);
    } else {
        fputs("null", stdout);
        write_near(query);
    }
    fputs("}", stdout);
    return found ? CLI_DONE : CLI_NO;
}

/* ---- The command --------------------------------------------------------------------------- */

/* The arguments joined by blanks, so that a message need not be quoted; to be freed. However long:
 * in a traceback that is pasted the error comes last. */
static char *join(int count, char **words)
{
    size_t bytes = 1, used = 0;
    for (int i = 0; i < count; i++)
        bytes += strlen(words[i]) + 1;
    char *all = malloc(bytes);
    for (int i = 0; all && i < count; i++)
        used += (size_t)snprintf(all + used, bytes - used, "%s%s", i ? " " : "", words[i]);
    return all;
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

/* Numbers are answered one by one; anything else is one message. `answer` prints one, `between`
 * stands between two. */
static int answer_words(int count, char **words, int (*answer)(const char *), const char *between)
{
    bool numbers = true;
    for (int i = 0; i < count; i++)
        numbers &= is_number(words[i]);
    if (!numbers) {
        char *query = join(count, words);
        if (!query) {
            fprintf(stderr, "reprise explain: no host memory\n");
            return CLI_USAGE;
        }
        rpi_text_mask(query, strlen(query)); /* it may be quoted; what is masked is in no message */
        int code = answer(query);
        free(query);
        return code;
    }
    int code = CLI_DONE;
    for (int i = 0; i < count; i++) {
        fputs(i ? between : "", stdout);
        code |= answer(words[i]);
    }
    return code;
}

static int write_answers(int count, char **words)
{
    printf("{\"format\":\"reprise-explain/1\",\"answers\":[");
    int code = answer_words(count, words, write_answer, ",\n");
    puts("]}");
    return code;
}

/* Takes --json out of the words, wherever it is; returns how many are left. */
static int take_json(int count, char **words, bool *out_json)
{
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (strcmp(words[i], "--json") != 0)
            words[kept++] = words[i];
    *out_json = kept < count;
    return kept;
}

int cmd_explain(int argc, char **argv)
{
    static const struct option names[] = {{"help", no_argument, NULL, 'h'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"list", no_argument, NULL, 'l'},
                                          {NULL, 0, NULL, 0}};
    bool json;
    argc = take_json(argc - 1, ++argv, &json);
    const char *first = argc > 0 ? argv[0] : "";
    if (!strcmp(first, "--help") || !strcmp(first, "-h")) {
        print_usage(stdout);
        return CLI_DONE;
    }
    if (!strcmp(first, "--list"))
        return json ? write_all() : print_all();
    if (*first && *first != '-')
        return json ? write_answers(argc, argv) : answer_words(argc, argv, explain, "\n");
    if (*first)
        cli_refuse_option("explain", names, first);
    else
        cli_refuse("explain", "give a number, a name or a message");
    return CLI_USAGE;
}
