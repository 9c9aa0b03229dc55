/* SPDX-License-Identifier: MIT */
#include "reads/containers.h"

#include <assert.h>

/* CPython's, without their names. */
struct list {
    PyObject head;
    Py_ssize_t size;
    PyObject **items;
    Py_ssize_t room;
};

struct entry {
    PyObject *key; /* NULL: never used; else a member, or the interpreter's sign of a removed one */
    Py_hash_t hash; /* -1: removed */
};

struct set {
    PyObject head;
    Py_ssize_t fill, used, mask;
    struct entry *table; /* of mask + 1 entries: `inside` while they do */
    Py_hash_t hash;
    Py_ssize_t finger;
    struct entry inside[8];
    PyObject *weak_references;
};

enum { SMALL = 3, LARGE = 40, MOST_SLOTS = 1 << 20 };

static struct {
    bool lists, sets; /* are their layouts proved? */
} known;

static bool is_member(const struct entry *entry)
{
    return entry->key && entry->hash != -1;
}

/* ---- The proof ----------------------------------------------------------------------------- */

/* A list or a set of the numbers below `count`; NULL with an exception set. */
static PyObject *numbers(PyObject *made, int (*add)(PyObject *made, PyObject *number), long count)
{
    for (long i = 0; made && i < count; i++) {
        PyObject *number = PyLong_FromLong(i);
        if (!number || add(made, number) != 0)
            Py_CLEAR(made);
        Py_XDECREF(number);
    }
    return made;
}

/* What a type says of the size of its objects; 0 with an exception set. */
static size_t size_of(PyTypeObject *type)
{
    PyObject *bytes = PyObject_GetAttrString((PyObject *)type, "__basicsize__");
    size_t size = bytes ? PyLong_AsSize_t(bytes) : 0;
    Py_XDECREF(bytes);
    return size;
}

static bool is_address(const void *pointer)
{
    return pointer && (uintptr_t)pointer % sizeof(void *) == 0;
}

/* Are the counts what they are of a set of `count` members? Looks at nothing but the object. */
static bool has_counts(const struct set *set, Py_ssize_t count)
{
    return set->fill == count && set->used == count && set->mask > count &&
           set->mask < MOST_SLOTS && (set->mask & (set->mask + 1)) == 0 && is_address(set->table);
}

/* Are the entries those of a set of the numbers below `count`? */
static bool has_entries(const struct set *set, Py_ssize_t count)
{
    Py_ssize_t found = 0;
    for (Py_ssize_t at = 0; at <= set->mask; at++)
        if (is_member(&set->table[at])) {
            if (Py_TYPE(set->table[at].key) != &PyLong_Type ||
                PyLong_AsLong(set->table[at].key) != (long)set->table[at].hash)
                return false;
            found++;
        }
    return found == count;
}

/* A small set has its table inside, which proves where the pointer is before it is followed. */
static bool are_sets_proved(PyObject *small, PyObject *large)
{
    const struct set *inside = (const void *)small, *outside = (const void *)large;
    return has_counts(inside, SMALL) && inside->table == inside->inside &&
           has_entries(inside, SMALL) && has_counts(outside, LARGE) &&
           outside->table != outside->inside && has_entries(outside, LARGE);
}

/* Is a list of the numbers below `count` what it should be? Its counts are looked at first: where
 * they are right, the word between them is the pointer. */
static bool has_items(const struct list *list, Py_ssize_t count)
{
    bool has_room = list->size == count && list->room >= count && list->room < MOST_SLOTS;
    if (!has_room || !is_address(list->items))
        return false;
    for (Py_ssize_t i = 0; i < count; i++)
        if (list->items[i] != PyList_GetItem((PyObject *)(uintptr_t)list, i))
            return false;
    return true;
}

