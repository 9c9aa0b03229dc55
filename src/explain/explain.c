/* SPDX-License-Identifier: MIT
 *
 * Finding an explanation by number, name or message. The table is explanations.def (codes,
 * symptoms, statuses), then obstacles.def (kinds of obstacles), operators.def (of PyTorch) and
 * calls.def (of the driver). What others say of these is in messages.def and topics.def. The last
 * three are found by their whole names first of all; names of operators and calls within a message
 * only where nothing else in it is known. Calls are known by the runtime's names too, and operators
 * as the methods that programs call.
 */
#include "explain/explain.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define L(...)                                                                                     \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define HOST_READ       "the host reads a device value"
#define DATA_SHAPE      "a shape depends on device values"
#define HOST_READ_KIND  "host-read"
#define DATA_SHAPE_KIND "data-shape"
#define WHERE           "it is called within the region that is captured, by the program or a library"
#define CHECK                                                                                      \
    "reprise.check(fn, *args) in PyTorch, `reprise check` or rp_check in C name each such call, "  \
    "with its place"
static const struct rp_explanation table[] = {
#define X(key, code, title, meaning, causes, mends)                                                \
    {key, code, title, meaning, causes, mends, NULL},
#include "explain/explanations.def"
#undef X
#define X(key, title, meaning, causes, mends) {key, 0, title, meaning, causes, mends, NULL},
#include "explain/obstacles.def"
#undef X
#define X(name, class, mend)                                                                       \
    {name,     0,       class,       "The host waits for the device in this operator: " class ".", \
     L(WHERE), L(mend), class##_KIND},
#include "explain/operators.def"
#undef X
#define X(function, kind, what, mend)                                                              \
    {function, 0,       what, "This call has no place in what is captured: " what ".",             \
     L(WHERE), L(mend), kind},
#include "explain/calls.def"
#undef X
};
#undef L
#undef HOST_READ
#undef DATA_SHAPE
#undef HOST_READ_KIND
#undef DATA_SHAPE_KIND
#undef WHERE
#undef CHECK

/* How many entries each of the four lists has. */
#define X(...) +1
enum {
    EXPLANATIONS = 0
#include "explain/explanations.def"
    ,
    OBSTACLES = 0
#include "explain/obstacles.def"
    ,
    COUNT = sizeof table / sizeof *table
};
#undef X

static const struct rpi_call_explanation calls[] = {
#define X(function, kind, what, mend) {function, kind, what, mend},
#include "explain/calls.def"
#undef X
};

const struct rpi_call_explanation *rpi_explanation_of_call(const char *function)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i].function, function) == 0)
            return &calls[i];
    return NULL;
}

const struct rp_explanation *rp_explanation_at(size_t index)
{
    return index < COUNT ? &table[index] : NULL;
}

const struct rp_explanation *rpi_explanation_of_code(int driver_code)
{
    for (size_t i = 0; driver_code && i < EXPLANATIONS; i++)
        if (table[i].code == driver_code)
            return &table[i];
    return NULL;
}

/* Case and the difference between '-', '_' and a blank do not matter; "cudaErrorStreamCapture..."
 * of the runtime is CUDA_ERROR_STREAM_CAPTURE... without the underscores. */
static char fold(char c)
{
    return c == '_' || c == '-' || c == ' ' ? '\0' : (char)tolower((unsigned char)c);
}

/* Whether `part` occurs in `text` after folding. */
static int occurs(const char *text, const char *part)
{
    for (; *text; text++) {
        const char *t = text, *p = part;
        while (*p) {
            if (!fold(*p)) {
                p++;
            } else if (!fold(*t) && *t) {
                t++;
            } else if (*t && fold(*t) == fold(*p)) {
                t++;
                p++;
            } else {
                break;
            }
        }
        if (!*p)
            return 1;
    }
    return 0;
}

/* Whether the text before a number ends in "error" or "code", as in "CUDA error: 700". */
static int is_announced(const char *text, const char *number)
{
    static const char *const words[] = {"error", "code"};
    while (number > text && !isalnum((unsigned char)number[-1]))
        number--;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i]);
        if ((size_t)(number - text) >= length && !strncasecmp(number - length, words[i], length))
            return 1;
    }
    return 0;
}

