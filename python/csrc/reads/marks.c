/* SPDX-License-Identifier: MIT */
#include "reads/marks.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Of CPython 3.12 and later, which the stable interface does not have. */
enum { DICT_ADDED = 0, DICT_MODIFIED = 1, DICT_DELETED = 2, DICT_DEALLOCATED = 5 };
enum { BUCKETS = 4096 };
typedef int (*dict_callback)(int event, PyObject *dict, PyObject *key, PyObject *value);

uint64_t rpp_mark_changes;

static struct {
    int watcher; /* -1: none */
    int (*watch)(int watcher, PyObject *dict);
    int (*unwatch)(int watcher, PyObject *dict);
    struct rpp_mark *buckets[BUCKETS];
    const struct rpp_mark *moved[RPP_MARKS_KEPT]; /* by the number of the change */
} state = {.watcher = -1};

static struct rpp_mark **link_of(const PyObject *dict)
{
    struct rpp_mark **link = &state.buckets[((uintptr_t)dict >> 4) * 2654435761U % BUCKETS];
    while (*link && (*link)->dict != dict)
        link = &(*link)->next;
    return link;
}

static uint64_t *filter_word(struct rpp_mark *mark, Py_hash_t hash, uint64_t *out_bit)
{
    uint64_t mixed = (uint64_t)hash * 0x9E3779B97F4A7C15U;
    *out_bit = 1ULL << (mixed >> 58);
    return &mark->filter[(mixed >> 52) % RPP_FILTER_WORDS];
}

/* Where a hash is among those that matter, or would be. */
static size_t place_of(const struct rpp_mark *mark, Py_hash_t hash)
{
    size_t low = 0, high = mark->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (mark->hashes[middle] < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_known(const struct rpp_mark *mark, size_t place, Py_hash_t hash)
{
    return place < mark->count && mark->hashes[place] == hash;
}

/* Strings know their hash; of others it would be Python that tells it. */
static bool matters(struct rpp_mark *mark, PyObject *key)
{
    uint64_t bit;
    if (mark->all_matter || !key || !PyUnicode_CheckExact(key))
        return true;
    Py_hash_t hash = PyObject_Hash(key);
    const uint64_t *word = filter_word(mark, hash, &bit);
    return (*word & bit) && is_known(mark, place_of(mark, hash), hash);
}

/* False without memory. */
static bool add_hash(struct rpp_mark *mark, Py_hash_t hash)
{
    uint64_t bit;
    size_t place = place_of(mark, hash);
    if (is_known(mark, place, hash))
        return true;
    Py_hash_t *grown = PyMem_Realloc(mark->hashes, (mark->count + 1) * sizeof *grown);
    if (!grown)
        return false;
    memmove(grown + place + 1, grown + place, (mark->count - place) * sizeof *grown);
    grown[place] = hash;
    mark->hashes = grown;
    mark->count++;
    uint64_t *word = filter_word(mark, hash, &bit);
    *word |= bit;
    return true;
}

static int on_dict_event(int event, PyObject *dict, PyObject *key, PyObject *value)
{
    (void)value;
    struct rpp_mark **link = link_of(dict), *mark = *link;
    if (!mark)
        return 0;
    bool single = event == DICT_ADDED || event == DICT_MODIFIED || event == DICT_DELETED;
    if (single && !matters(mark, key))
        return 0;
    mark->version++;
    state.moved[rpp_mark_changes++ % RPP_MARKS_KEPT] = mark;
    if (event == DICT_DEALLOCATED) { /* another may get its place */
        *link = mark->next;
        mark->dict = NULL;
    }
    return 0;
}

void rpp_marks_prepare(void)
{
    int (*add)(dict_callback callback);
    void *found = dlsym(RTLD_DEFAULT, "PyDict_AddWatcher");
    void *watch = dlsym(RTLD_DEFAULT, "PyDict_Watch");
    void *unwatch = dlsym(RTLD_DEFAULT, "PyDict_Unwatch");
    if (!found || !watch || !unwatch)
        return;
    memcpy(&add, &found, sizeof found);
    memcpy(&state.watch, &watch, sizeof watch);
    memcpy(&state.unwatch, &unwatch, sizeof unwatch);
    state.watcher = add(on_dict_event);
    if (state.watcher < 0) /* all of the interpreter's few are taken */
        PyErr_Clear();
}

/* ---- Dicts whose values lie elsewhere --------------------------------------------------------- */

enum { VALUES_WORD = 5 }; /* of a dict, behind its head, its counts and its keys */

static bool gives_tables;

static bool has_values_elsewhere(const PyObject *dict)
{
    return ((const uint64_t *)(const void *)dict)[VALUES_WORD] != 0;
}

static PyObject *last_key(PyObject *dict)
{
    PyObject *key = NULL;
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, NULL);)
        continue;
    return key;
}

/* Takes the last item of a dict out and puts it back, whereupon it has a table of its own. No code
 * of the program's runs meanwhile. */
static void give_table(PyObject *dict)
{
    PyObject *key = PyDict_CheckExact(dict) ? last_key(dict) : NULL;
    if (!key || !PyUnicode_CheckExact(key))
        return;
    PyObject *item = PyObject_CallMethod(dict, "popitem", NULL);
    if (item && PyDict_SetItem(dict, PyTuple_GetItem(item, 0), PyTuple_GetItem(item, 1)) != 0)
        PyErr_WriteUnraisable(dict);
    Py_XDECREF(item);
    PyErr_Clear();
}

