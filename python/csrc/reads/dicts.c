/* SPDX-License-Identifier: MIT */
#include "reads/dicts.h"

/* CPython's, without their names. */
struct dict {
    PyObject head;
    Py_ssize_t used;
    uint64_t tag;
    const void *table;
    const uint64_t *values; /* of a dict that shares its table of keys; NULL: the table has them */
};

struct table_310 {
    Py_ssize_t users, size;
    void *look_up;
    Py_ssize_t room, count;
    char indices[]; /* one for each of `size`, then the entries: hash, key, value */
};

/* Entries of kind 0 are as those; the others have no hash. */
struct table_311 {
    Py_ssize_t users;
    uint8_t log2_size, log2_bytes, kind;
    uint32_t version;
    Py_ssize_t room, count;
    char indices[]; /* of 2^log2_bytes bytes, then the entries */
};

enum { SMALL = 3, LARGE = 300 };

static enum { UNKNOWN, AS_310, AS_311 } layout;

/* Words of a table's entries, behind so many bytes of indices. */
static struct rpp_region entries_of(const char *indices, size_t bytes, size_t words)
{
    return (struct rpp_region){(const void *)(indices + bytes), words};
}

static size_t bytes_of_index(Py_ssize_t size)
{
    return size <= 0xff ? 1 : size <= 0xffff ? 2 : size <= 0xffffffffL ? 4 : 8;
}

/* One that shares its table has as many values as items, in the order of the keys there. */
static void places_310(const struct dict *dict, struct rpp_places *out)
{
    const struct table_310 *table = dict->table;
    size_t count = (size_t)(dict->values ? dict->used : table->count);
    size_t bytes = (size_t)table->size * bytes_of_index(table->size);
    out->stride = 3;
    out->first = 1;
    out->regions[RPP_IN_TABLE] = entries_of(table->indices, bytes, count * out->stride);
    out->values = SIZE_MAX;
    if (dict->values) {
        out->values = 0;
        out->regions[RPP_IN_VALUES] = (struct rpp_region){dict->values, count};
    }
}

/* One that shares its table has a value for each key there, or none yet; ahead of them are, from the
 * last byte to the first, the number of these bytes, that of items, and the items' keys in order. */
static void places_311(const struct dict *dict, struct rpp_places *out)
{
    const struct table_311 *table = dict->table;
    bool has_hashes = table->kind == 0;
    size_t count = (size_t)table->count;
    out->stride = has_hashes ? 3 : 2;
    out->first = has_hashes;
    out->regions[RPP_IN_TABLE] =
        entries_of(table->indices, (size_t)1 << table->log2_bytes, count * out->stride);
    out->values = SIZE_MAX;
    if (dict->values) {
        const uint8_t *values = (const void *)dict->values;
        out->values = values[-1] / sizeof *dict->values;
        out->regions[RPP_IN_VALUES] =
            (struct rpp_region){dict->values - out->values, out->values + count};
        out->orders = (const int8_t *)values - 3;
    }
}

bool rpp_places_of(PyObject *object, struct rpp_places *out)
{
    rpp_assert_gil();
    const struct dict *dict = (const void *)object;
    *out = (struct rpp_places){.used = dict->used};
    if (layout == AS_310)
        places_310(dict, out);
    else if (layout == AS_311)
        places_311(dict, out);
    return layout != UNKNOWN;
}

/* Entries lie behind a table's indices, of which a dict this small has two bytes an item at most. */
void rpp_prefetch_places(PyObject *object)
{
    enum { HEADER = 40, MOST_COUNT = 64, BYTES_AN_ITEM = 2 + 3 * sizeof(uint64_t) };
    const struct dict *dict = (const void *)object;
    size_t count = (size_t)dict->used;
    if (layout == UNKNOWN || count > MOST_COUNT)
        return;
    rpp_prefetch(dict->table, HEADER + count * BYTES_AN_ITEM);
    if (dict->values)
        rpp_prefetch(dict->values, count * sizeof *dict->values);
}

static PyObject *object_at(const struct rpp_places *places, size_t region, size_t word)
{
    return (PyObject *)(uintptr_t)places->regions[region].at[word];
}

