/* SPDX-License-Identifier: MIT */
#include "reads/marks.h"

#include <dlfcn.h>
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
} state = {.watcher = -1};

static struct rpp_mark **link_of(const PyObject *dict)
{
    struct rpp_mark **link = &state.buckets[((uintptr_t)dict >> 4) * 2654435761U % BUCKETS];
    while (*link && (*link)->dict != dict)
        link = &(*link)->next;
    return link;
}

static uint64_t *word_of(struct rpp_mark *mark, Py_hash_t hash, uint64_t *out_bit)
{
    uint64_t mixed = (uint64_t)hash * 0x9E3779B97F4A7C15U;
    *out_bit = 1ULL << (mixed >> 58);
    return &mark->keys[(mixed >> 52) % RPP_KEY_WORDS];
}

/* Strings know their hash; of others it would be Python that tells it. */
static bool matters(struct rpp_mark *mark, PyObject *key)
{
    uint64_t bit;
    if (!key || !PyUnicode_CheckExact(key))
        return true;
    uint64_t *word = word_of(mark, PyObject_Hash(key), &bit);
    return *word & bit;
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
    rpp_mark_changes++;
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

static struct rpp_mark *create(PyObject *dict)
{
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
        memset(mark->keys, 0xFF, sizeof mark->keys);
    for (Py_ssize_t i = 0; keys && i < PyTuple_Size(keys); i++) {
        uint64_t bit;
        uint64_t *word = word_of(mark, PyObject_Hash(PyTuple_GetItem(keys, i)), &bit);
        *word |= bit;
    }
    return mark;
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
    PyMem_Free(mark);
}

PyObject *rpp_dict_tag_of(PyObject *module, PyObject *dict)
{
    (void)module;
    if (!PyDict_Check(dict))
        return PyErr_Format(PyExc_TypeError, "dict_tag takes a dict");
    return PyLong_FromUnsignedLongLong(rpp_dict_tag(dict));
}