/* A code of the table that stands by itself: those of captures anywhere, others only where they are
 * all there is or are called an error. */
static const struct rp_explanation *find_number(const char *text)
{
    enum { FIRST_OF_CAPTURE = 900 };
    for (const char *at = text; *at;) {
        if (!isdigit((unsigned char)*at)) {
            at++;
            continue;
        }
        char *end;
        unsigned long code = strtoul(at, &end, 10);
        const struct rp_explanation *found =
            code <= 999 ? rpi_explanation_of_code((int)code) : NULL;
        int alone = at == text && !end[strspn(end, " ")];
        if (found && (alone || code >= FIRST_OF_CAPTURE || is_announced(text, at)))
            return found;
        at = end;
    }
    return NULL;
}

/* The longest name that occurs, of the entries from `first` to before `end`:
 * CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, not one that it contains. */
static const struct rp_explanation *find_longest(const char *text, size_t first, size_t end)
{
    const struct rp_explanation *found = NULL;
    for (size_t i = first; i < end; i++)
        if (occurs(text, table[i].key) && (!found || strlen(table[i].key) > strlen(found->key)))
            found = &table[i];
    return found;
}

/* The entry whose name is all of the text. */
static const struct rp_explanation *find_whole(const char *text)
{
    for (size_t i = 0; i < COUNT; i++)
        if (occurs(text, table[i].key) && occurs(table[i].key, text))
            return &table[i];
    return NULL;
}

/* ---- By what is said ----------------------------------------------------------------------- */

static const struct message {
    const char *text, *key;
} messages[] = {
#define X(text, key) {text, key},
#include "explain/messages.def"
#undef X
};

static const struct message topics[] = {
#define X(word, key) {word, key},
#include "explain/topics.def"
#undef X
};

const char *rpi_explanation_topic(const struct rp_explanation *e, size_t index)
{
    for (size_t i = 0; i < sizeof topics / sizeof *topics; i++)
        if (!strcmp(topics[i].key, e->key) && index-- == 0)
            return topics[i].text;
    return NULL;
}

/* The entry of the longest message that occurs. */
static const struct rp_explanation *find_message(const char *text)
{
    const struct message *found = NULL;
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        if (occurs(text, messages[i].text) &&
            (!found || strlen(messages[i].text) > strlen(found->text)))
            found = &messages[i];
    return found ? find_whole(found->key) : NULL;
}

/* Whether `text` is in `message`, or, where asked, all of it but for "CUDA error: ". */
static int is_piece(const char *message, const char *text, int all)
{
    static const char lead[] = "CUDA error: ";
    if (!all)
        return occurs(message, text);
    return !strcasecmp(text, message + (strstr(message, lead) == message ? strlen(lead) : 0));
}

/* A piece of a message, as people remember it: "illegal memory access". It must lead to one entry
 * only, or be all of a message: "operation not supported", which is in two. */
static const struct rp_explanation *find_piece(const char *text)
{
    enum { SHORTEST = 12 };
    for (int all = 1; all >= 0 && strlen(text) >= SHORTEST; all--) {
        const struct message *found = NULL;
        int agree = 1;
        for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
            if (!is_piece(messages[i].text, text, all))
                continue;
            agree &= !found || !strcmp(found->key, messages[i].key);
            found = &messages[i];
        }
        if (found)
            return agree ? find_whole(found->key) : NULL;
    }
    return NULL;
}

static int in_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The code whose title occurs, the longest: what the host driver says of an error, and reports. */
static const struct rp_explanation *find_title(const char *text)
{
    const struct rp_explanation *found = NULL;
    for (size_t i = 0; i < EXPLANATIONS; i++)
        if (table[i].code > 0 && occurs(text, table[i].title) &&
            (!found || strlen(table[i].title) > strlen(found->title)))
            found = &table[i];
    return found;
}

/* A name that stands in the text as a whole word. */
static const struct rp_explanation *find_topic(const char *text)
{
    for (size_t i = 0; i < sizeof topics / sizeof *topics; i++) {
        size_t length = strlen(topics[i].text);
        for (const char *at = text; (at = strcasestr(at, topics[i].text)); at++)
            if ((at == text || !in_name(at[-1])) && !in_name(at[length]))
                return find_whole(topics[i].key);
    }
    return NULL;
}