bool rpp_item_next(const struct rpp_places *places, struct rpp_item *item)
{
    bool shares = places->values != SIZE_MAX;
    size_t count =
        shares ? (size_t)places->used : places->regions[RPP_IN_TABLE].count / places->stride;
    while (item->next < count) {
        size_t at = item->next++;
        size_t place = places->orders ? (size_t)places->orders[-(ptrdiff_t)at] : at;
        size_t key = places->first + place * places->stride;
        item->region = shares ? RPP_IN_VALUES : RPP_IN_TABLE;
        item->word = shares ? places->values + place : key + 1;
        item->key = object_at(places, RPP_IN_TABLE, key);
        item->value = object_at(places, item->region, item->word);
        if (item->value)
            return true;
    }
    return false;
}

/* ---- The proof ----------------------------------------------------------------------------- */

/* Are its items those that the interpreter goes through? */
static bool is_right(PyObject *dict)
{
    struct rpp_places places;
    struct rpp_item item = {0};
    PyObject *key, *value;
    if (!rpp_places_of(dict, &places) || places.used != PyDict_Size(dict))
        return false;
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);)
        if (!rpp_item_next(&places, &item) || key != item.key || value != item.value)
            return false;
    return !rpp_item_next(&places, &item);
}

static PyObject *key_of(long number, bool are_texts)
{
    return are_texts ? PyUnicode_FromFormat("k%ld", number) : PyLong_FromLong(number);
}

/* Sets keys `from` to `to` of a mapping, or deletes them. */
static bool change(PyObject *object, long from, long to, bool are_texts, PyObject *value)
{
    for (long i = from; i < to; i++) {
        PyObject *key = key_of(i, are_texts);
        int done = !key     ? -1
                   : !value ? PyObject_DelItem(object, key)
                            : PyObject_SetItem(object, key, value);
        Py_XDECREF(key);
        if (done != 0)
            return false;
    }
    return true;
}

/* Also of one that lost some and got others, whose entries have gaps. */
static bool is_kind_right(long count, bool are_texts)
{
    PyObject *dict = PyDict_New();
    bool right = dict && is_right(dict) && change(dict, 0, count, are_texts, Py_True) &&
                 is_right(dict) && change(dict, 0, count / 2, are_texts, NULL) && is_right(dict) &&
                 change(dict, count, count + 2, are_texts, Py_False) && is_right(dict);
    Py_XDECREF(dict);
    return right;
}

/* Of objects of one class, which share a table of keys: one that sets them in their order, and one
 * that sets them in another. */
static bool are_shared_right(void)
{
    PyObject *type = PyObject_CallFunction((PyObject *)&PyType_Type, "s(){}", "Probe");
    bool right = type;
    for (int way = 0; right && way < 3; way++) {
        PyObject *object = PyObject_CallNoArgs(type);
        right = object && PyObject_SetAttrString(object, way == 1 ? "b" : "a", Py_True) == 0 &&
                PyObject_SetAttrString(object, way == 1 ? "a" : "b", Py_False) == 0 &&
                PyObject_SetAttrString(object, "c", Py_None) == 0;
        PyObject *dict = right ? PyObject_GetAttrString(object, "__dict__") : NULL;
        right = dict && is_right(dict);
        right = right && (way < 2 || PyObject_DelAttrString(object, "b") == 0) && is_right(dict) &&
                PyObject_SetAttrString(object, "d", Py_None) == 0 && is_right(dict);
        Py_XDECREF(dict);
        Py_XDECREF(object);
    }
    Py_XDECREF(type);
    return right;
}

void rpp_dicts_prepare(void)
{
    rpp_assert_gil();
    PyObject *version = PySys_GetObject("hexversion"); /* borrowed */
    unsigned long series = version ? PyLong_AsUnsignedLongMask(version) >> 16 : 0;
    PyObject *size = PyObject_GetAttrString((PyObject *)&PyDict_Type, "__basicsize__");
    if (size && PyLong_AsSize_t(size) == sizeof(struct dict))
        layout = series == 0x030a ? AS_310 : series == 0x030b ? AS_311 : UNKNOWN;
    Py_XDECREF(size);
    bool right = is_kind_right(SMALL, true) && is_kind_right(SMALL, false) &&
                 is_kind_right(LARGE, true) && is_kind_right(LARGE, false) && are_shared_right();
    if (!right)
        layout = UNKNOWN;
    PyErr_Clear();
}

PyObject *rpp_are_dicts_known(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(layout != UNKNOWN);
}
