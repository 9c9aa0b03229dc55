/* SPDX-License-Identifier: MIT
 *
 * Variables and settings by name, and what a name that is not known was meant to be: the nearest
 * one by the edits that lead to it (Damerau and Levenshtein, adjacent letters swapped count once).
 */
#include "doctor.h"

#include "reprise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

struct known {
    const char *name, *effect;
};

static const struct known variables[] = {
#define X(name, effect) {name, effect},
#include "doctor_env.def"
#undef X
    {"REPRISE_LIBCUDA", "the file that is loaded as NVIDIA's driver"}, {NULL, NULL}};

static const char *const prefixes[] = {"CUDA_", "NCCL_", "TORCH_", "PYTORCH_", "REPRISE_", NULL};

static const struct known settings[] = {
    {"backend", "cudaMallocAsync cannot be planned: leave it native"},
    {"expandable_segments", "fewer fragments in eager memory; pools of captures keep their own"},
    {"graph_capture_record_stream_reuse",
     "PyTorch's captures reuse memory that other streams are done with"},
    {"garbage_collection_threshold", "gives back unused memory before the limit"},
    {"max_split_size_mb", ""},
    {"max_non_split_rounding_mb", ""},
    {"roundup_power2_divisions", "rounds sizes up: captures need more than they ask for"},
    {"per_process_memory_fraction", "limits what eager work may hold"},
    {"large_segment_size_mb", ""},
    {"release_lock_on_cudamalloc", ""},
    {"pinned_use_cuda_host_register", ""},
    {"pinned_num_register_threads", ""},
    {"pinned_use_background_threads",
     "a thread that queries events: captures must be thread-local"},
    {"pinned_reserve_segment_size_mb", ""},
    {"throw_on_cudamalloc_oom", ""},
    {"expandable_segments_reserve", ""},
    {NULL, NULL}};

/* With these no capture works. */
static const struct {
    const char *name, *value; /* NULL: any that is not empty, and not 0 */
} stops[] = {{"PYTORCH_NO_CUDA_MEMORY_CACHING", NULL},
             {"TORCH_NCCL_BLOCKING_WAIT", NULL},
             {"backend", "cudaMallocAsync"}};

enum { LONGEST = 63 };

static bool is_stop(const char *name, const char *value)
{
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (strcmp(stops[i].name, name) == 0)
            return stops[i].value ? strcmp(stops[i].value, value) == 0
                                  : *value && strcmp(value, "0") != 0;
    return false;
}

/* Edits from a to b; both at most LONGEST letters. */
static int distance(const char *a, const char *b)
{
    int rows[3][LONGEST + 2], lengths[2] = {(int)strlen(a), (int)strlen(b)};
    for (int j = 0; j <= lengths[1]; j++)
        rows[0][j] = j;
    for (int i = 1; i <= lengths[0]; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *over = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= lengths[1]; j++) {
            int best = above[j - 1] + (a[i - 1] != b[j - 1]);
            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                over[j - 2] + 1 < best)
                best = over[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[lengths[0] % 3][lengths[1]];
}

/* The nearest name, when it is near enough to have been meant. */
static const struct known *nearest(const struct known *all, const char *name)
{
    size_t length = strlen(name);
    int least = length < 8 ? 2 : 3; /* fewer edits than this */
    const struct known *found = NULL;
    for (const struct known *k = all; k->name; k++) {
        int edits = strlen(k->name) <= LONGEST && length <= LONGEST ? distance(name, k->name) : 99;
        if (edits >= least)
            continue;
        least = edits;
        found = k;
    }
    return found;
}

static const struct known *find(const struct known *all, const char *name)
{
    for (const struct known *k = all; k->name; k++)
        if (strcmp(k->name, name) == 0)
            return k;
    return NULL;
}

/* Notes what is known of a name; one that is neither known nor near to one that is only where
 * `all_names` says so. */
static void note(struct doctor_facts *facts, const struct known *all, const char *name,
                 const char *value, bool all_names)
{
    const struct known *known = find(all, name);
    const struct known *meant = known ? NULL : nearest(all, name);
    if ((known && !known->effect[0] && !all_names) || (!known && !meant && !all_names))
        return;
    if (facts->count == sizeof facts->fact / sizeof *facts->fact)
        return;
    struct doctor_fact *fact = &facts->fact[facts->count++];
    memset(fact, 0, sizeof *fact);
    snprintf(fact->name, sizeof fact->name, "%.63s", name);
    snprintf(fact->value, sizeof fact->value, "%.127s", value);
    fact->misspelled = !known && (meant || all == variables);
    fact->stops = known && is_stop(name, value);
    if (known)
        snprintf(fact->says, sizeof fact->says, "%s", known->effect);
    else if (meant)
        snprintf(fact->says, sizeof fact->says, "no such name; %s may be meant", meant->name);
    else
        snprintf(fact->says, sizeof fact->says, "not a name that Reprise knows");
}

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

void doctor_environment(struct doctor_facts *facts)
{
    for (char **entry = environ; entry && *entry; entry++) {
        char name[LONGEST + 1];
        size_t length = strcspn(*entry, "=");
        bool matters = false;
        for (const char *const *prefix = prefixes; *prefix; prefix++)
            matters |= has_prefix(*entry, *prefix);
        if (!matters || length > LONGEST || (*entry)[length] != '=')
            continue;
        snprintf(name, sizeof name, "%.*s", (int)length, *entry);
        note(facts, variables, name, *entry + length + 1, has_prefix(name, "REPRISE_"));
    }
}

/* One "key:value"; a comma within brackets belongs to the value. */
static size_t setting_length(const char *text)
{
    size_t length = 0;
    for (int depth = 0; text[length] && (text[length] != ',' || depth > 0); length++)
        depth += (text[length] == '[') - (text[length] == ']');
    return length;
}

void doctor_alloc_conf(struct doctor_facts *facts)
{
    const char *text = getenv("PYTORCH_ALLOC_CONF");
    if (!text)
        text = getenv("PYTORCH_CUDA_ALLOC_CONF");
    while (text && *text) {
        char name[LONGEST + 1], value[128];
        text += strspn(text, " ,");
        size_t length = setting_length(text), key = strcspn(text, ":,");
        if (key > length)
            key = length;
        snprintf(name, sizeof name, "%.*s", (int)key, text);
        name[strcspn(name, " ")] = '\0';
        snprintf(value, sizeof value, "%.*s", (int)(length - key), text + key);
        if (name[0])
            note(facts, settings, name, value[0] == ':' ? value + 1 : value, true);
        text += length;
    }
}