/* An empty one has no items, and no room. */
static bool are_lists_proved(PyObject *empty, PyObject *small, PyObject *large)
{
    const struct list *none = (const void *)empty;
    return none->size == 0 && !none->items && none->room == 0 &&
           has_items((const void *)small, SMALL) && has_items((const void *)large, LARGE);
}

void rpp_containers_prepare(void)
{
    rpp_assert_gil();
    bool fits = size_of(&PySet_Type) == sizeof(struct set);
    PyObject *small = fits ? numbers(PySet_New(NULL), PySet_Add, SMALL) : NULL;
    PyObject *large = fits ? numbers(PySet_New(NULL), PySet_Add, LARGE) : NULL;
    known.sets = small && large && are_sets_proved(small, large);
    Py_XDECREF(small);
    Py_XDECREF(large);
    fits = size_of(&PyList_Type) == sizeof(struct list);
    PyObject *empty = fits ? PyList_New(0) : NULL;
    small = fits ? numbers(PyList_New(0), PyList_Append, SMALL) : NULL;
    large = fits ? numbers(PyList_New(0), PyList_Append, LARGE) : NULL;
    known.lists = empty && small && large && are_lists_proved(empty, small, large);
    Py_XDECREF(empty);
    Py_XDECREF(small);
    Py_XDECREF(large);
    PyErr_Clear();
}

/* ---- Words --------------------------------------------------------------------------------- */

static void add_head(struct rpp_container *container, const void *at)
{
    const uint64_t *word = at;
    container->heads[container->head_count++] = (struct rpp_word){word, *word};
}

static void add_member(struct rpp_container *container, PyObject *const *at)
{
    const uint64_t *word = (const void *)at;
    PyTuple_SetItem(container->kept, (Py_ssize_t)container->member_count, Py_NewRef(*at));
    container->members[container->member_count++] = (struct rpp_word){word, *word};
}

/* Of one that has no members its size says all. */
static void take_list(const struct list *list, struct rpp_container *out)
{
    add_head(out, &list->size);
    if (list->size)
        add_head(out, &list->items);
    for (Py_ssize_t i = 0; i < list->size; i++)
        add_member(out, &list->items[i]);
}

/* All members at their places, and none more. A table that was made anew may get the same address,
 * with another mask. */
static void take_set(const struct set *set, struct rpp_container *out)
{
    add_head(out, &set->used);
    if (set->used) {
        add_head(out, &set->table);
        add_head(out, &set->mask);
    }
    for (Py_ssize_t at = 0; at <= set->mask && out->member_count < (size_t)set->used; at++)
        if (is_member(&set->table[at]))
            add_member(out, &set->table[at].key);
}

/* As the container has it: a class derived from list may say anything. */
static Py_ssize_t count_of(PyObject *object, bool is_list)
{
    return is_list ? ((const struct list *)(const void *)object)->size
                   : ((const struct set *)(const void *)object)->used;
}

/* Making a tuple may run what collects garbage, so members are counted again behind it. */
bool rpp_container_take(PyObject *object, struct rpp_container *out)
{
    rpp_assert_gil();
    bool is_list = known.lists && PyList_Check(object);
    bool is_set = known.sets && Py_TYPE(object) == &PySet_Type;
    *out = (struct rpp_container){0};
    if (!is_list && !is_set)
        return false;
    Py_ssize_t count = count_of(object, is_list);
    out->kept = PyTuple_New(count);
    out->members = out->kept ? PyMem_Calloc((size_t)count + 1, sizeof *out->members) : NULL;
    if (!out->members || count_of(object, is_list) != count) {
        rpp_container_drop(out);
        PyErr_Clear();
        return false;
    }
    if (is_list)
        take_list((const void *)object, out);
    else
        take_set((const void *)object, out);
    assert(out->member_count == (size_t)count);
    return true;
}

void rpp_container_drop(struct rpp_container *container)
{
    rpp_assert_gil();
    Py_CLEAR(container->kept);
    PyMem_Free(container->members);
    *container = (struct rpp_container){0};
}
