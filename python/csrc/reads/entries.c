/* SPDX-License-Identifier: MIT */
#include "reads/entries.h"

#include "reads/dicts.h"

/* A value that matters and is known by a weak reference. */
struct weak {
    size_t region, word;
    PyObject *known; /* borrowed */
};

/* One block of memory, in the order of its use. */
struct rpp_entries {
    Py_ssize_t used;
    size_t first_value; /* of its own; SIZE_MAX: it shares no table */
    struct had {
        size_t count;
        uint64_t *words; /* as they were when the dict last held */
        bool *matters;   /* does the word? */
    } regions[RPP_REGIONS];
    struct weak *weak;
    size_t weak_count;
    PyObject *kept; /* a list of keys, numbers and texts: nothing else gets their addresses */
};

static PyObject *led_to(PyObject *known)
{
    return PyWeakref_CheckRefExact(known) ? PyWeakref_GetObject(known) : known;
}

static bool is_plain(PyObject *value)
{
    return PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyUnicode_CheckExact(value) ||
           PyBytes_CheckExact(value);
}

static bool is_same_text(PyObject *a, PyObject *b)
{
    return a == b || (PyUnicode_CheckExact(a) && PyUnicode_Compare(a, b) == 0);
}

/* What is known of this key's value; NULL: nothing. */
static PyObject *known_of(PyObject *key, size_t at, const struct rpp_known *known)
{
    if (!known->keys)
        return PyTuple_GetItem(known->values, (Py_ssize_t)at);
    for (Py_ssize_t i = 0; i < PyTuple_Size(known->keys); i++)
        if (is_same_text(PyTuple_GetItem(known->keys, i), key))
            return PyTuple_GetItem(known->values, i);
    return NULL;
}

/* ---- Taking -------------------------------------------------------------------------------- */

/* Makes room for what the dict has, each value of which may be known so many times. NULL without
 * memory. */
static struct rpp_entries *reserve(const struct rpp_places *places, size_t times)
{
    const struct rpp_region *in = places->regions;
    size_t words = in[RPP_IN_TABLE].count + in[RPP_IN_VALUES].count;
    size_t most_weak = (size_t)places->used * times;
    struct rpp_entries *made =
        PyMem_Calloc(1, sizeof *made + words * (sizeof(uint64_t) + sizeof(bool)) +
                            most_weak * sizeof *made->weak);
    if (!made)
        return NULL;
    uint64_t *next_words = (void *)(made + 1);
    made->weak = (void *)(next_words + words);
    bool *next_matters = (void *)(made->weak + most_weak);
    for (size_t i = 0; i < RPP_REGIONS; i++) {
        made->regions[i] = (struct had){in[i].count, next_words, next_matters};
        next_words += in[i].count;
        next_matters += in[i].count;
    }
    made->used = places->used;
    made->first_value = places->values;
    made->kept = PyList_New(0);
    return made;
}

/* All matter but the values of which nothing is known. */
static void copy(struct rpp_entries *entries, const struct rpp_places *places)
{
    for (size_t i = 0; i < RPP_REGIONS; i++)
        for (size_t word = 0; word < entries->regions[i].count; word++) {
            entries->regions[i].words[word] = places->regions[i].at[word];
            entries->regions[i].matters[word] = true;
        }
    for (struct rpp_item item = {0}; rpp_item_next(places, &item);)
        entries->regions[item.region].matters[item.word] = false;
}

static bool is_there(const struct rpp_entries *entries, const struct weak *weak)
{
    uint64_t word = entries->regions[weak->region].words[weak->word];
    return (uintptr_t)PyWeakref_GetObject(weak->known) == word;
}

/* Notes that a value matters. False: it is not what is known, or there is no memory. */
static bool note(struct rpp_entries *entries, const struct rpp_item *item, PyObject *known)
{
    PyObject *value = item->value;
    entries->regions[item->region].matters[item->word] = true;
    if (known == value)
        return true;
    if (value != Py_None && led_to(known) == value) {
        entries->weak[entries->weak_count++] = (struct weak){item->region, item->word, known};
        return true;
    }
    /* It held, so another object is an equal number or text. */
    return is_plain(value) && PyList_Append(entries->kept, value) == 0;
}

static bool take_item(struct rpp_entries *entries, const struct rpp_item *item, size_t at,
                      const struct rpp_known *known, size_t count)
{
    bool noted = PyUnicode_CheckExact(item->key) && PyList_Append(entries->kept, item->key) == 0;
    for (size_t i = 0; noted && i < count; i++) {
        PyObject *what = known_of(item->key, at, &known[i]);
        noted = !what || note(entries, item, what);
    }
    return noted;
}

struct rpp_entries *rpp_entries_take(PyObject *dict, const struct rpp_known *known, size_t count)
{
    rpp_assert_gil();
    struct rpp_places places;
    if (!rpp_places_of(dict, &places))
        return NULL;
    struct rpp_entries *made = reserve(&places, count);
    bool taken = made && made->kept;
    if (taken)
        copy(made, &places);
    struct rpp_item item = {0};
    for (size_t at = 0; taken && rpp_item_next(&places, &item); at++)
        taken = take_item(made, &item, at, known, count);
    PyErr_Clear();
    if (taken)
        return made;
    rpp_entries_drop(made);
    return NULL;
}

/* ---- Looking ------------------------------------------------------------------------------- */

/* Notes another value of a key that does not matter, so that the next look finds it as it is. */
static bool takes(struct had *had, const uint64_t *now, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        if (now[i] == had->words[i])
            continue;
        if (had->matters[i])
            return false;
        had->words[i] = now[i];
    }
    return true;
}

/* Most words are what they were: eight are compared at once. */
static bool region_holds(struct had *had, const uint64_t *now)
{
    enum { AT_ONCE = 8 };
    size_t i = 0;
    for (; i + AT_ONCE <= had->count; i += AT_ONCE) {
        uint64_t differs = 0;
        for (size_t j = 0; j < AT_ONCE; j++)
            differs |= now[i + j] ^ had->words[i + j];
        if (differs && !takes(had, now, i, i + AT_ONCE))
            return false;
    }
    return takes(had, now, i, had->count);
}

/* A table that is shared gets the keys of others, behind those that were there. */
static bool has_room(const struct rpp_entries *entries, const struct rpp_places *places, size_t i)
{
    size_t had = entries->regions[i].count, now = places->regions[i].count;
    return places->values == SIZE_MAX ? now == had : now >= had;
}

bool rpp_entries_hold(struct rpp_entries *entries, PyObject *dict)
{
    rpp_assert_gil();
    struct rpp_places places;
    if (!rpp_places_of(dict, &places) || places.used != entries->used ||
        places.values != entries->first_value)
        return false;
    for (size_t i = 0; i < RPP_REGIONS; i++)
        if (!has_room(entries, &places, i) ||
            !region_holds(&entries->regions[i], places.regions[i].at))
            return false;
    for (size_t i = 0; i < entries->weak_count; i++)
        if (!is_there(entries, &entries->weak[i]))
            return false;
    return true;
}

/* How much there is, it does not know before it has it. */
void rpp_entries_prefetch(const struct rpp_entries *entries, PyObject *dict)
{
    enum { MOST = 512 }; /* bytes, of some 20 items */
    if (!entries)
        return;
    rpp_prefetch(entries, MOST);
    rpp_prefetch_places(dict);
}

void rpp_entries_drop(struct rpp_entries *entries)
{
    rpp_assert_gil();
    if (!entries)
        return;
    Py_XDECREF(entries->kept);
    PyMem_Free(entries);
}