/* Codes, symptoms and statuses by name, or by the driver's own text for them. */
static const struct rp_explanation *find_name(const char *text)
{
    const struct rp_explanation *found = find_longest(text, 0, EXPLANATIONS);
    /* The runtime's names leave CUDA_ERROR_ out: cudaErrorStreamCaptureUnjoined. */
    for (size_t i = 0; !found && i < EXPLANATIONS; i++)
        if (table[i].code > 0 && occurs(text, table[i].key + strlen("CUDA_")))
            found = &table[i];
    return found ? found : find_message(text);
}

/* The entry of an operator or a call: its name is `prefix` and `length` characters of `name`. */
static const struct rp_explanation *find_call(const char *prefix, const char *name, size_t length)
{
    size_t ahead = strlen(prefix);
    for (size_t i = EXPLANATIONS + OBSTACLES; i < COUNT; i++) {
        const char *key = table[i].key;
        if (strlen(key) == ahead + length && !strncmp(key, prefix, ahead) &&
            !strncmp(key + ahead, name, length))
            return &table[i];
    }
    return NULL;
}

/* What a function of the runtime is for the driver, where a message holds its whole name: as
 * profilers and PyTorch name calls. */
static const struct rp_explanation *find_runtime_call(const char *text)
{
    static const struct {
        const char *runtime, *driver; /* without cuda and cu */
    } renamed[] = {
        {"DeviceSynchronize", "CtxSynchronize"},
        {"Malloc", "MemAlloc"},
        {"MallocPitch", "MemAllocPitch"},
        {"MallocManaged", "MemAllocManaged"},
        {"MallocHost", "MemAllocHost"},
        {"HostAlloc", "MemHostAlloc"},
        {"HostRegister", "MemHostRegister"},
        {"Free", "MemFree"},
        {"FreeHost", "MemFreeHost"},
    };
    const struct rp_explanation *found = NULL;
    for (const char *at = text; !found && (at = strstr(at, "cuda"));) {
        int within = at > text && isalnum((unsigned char)at[-1]);
        const char *name = at + strlen("cuda"), *end = name;
        while (isalnum((unsigned char)*end))
            end++;
        size_t length = (size_t)(end - name);
        at = end;
        if (within)
            continue;
        found = find_call("cu", name, length);
        for (size_t i = 0; !found && i < sizeof renamed / sizeof *renamed; i++)
            if (strlen(renamed[i].runtime) == length && !strncmp(renamed[i].runtime, name, length))
                found = find_call("cu", renamed[i].driver, strlen(renamed[i].driver));
    }
    return found;
}

/* A method or function of PyTorch, written as in a program: ".item()", "torch.nonzero(x)". */
static const struct rp_explanation *find_method(const char *text)
{
    static const struct {
        const char *method, *key;
    } others[] = {
        {"cpu", "host-read"},
        {"numpy", "host-read"},
        {"tolist", "host-read"},
        {"synchronize", "synchronisation"},
        {"manual_seed", "random-state"},
        {"unique", "aten::_unique2"},
    };
    size_t length = strcspn(text, "(");
    if (strcspn(text, " ") < length || (!text[length] && !strchr(text, '.')))
        return NULL;
    const char *end = text + length, *name = end;
    while (name > text && (isalnum((unsigned char)name[-1]) || name[-1] == '_'))
        name--;
    length = (size_t)(end - name);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strlen(others[i].method) == length && !strncmp(others[i].method, name, length))
            return find_whole(others[i].key);
    return find_call("aten::", name, length);
}

const struct rp_explanation *rp_explain(const char *query)
{
    if (!query)
        return NULL;
    const struct rp_explanation *found = find_whole(query);
    if (!found)
        found = find_name(query);
    if (!found)
        found = find_number(query);
    if (!found)
        found = find_runtime_call(query);
    if (!found)
        found = find_method(query);
    if (!found)
        found = find_longest(query, EXPLANATIONS + OBSTACLES, COUNT);
    if (!found)
        found = find_piece(query);
    if (!found)
        found = find_title(query);
    return found ? found : find_topic(query);
}