/* give_tables(object): an instance whose dict has its values in the object. Are marked dicts given
 * tables from now on? */
PyObject *rpp_give_tables(PyObject *module, PyObject *object)
{
    rpp_assert_gil();
    (void)module;
    PyObject *dict = PyObject_GenericGetDict(object, NULL), *plain = PyDict_New();
    bool is_known = dict && plain && PyDict_SetItem(plain, Py_None, Py_None) == 0 &&
                    has_values_elsewhere(dict) && !has_values_elsewhere(plain);
    if (is_known)
        give_table(dict);
    gives_tables = is_known && !has_values_elsewhere(dict);
    Py_XDECREF(dict);
    Py_XDECREF(plain);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(gives_tables);
}

static struct rpp_mark *create(PyObject *dict)
{
    if (gives_tables && has_values_elsewhere(dict)) {
        give_table(dict);
        if (has_values_elsewhere(dict)) /* of an instance without attributes yet */
            return NULL;
    }

    struct rpp_mark *mark = PyMem_Calloc(1, sizeof *mark);
    if (!mark)
        return NULL;
    if (state.watch(state.watcher, dict) != 0) {
        PyErr_Clear();
        PyMem_Free(mark);
        return NULL;
    }
    struct rpp_mark **link = link_of(dict);
    mark->dict = dict;
    mark->next = *link;
    return *link = mark;
}

struct rpp_mark *rpp_mark_take(PyObject *dict, PyObject *keys)
{
    rpp_assert_gil();
    if (state.watcher < 0)
        return NULL;
    struct rpp_mark *mark = *link_of(dict);
    if (!mark && !(mark = create(dict)))
        return NULL;
    mark->users++;
    if (!keys)
        mark->all_matter = true;
    for (Py_ssize_t i = 0; keys && i < PyTuple_Size(keys); i++)
        if (!add_hash(mark, PyObject_Hash(PyTuple_GetItem(keys, i))))
            mark->all_matter = true;
    return mark;
}

void rpp_mark_keep(struct rpp_mark *mark)
{
    rpp_assert_gil();
    if (mark)
        mark->users++;
}

void rpp_mark_drop(struct rpp_mark *mark)
{
    rpp_assert_gil();
    if (!mark || --mark->users)
        return;
    if (mark->dict) {
        struct rpp_mark **link = link_of(mark->dict);
        *link = mark->next;
        if (state.unwatch(state.watcher, mark->dict) != 0)
            PyErr_Clear();
    }
    PyMem_Free(mark->hashes);
    PyMem_Free(mark);
}

/* ---- Which moved, and whose they are -------------------------------------------------------- */

size_t rpp_marks_moved(uint64_t since, const struct rpp_mark *out_moved[RPP_MARKS_KEPT])
{
    rpp_assert_gil();
    size_t count = 0;
    if (rpp_mark_changes - since > RPP_MARKS_KEPT)
        return SIZE_MAX;
    for (; since != rpp_mark_changes; since++) {
        const struct rpp_mark *mark = state.moved[since % RPP_MARKS_KEPT];
        if (count == 0 || out_moved[count - 1] != mark)
            out_moved[count++] = mark;
    }
    return count;
}

bool rpp_marked_reserve(struct rpp_marked *marked, size_t most)
{
    rpp_assert_gil();
    *marked = (struct rpp_marked){.list = PyMem_Calloc(most + 1, sizeof *marked->list)};
    return marked->list != NULL;
}

void rpp_marked_add(struct rpp_marked *marked, const struct rpp_mark *mark, size_t owner)
{
    marked->list[marked->count++] = (struct rpp_marked_one){mark, owner};
}

static int compare(const void *a, const void *b)
{
    const struct rpp_marked_one *x = a, *y = b;
    if (x->mark != y->mark)
        return (uintptr_t)x->mark < (uintptr_t)y->mark ? -1 : 1;
    return x->owner < y->owner ? -1 : x->owner > y->owner;
}

void rpp_marked_settle(struct rpp_marked *marked)
{
    qsort(marked->list, marked->count, sizeof *marked->list, compare);
}

size_t rpp_marked_find(const struct rpp_marked *marked, const struct rpp_mark *mark)
{
    size_t low = 0, high = marked->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((uintptr_t)marked->list[middle].mark < (uintptr_t)mark)
            low = middle + 1;
        else
            high = middle;
    }
    return low < marked->count && marked->list[low].mark == mark ? low : marked->count;
}

void rpp_marked_drop(struct rpp_marked *marked)
{
    PyMem_Free(marked->list);
    *marked = (struct rpp_marked){0};
}

static bool instances_have_tags;

bool rpp_instances_have_tags(void)
{
    return instances_have_tags;
}

PyObject *rpp_trust_tags(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    rpp_assert_gil();
    instances_have_tags = true;
    return Py_NewRef(Py_None);
}

PyObject *rpp_dict_tag_of(PyObject *module, PyObject *dict)
{
    rpp_assert_gil();
    (void)module;
    if (!PyDict_Check(dict))
        return PyErr_Format(PyExc_TypeError, "dict_tag takes a dict");
    return PyLong_FromUnsignedLongLong(rpp_dict_tag(dict));
}
