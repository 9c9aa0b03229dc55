/* SPDX-License-Identifier: MIT */
#include "reads/reads.h"

#include "base/gradient_address.h"
#include "base/tensor_address.h"
#include "reads/containers.h"
#include "reads/context.h"
#include "reads/descriptors.h"
#include "reads/dicts.h"
#include "reads/entries.h"
#include "reads/functions.h"
#include "reads/layouts.h"
#include "reads/marks.h"
#include "reads/order.h"
#include "reads/tags.h"
#include "reads/words.h"

#include <assert.h>
#include <string.h>

enum kind {
    NAMES,
    ITEMS,
    LIST,
    CELL,
    FUNCTION,
    TYPE,
    TENSOR,
    DATA,
    ATTRIBUTES,
    CALL,
    SET,
    DICT,
    VARIABLE,
    KINDS
};
enum { SIZE_CHANGED = -1 };

/* When words are looked at: in each call, or when what they are words of was told to change. */
enum group { EACH_CALL, OF_INSTANCES, OF_NAMES, GROUPS };
static const enum rpp_told told_of[GROUPS] = {
    [OF_INSTANCES] = RPP_INSTANCES, [OF_NAMES] = RPP_NAMES};

struct owner {
    enum kind kind;
    enum rpp_way_to_look way;
    PyObject *object; /* of a TENSOR, and of ATTRIBUTES of one, a weak reference may be here, */
    PyObject *keys,
        *values; /* tuples; keys: NULL where the kind has none. Tensors among the values as well */
    struct rpp_mark *mark; /* RPP_BY_WATCHER */
    PyObject *ordered;     /* RPP_BY_ORDER: what a CALL tells the order of */
    uint64_t seen;         /* the mark's version, or the tag, when it held */
    struct rpp_tensor_place place;
    uint64_t form;  /* of a TENSOR: sizes, strides, and whether it wants a gradient */
    size_t word_at; /* one more than the number of its first word; 0: it has none */
    size_t head_at; /* likewise of a LIST and a SET, which have words of containers */
    size_t member_at, head_count, member_count; /* of these: the number of the first, and counts */
    PyObject *kept;                             /* likewise: the members that those words name */
    bool unowned;                               /* the object: there is no reference to it */
    bool is_told;     /* of a FUNCTION or a VARIABLE: looked at when any was changed */
    bool is_closed;   /* of a CELL: no code sets it any more */
    enum group group; /* which words are its own */
};

/* A dict that programs write other keys to. */
struct written {
    struct rpp_entries *entries; /* NULL: keys are asked for one by one */
    unsigned noted;              /* how often */
};

/* Owners as they were set at once. A look holds them: what runs meanwhile may set others. */
struct owners {
    size_t users, count, always_count;
    size_t *always;                                 /* which are looked at in each call */
    struct rpp_words words[GROUPS], heads, members; /* of containers the latter (containers.h) */
    struct rpp_tags tags;                           /* of owners RPP_BY_TAG */
    bool tags_held;                                 /* at least once */
    struct written *written;              /* of each of these; NULL: none was written to */
    struct rpp_marked marked;             /* owners RPP_BY_WATCHER */
    uint64_t seen;                        /* rpp_mark_changes when those with marks held */
    uint64_t functions_seen;              /* rpp_function_changes when functions did */
    uint64_t told_seen[GROUPS];           /* rpp_told_changes when those words held */
    bool has_variables;                   /* that are told of */
    struct rpp_context_seen context_seen; /* when these held */
    struct owner list[];
};

struct reads {
    PyObject_HEAD struct owners *owners;
    const struct dl_exchange *exchange; /* NULL: PyTorch has none */
    uint64_t epoch;
    bool is_blind; /* looks at nothing: for benchmarks */
};

static PyTypeObject *reads_type;

/* ---- Values -------------------------------------------------------------------------------- */

static bool same_bits(PyObject *a, PyObject *b)
{
    double x = PyFloat_AsDouble(a), y = PyFloat_AsDouble(b);
    return memcmp(&x, &y, sizeof x) == 0;
}

/* Are they one object, or equal numbers, strings or bytes of one type? */
static bool same(PyObject *a, PyObject *b)
{
    if (a == b)
        return true;
    if (Py_TYPE(a) != Py_TYPE(b))
        return false;
    if (PyFloat_CheckExact(a))
        return same_bits(a, b);
    if (PyLong_CheckExact(a) || PyUnicode_CheckExact(a) || PyBytes_CheckExact(a))
        return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
    return false;
}

static PyObject *value_at(const struct owner *owner, size_t i)
{
    return PyTuple_GetItem(owner->values, (Py_ssize_t)i);
}

/* Memory of the device is the program's to free: tensors there are known by weak references. What
 * one leads to, borrowed, None where that is gone; anything else is itself. */
static PyObject *led_to(PyObject *known)
{
    return PyWeakref_CheckRefExact(known) ? PyWeakref_GetObject(known) : known;
}

static size_t value_count(const struct owner *owner)
{
    return (size_t)PyTuple_Size(owner->values);
}

/* ---- What an owner has now ----------------------------------------------------------------- */

/* A new reference, `absent` included; NULL with an exception set. */
static PyObject *new_or_absent(PyObject *value)
{
    return Py_NewRef(value ? value : rpp_absent);
}

static PyObject *attribute(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return value;
    PyErr_Clear();
    return Py_NewRef(rpp_absent);
}

static PyObject *name_now(const struct owner *owner, size_t i)
{
    PyObject *key = PyTuple_GetItem(owner->keys, (Py_ssize_t)i);
    PyObject *value = PyDict_GetItemWithError(owner->object, key);
    return value || !PyErr_Occurred() ? new_or_absent(value) : NULL;
}

/* The value that an owner of a kind without an order has now. */
static PyObject *value_now(const struct owner *owner, size_t i)
{
    switch (owner->kind) {
    case NAMES:
        return name_now(owner, i);
    case CELL:
        return rpp_cell_value(owner->object);
    case VARIABLE:
        return rpp_variable_value(owner->object);
    case FUNCTION:
        return rpp_function_part(owner->object, i);
    case TYPE:
        return Py_NewRef((PyObject *)Py_TYPE(owner->object));
    case SET:
        return Py_NewRef(owner->object);
    case DICT:
        return PyObject_GenericGetDict(owner->object, NULL);
    case ATTRIBUTES:
        return attribute(led_to(owner->object), PyTuple_GetItem(owner->keys, (Py_ssize_t)i));
    default:
        return PyObject_CallObject(owner->object, NULL);
    }
}

/* ---- Do owners hold? ----------------------------------------------------------------------- */

/* Calls may return what is made anew each time: they are compared as Python does. */
static bool value_holds(const struct owner *owner, size_t i, PyObject *now)
{
    PyObject *known = value_at(owner, i);
    if (known == now || (now != Py_None && led_to(known) == now))
        return true;
    if (owner->kind == CALL || owner->kind == SET)
        return PyObject_RichCompareBool(known, now, Py_EQ) == 1;
    return same(known, now);
}

/* Notes what differs: (owner, entry, value now); entry -1: of another size. False with an exception
 * set. */
static bool note(PyObject *changes, size_t owner, Py_ssize_t entry, PyObject *now)
{
    PyObject *change = Py_BuildValue("(nnO)", (Py_ssize_t)owner, entry, now ? now : Py_None);
    bool noted = change && PyList_Append(changes, change) == 0;
    Py_XDECREF(change);
    return noted;
}

/* Looks at one owner: true where it holds. Where it does not, changes, unless NULL, have all that
 * differs; an exception may be set. */
static bool values_hold(struct owner *owner, size_t which, PyObject *changes)
{
    bool held = true;
    for (size_t i = 0; i < value_count(owner); i++) {
        PyObject *now = value_now(owner, i);
        bool holds = now && value_holds(owner, i, now);
        bool go_on = holds || (now && changes && note(changes, which, (Py_ssize_t)i, now));
        Py_XDECREF(now);
        held = held && holds;
        if (!go_on)
            return false;
    }
    return held;
}

static bool list_holds(struct owner *owner, size_t which, PyObject *changes)
{
    bool held = true;
    if (PyList_Size(owner->object) != (Py_ssize_t)value_count(owner)) {
        if (changes)
            note(changes, which, SIZE_CHANGED, NULL);
        return false;
    }
    for (size_t i = 0; i < value_count(owner) && (held || changes); i++) {
        PyObject *now = PyList_GetItem(owner->object, (Py_ssize_t)i);
        if (value_holds(owner, i, now))
            continue;
        held = false;
        if (changes && !note(changes, which, (Py_ssize_t)i, now))
            return false;
    }
    return held;
}

static bool items_hold(struct owner *owner, size_t which, PyObject *changes)
{
    PyObject *key, *now;
    Py_ssize_t at = 0;
    bool held = PyDict_Size(owner->object) == (Py_ssize_t)value_count(owner);
    for (size_t i = 0; held && PyDict_Next(owner->object, &at, &key, NULL); i++)
        held = same(PyTuple_GetItem(owner->keys, (Py_ssize_t)i), key);
    if (!held) {
        if (changes)
            note(changes, which, SIZE_CHANGED, NULL);
        return false;
    }
    at = 0;
    for (size_t i = 0; PyDict_Next(owner->object, &at, NULL, &now) && (held || changes); i++) {
        if (value_holds(owner, i, now))
            continue;
        held = false;
        if (changes && !note(changes, which, (Py_ssize_t)i, now))
            return false;
    }
    return held;
}

static bool look(const struct reads *reads, const struct owner *owner, struct dl_tensor *out_tensor)
{
    PyObject *tensor = led_to(owner->object);
    return tensor != Py_None && reads->exchange && reads->exchange->look(tensor, out_tensor) == 0;
}

static struct rpp_tensor_place place_now(const struct reads *reads, const struct owner *owner)
{
    struct dl_tensor tensor;
    struct rpp_tensor_place place = {0};
    if (led_to(owner->object) == Py_None)
        return place;
    if (rpp_tensor_layout.known)
        return rpp_tensor_place(led_to(owner->object));
    if (look(reads, owner, &tensor))
        place.data = rpp_tensor_seen(&tensor);
    return place;
}

/* Does a tensor want a gradient? One that an operation made wants what it wanted when it was made. */
static bool wants_gradient(PyObject *tensor)
{
    if (rpp_gradient_is_known(tensor))
        return rpp_gradient_wish(tensor) == RPP_WANTS_ONE;
    PyObject *wants = PyObject_GetAttrString(tensor, "requires_grad");
    bool is_wanted = wants == Py_True;
    Py_XDECREF(wants);
    PyErr_Clear();
    return is_wanted;
}

/* Sizes and strides, where they are known, and whether it wants a gradient, as a number. */
static uint64_t form_now(const struct owner *owner)
{
    PyObject *tensor = led_to(owner->object);
    if (tensor == Py_None)
        return 0;
    return rpp_tensor_form(tensor) ^ (wants_gradient(tensor) ? UINT64_C(1) << 63 : 0);
}

/* The bytes of a contiguous tensor on the CPU, as they are known? */
static bool data_holds(const struct reads *reads, const struct owner *owner)
{
    struct dl_tensor tensor;
    char *known;
    Py_ssize_t bytes;
    if (!look(reads, owner, &tensor) ||
        PyBytes_AsStringAndSize(value_at(owner, 0), &known, &bytes) != 0)
        return false;
    uint64_t now = tensor.type.bits * tensor.type.lanes / 8;
    for (int32_t i = tensor.rank - 1; i >= 0; i--)
        now *= (uint64_t)tensor.shape[i];
    return now == (uint64_t)bytes &&
           memcmp(known, (const char *)tensor.data + tensor.byte_offset, (size_t)bytes) == 0;
}

static bool owner_holds(const struct reads *reads, struct owner *owner, size_t which,
                        PyObject *changes)
{
    bool held;
    if (owner->kind == ITEMS)
        return items_hold(owner, which, changes);
    if (owner->kind == LIST)
        return list_holds(owner, which, changes);
    if (owner->kind != TENSOR && owner->kind != DATA)
        return values_hold(owner, which, changes);
    if (owner->kind == TENSOR)
        held = rpp_tensor_same_place(place_now(reads, owner), owner->place) &&
               form_now(owner) == owner->form;
    else
        held = data_holds(reads, owner);
    if (!held && changes && !PyErr_Occurred())
        note(changes, which, SIZE_CHANGED, NULL);
    return held;
}

/* Where the mark stands before a look; what changes in its midst is seen by the next one. */
static uint64_t mark_of(const struct owner *owner)
{
    if (owner->way == RPP_BY_WATCHER)
        return owner->mark->version;
    if (owner->way == RPP_BY_ORDER)
        return rpp_order_tag(owner->ordered);
    return owner->way == RPP_BY_TAG ? rpp_dict_tag(owner->object) : 0;
}

static bool is_unmarked(const struct owner *owner)
{
    return owner->way != RPP_BY_VALUE && owner->seen == mark_of(owner);
}

static bool look_at(const struct reads *reads, struct owner *owner, size_t which, PyObject *changes)
{
    if (is_unmarked(owner))
        return true;
    uint64_t mark = mark_of(owner);
    if (!owner_holds(reads, owner, which, changes))
        return false;
    owner->seen = mark;
    return true;
}

/* ---- Words --------------------------------------------------------------------------------- */

/* What the word of a value holds: 0 in an empty cell, for defaults that a function lacks, and for hooks
 * that a tensor never had. */
static uint64_t reference(const struct owner *owner, PyObject *value)
{
    if (owner->kind == CALL) /* of a number */
        return PyLong_AsUnsignedLongLongMask(value);
    bool none_is_missing = owner->kind == FUNCTION || owner->kind == ATTRIBUTES;
    bool is_missing = value == rpp_absent || (none_is_missing && value == Py_None);
    return is_missing ? 0 : (uintptr_t)value;
}

/* Where an owner has a value as a reference; NULL where that is not known. */
static const uint64_t *word_of(const struct owner *owner, size_t i)
{
    switch (owner->kind) {
    case TYPE:
        return rpp_word_of_type(owner->object);
    case CELL:
        return rpp_word_of_cell(owner->object);
    case FUNCTION:
        return rpp_word_of_part(owner->object, i);
    case DICT:
        return rpp_word_of_dict(owner->object);
    case CALL:
        return rpp_word_of_number(owner->object);
    case ATTRIBUTES:
        return rpp_word_of_attribute(owner->object, PyTuple_GetItem(owner->keys, (Py_ssize_t)i));
    default:
        return NULL;
    }
}

/* The attribute by which alone others set what an owner has; NULL: there is none. */
static const char *attribute_of(const struct owner *owner)
{
    if (owner->kind == CELL)
        return owner->is_closed ? "cell_contents" : NULL;
    if (owner->kind == DICT)
        return "__dict__";
    if (owner->kind != ATTRIBUTES || PyTuple_Size(owner->keys) != 1)
        return NULL;
    const char *name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(owner->keys, 0), NULL);
    PyErr_Clear(); /* of what is no name */
    return name;
}

static bool parts_are_told(PyObject *function)
{
    return rpp_attribute_is_told(function, "__code__") &&
           rpp_attribute_is_told(function, "__defaults__") &&
           rpp_attribute_is_told(function, "__kwdefaults__");
}

static enum group group_of(const struct owner *owner, struct rpp_told_types *types)
{
    if (owner->kind == TYPE)
        return rpp_classes_are_told() ? OF_INSTANCES : EACH_CALL;
    if (owner->kind == DICT && rpp_dict_is_told(owner->object, types))
        return OF_INSTANCES;
    if (owner->kind == FUNCTION)
        return parts_are_told(owner->object) ? OF_NAMES : EACH_CALL;
    return rpp_attribute_is_told(owner->object, attribute_of(owner)) ? OF_NAMES : EACH_CALL;
}

static struct rpp_words *words_of(struct owners *owners, const struct owner *owner)
{
    return &owners->words[owner->group];
}

/* Adds the words of an owner that is known by such; false where it is not. */
static bool add_words(struct owners *owners, struct owner *owner, struct rpp_told_types *types)
{
    owner->group = group_of(owner, types);
    struct rpp_words *words = words_of(owners, owner);
    size_t before = words->count, count = value_count(owner);
    for (size_t i = 0; i < count; i++) {
        const uint64_t *at = word_of(owner, i);
        uint64_t value = at ? reference(owner, value_at(owner, i)) : 0;
        if (at && *at == (uintptr_t)value_at(owner, i)) /* a function's text may be None, too */
            value = *at;
        if (!at || *at != value) {
            rpp_words_cut(words, before);
            return false;
        }
        rpp_words_add(words, at, value);
    }
    if (count == 0)
        return false;
    owner->word_at = before + 1;
    return true;
}

/* Changes of functions are told, where that is proved and it is now as it was known. So are those of variables. */
static bool is_told(struct owners *owners, struct owner *owner)
{
    if (owner->kind == VARIABLE) {
        owner->is_told = rpp_contexts_are_known();
        owners->has_variables = owners->has_variables || owner->is_told;
        return owner->is_told;
    }
    if (owner->kind != FUNCTION || !rpp_functions_are_watched())
        return false;
    owner->is_told = values_hold(owner, 0, NULL);
    return owner->is_told;
}

static uint64_t *word_at(struct owners *owners, const struct owner *owner, size_t i)
{
    assert(owner->word_at && i < value_count(owner));
    return &rpp_words_at(words_of(owners, owner), owner->word_at - 1 + i)->value;
}

/* ---- Words of containers --------------------------------------------------------------------- */

/* What a word refers to that is looked at no more. */
static const uint64_t nothing;

/* Members are read behind heads that hold alone. */
static bool container_holds(const struct owners *owners, const struct owner *owner)
{
    return rpp_words_hold_from(&owners->heads, owner->head_at - 1, owner->head_count) &&
           rpp_words_hold_from(&owners->members, owner->member_at, owner->member_count);
}

/* Is what is known what a container held as it was taken? Looked at behind that, so that words of
 * one that changes meanwhile do not hold. A tensor that is known by a weak reference is not kept. */
static bool is_known(const struct owner *owner, const struct rpp_container *taken)
{
    if (owner->kind == SET)
        return PyObject_RichCompareBool(value_at(owner, 0), owner->object, Py_EQ) == 1;
    bool held = taken->member_count == value_count(owner);
    for (size_t i = 0; held && i < taken->member_count; i++)
        held = same(value_at(owner, i), PyTuple_GetItem(taken->kept, (Py_ssize_t)i));
    return held;
}

static void put_words(struct rpp_words *words, size_t number, const struct rpp_word *list,
                      size_t count)
{
    for (size_t i = 0; i < count; i++)
        *rpp_words_at(words, number + i) = list[i];
}

/* Room for the words of a container at the end; false without memory. */
static bool make_room(struct owners *owners, struct owner *owner, const struct rpp_container *taken)
{
    if (!rpp_words_reserve(&owners->heads, taken->head_count) ||
        !rpp_words_reserve(&owners->members, taken->member_count))
        return false;
    owner->head_at = owners->heads.count + 1;
    owner->member_at = owners->members.count;
    owner->head_count = taken->head_count;
    owner->member_count = taken->member_count;
    for (size_t i = 0; i < taken->head_count; i++)
        rpp_words_add(&owners->heads, &nothing, 0);
    for (size_t i = 0; i < taken->member_count; i++)
        rpp_words_add(&owners->members, &nothing, 0);
    return true;
}

/* Takes the words of a LIST or a SET that holds; those that it had are of as many members, or it
 * gets none. False: it has none. */
static bool take_words(struct owners *owners, struct owner *owner)
{
    struct rpp_container taken;
    bool fits =
        (owner->kind == LIST || owner->kind == SET) && rpp_container_take(owner->object, &taken);
    if (!fits)
        return false;
    fits = is_known(owner, &taken);
    if (fits && !owner->head_at)
        fits = make_room(owners, owner, &taken);
    fits =
        fits && taken.head_count == owner->head_count && taken.member_count == owner->member_count;
    if (fits) {
        put_words(&owners->heads, owner->head_at - 1, taken.heads, taken.head_count);
        put_words(&owners->members, owner->member_at, taken.members, taken.member_count);
        PyObject *old = owner->kept;
        owner->kept = Py_NewRef(taken.kept);
        Py_XDECREF(old);
    }
    rpp_container_drop(&taken);
    PyErr_Clear();
    return fits;
}

/* Its words are looked at no more, and it is in each call. */
static void leave_words(struct owners *owners, struct owner *owner)
{
    for (size_t i = 0; i < owner->head_count; i++)
        *rpp_words_at(&owners->heads, owner->head_at - 1 + i) = (struct rpp_word){&nothing, 0};
    for (size_t i = 0; i < owner->member_count; i++)
        *rpp_words_at(&owners->members, owner->member_at + i) = (struct rpp_word){&nothing, 0};
    owner->head_at = owner->head_count = owner->member_count = 0;
    owners->always[owners->always_count++] = (size_t)(owner - owners->list);
    Py_CLEAR(owner->kept);
}

/* Makes the next look see to it that a container has what is known. No size is such a number. */
static void distrust_words(struct owners *owners, const struct owner *owner)
{
    if (owner->head_at)
        rpp_words_at(&owners->heads, owner->head_at - 1)->value = UINT64_MAX;
}

/* ---- All owners ---------------------------------------------------------------------------- */

static void release_owner(const struct owner *owner)
{
    rpp_mark_drop(owner->mark);
    Py_XDECREF(owner->ordered);
    Py_XDECREF(owner->kept);
    if (!owner->unowned)
        Py_XDECREF(owner->object);
    Py_XDECREF(owner->keys);
    Py_XDECREF(owner->values);
}

/* Known values that these borrow are about to be others. */
static void forget_entries(struct owners *owners)
{
    for (size_t i = 0; owners->written && i < owners->tags.count; i++)
        rpp_entries_drop(owners->written[i].entries);
    PyMem_Free(owners->written);
    owners->written = NULL;
}

static void release(struct owners *owners)
{
    if (!owners || --owners->users)
        return;
    for (size_t i = 0; i < owners->count; i++)
        release_owner(&owners->list[i]);
    PyMem_Free(owners->always);
    forget_entries(owners);
    rpp_tags_drop(&owners->tags);
    for (size_t g = 0; g < GROUPS; g++)
        rpp_words_drop(&owners->words[g]);
    rpp_words_drop(&owners->heads);
    rpp_words_drop(&owners->members);
    rpp_marked_drop(&owners->marked);
    rpp_context_forget(&owners->context_seen);
    PyMem_Free(owners);
}

/* Another object may still be an equal number. */
static bool words_hold(const struct reads *reads, struct owners *owners, enum group group)
{
    if (rpp_words_hold(&owners->words[group]))
        return true;
    for (size_t i = 0; i < owners->count; i++)
        if (owners->list[i].word_at && owners->list[i].group == group &&
            !look_at(reads, &owners->list[i], 0, NULL))
            return false;
    return true;
}

static bool told_words_hold(const struct reads *reads, struct owners *owners, enum group group)
{
    assert(group != EACH_CALL);
    uint64_t changes = rpp_told_changes[told_of[group]];
    if (owners->told_seen[group] == changes)
        return true;
    if (!words_hold(reads, owners, group))
        return false;
    owners->told_seen[group] = changes;
    return true;
}

/* One that has other words may still hold: with members that are equal, or elsewhere. */
static bool containers_hold(const struct reads *reads, struct owners *owners)
{
    if (rpp_words_hold(&owners->heads) && rpp_words_hold(&owners->members))
        return true;
    for (size_t i = 0; i < owners->count; i++) {
        struct owner *owner = &owners->list[i];
        if (!owner->head_at || container_holds(owners, owner))
            continue;
        if (!look_at(reads, owner, 0, NULL))
            return false;
        if (!take_words(owners, owner))
            leave_words(owners, owner);
    }
    return true;
}

static PyObject *dict_of(const struct owners *owners, size_t tag)
{
    return rpp_dict_of_tag(owners->tags.list[tag]);
}

static size_t owner_count(const struct owners *owners, size_t tag)
{
    return owners->tags.first[tag + 1] - owners->tags.first[tag];
}

/* One of the owners of a dict. */
static struct owner *owner_of(struct owners *owners, size_t tag, size_t i)
{
    return &owners->list[owners->tags.owners[owners->tags.first[tag] + i]];
}

/* Is it less to go through a dict than to ask for the keys that are read there? */
static bool has_few_entries(struct owners *owners, size_t tag)
{
    enum { ENTRIES_A_KEY = 24 };
    size_t keys = 0;
    for (size_t i = 0; i < owner_count(owners, tag); i++)
        keys += value_count(owner_of(owners, tag, i));
    return (size_t)PyDict_Size(dict_of(owners, tag)) <= ENTRIES_A_KEY * keys;
}

/* Notes the entries of a dict whose owners hold: it is written to, and will be again. One whose values
 * that matter are other objects each time is asked for its keys in the end. */
static void note_entries(struct owners *owners, size_t tag)
{
    enum { MOST_OWNERS = 16, MOST_TIMES = 8 };
    struct rpp_known known[MOST_OWNERS];
    size_t count = owner_count(owners, tag);
    if (!owners->written)
        owners->written = PyMem_Calloc(owners->tags.count, sizeof *owners->written);
    if (!owners->written)
        return;
    struct written *written = &owners->written[tag];
    rpp_entries_drop(written->entries);
    written->entries = NULL;
    if (count > MOST_OWNERS || written->noted == MOST_TIMES || !has_few_entries(owners, tag))
        return;
    for (size_t i = 0; i < count; i++) {
        const struct owner *owner = owner_of(owners, tag, i);
        known[i] = (struct rpp_known){owner->kind == NAMES ? owner->keys : NULL, owner->values};
    }
    written->entries = rpp_entries_take(dict_of(owners, tag), known, count);
    written->noted++;
}

static bool owners_hold(const struct reads *reads, struct owners *owners, size_t tag)
{
    for (size_t i = 0; i < owner_count(owners, tag); i++)
        if (!look_at(reads, owner_of(owners, tag, i), 0, NULL))
            return false;
    return true;
}

/* A dict that was written to may still hold: another key of it was set. */
static bool dict_holds(const struct reads *reads, struct owners *owners, size_t tag)
{
    struct rpp_entries *entries = owners->written ? owners->written[tag].entries : NULL;
    if (entries && rpp_entries_hold(entries, dict_of(owners, tag)))
        return true;
    if (!owners_hold(reads, owners, tag))
        return false;
    if (owners->tags_held)
        note_entries(owners, tag);
    return true;
}

static bool all_hold_by(const struct reads *reads, struct owners *owners, enum rpp_way_to_look way)
{
    for (size_t i = 0; i < owners->count; i++)
        if (owners->list[i].way == way && !look_at(reads, &owners->list[i], 0, NULL))
            return false;
    return true;
}

/* They are waited for together, not one after the other: a launch has had the caches since they were
 * last gone through. */
static void prefetch_moved(const struct owners *owners, const struct rpp_moved *moved)
{
    for (size_t i = 0; owners->written && i < moved->count; i++)
        rpp_entries_prefetch(owners->written[moved->dicts[i]].entries,
                             dict_of(owners, moved->dicts[i]));
}

static bool moved_hold(const struct reads *reads, struct owners *owners,
                       const struct rpp_moved *moved)
{
    const struct rpp_tags *tags = &owners->tags;
    prefetch_moved(owners, moved);
    for (size_t i = 0; i < moved->count; i++)
        if (!dict_holds(reads, owners, moved->dicts[i]))
            return false;
    for (size_t i = moved->end; i < tags->count; i++)
        if (*tags->list[i] > tags->seen && !dict_holds(reads, owners, i))
            return false;
    return true;
}

static bool tags_hold(const struct reads *reads, struct owners *owners)
{
    struct rpp_moved moved;
    if (!owners->tags.list)
        return all_hold_by(reads, owners, RPP_BY_TAG);
    if (!rpp_tags_moved(&owners->tags, &moved))
        return true;
    if (!moved_hold(reads, owners, &moved))
        return false;
    /* What was written to while dicts were asked for keys has a greater one. */
    rpp_tags_see(&owners->tags, moved.greatest);
    owners->tags_held = true;
    return true;
}

/* Looks at those of a kind whose changes are told. */
static bool told_hold(const struct reads *reads, struct owners *owners, enum kind kind)
{
    for (size_t i = 0; i < owners->count; i++)
        if (owners->list[i].is_told && owners->list[i].kind == kind &&
            !look_at(reads, &owners->list[i], 0, NULL))
            return false;
    return true;
}

static bool functions_hold(const struct reads *reads, struct owners *owners)
{
    uint64_t changes = rpp_function_changes;
    if (owners->functions_seen == changes)
        return true;
    if (!told_hold(reads, owners, FUNCTION))
        return false;
    owners->functions_seen = changes;
    return true;
}

/* What is compared may run code that sets variables: the next look sees that. */
static bool variables_hold(const struct reads *reads, struct owners *owners)
{
    if (!owners->has_variables || rpp_context_holds(&owners->context_seen))
        return true;
    rpp_context_see(&owners->context_seen);
    if (told_hold(reads, owners, VARIABLE))
        return true;
    rpp_context_forget(&owners->context_seen);
    return false;
}

/* Makes the next look go over all owners that have marks. */
static void see_none(struct owners *owners)
{
    owners->seen = rpp_mark_changes - RPP_MARKS_KEPT - 1;
}

/* Which owner has which mark. Without memory all are looked at when any mark has moved. */
static void find_marked(struct owners *owners)
{
    rpp_marked_drop(&owners->marked);
    if (!rpp_marked_reserve(&owners->marked, owners->count))
        return;
    for (size_t i = 0; i < owners->count; i++)
        if (owners->list[i].way == RPP_BY_WATCHER)
            rpp_marked_add(&owners->marked, owners->list[i].mark, i);
    rpp_marked_settle(&owners->marked);
}

/* Which dicts have which owners. Without memory all of these are looked at in each call. */
static void find_tagged(struct owners *owners)
{
    forget_entries(owners);
    rpp_tags_drop(&owners->tags);
    owners->tags_held = false;
    if (!rpp_tags_reserve(&owners->tags, owners->count))
        return;
    for (size_t i = 0; i < owners->count; i++) {
        const struct owner *owner = &owners->list[i];
        if (owner->way == RPP_BY_TAG)
            rpp_tags_add(&owners->tags, rpp_dict_tag_at(owner->object),
                         is_unmarked(owner) ? owner->seen : 0, i);
    }
    rpp_tags_settle(&owners->tags);
}

/* Looks at the owners of the marks that moved, if these are few. One that does not hold keeps what
 * was seen, so that the next look comes by here again. */
static bool marked_hold(const struct reads *reads, struct owners *owners)
{
    const struct rpp_mark *moved[RPP_MARKS_KEPT];
    uint64_t changes = rpp_mark_changes;
    if (owners->seen == changes)
        return true;
    size_t count = owners->marked.list ? rpp_marks_moved(owners->seen, moved) : SIZE_MAX;
    if (count == SIZE_MAX && !all_hold_by(reads, owners, RPP_BY_WATCHER))
        return false;
    for (size_t i = 0; count != SIZE_MAX && i < count; i++) {
        size_t at = rpp_marked_find(&owners->marked, moved[i]);
        for (; at < owners->marked.count && owners->marked.list[at].mark == moved[i]; at++)
            if (!look_at(reads, &owners->list[owners->marked.list[at].owner], 0, NULL))
                return false;
    }
    owners->seen = changes;
    return true;
}

static bool all_hold(const struct reads *reads, struct owners *owners)
{
    if (!words_hold(reads, owners, EACH_CALL) || !told_words_hold(reads, owners, OF_INSTANCES) ||
        !told_words_hold(reads, owners, OF_NAMES) || !functions_hold(reads, owners) ||
        !containers_hold(reads, owners) || !variables_hold(reads, owners) ||
        !tags_hold(reads, owners))
        return false;
    for (size_t i = 0; i < owners->always_count; i++)
        if (!look_at(reads, &owners->list[owners->always[i]], 0, NULL))
            return false;
    return marked_hold(reads, owners);
}

bool rpp_reads_hold(PyObject *object)
{
    rpp_assert_gil();
    struct reads *reads = (struct reads *)object;
    struct owners *owners = reads->owners;
    if (!owners || reads->is_blind)
        return true;
    owners->users++;
    bool held = all_hold(reads, owners) && reads->owners == owners;
    release(owners);
    PyErr_Clear();
    return held;
}

uint64_t rpp_reads_epoch(PyObject *reads)
{
    rpp_assert_gil();
    return ((struct reads *)reads)->epoch;
}

bool rpp_is_reads(PyObject *object)
{
    rpp_assert_gil();
    return Py_TYPE(object) == reads_type;
}

static PyObject *reads_holds(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(rpp_reads_hold(self));
}

/* blind(is_blind): each look holds at once, whatever changed. What a look costs is the difference. */
static PyObject *reads_blind(PyObject *self, PyObject *is_blind)
{
    int blind = PyObject_IsTrue(is_blind);
    if (blind < 0)
        return NULL;
    ((struct reads *)self)->is_blind = blind;
    Py_RETURN_NONE;
}

/* changed(): what differs, a list of (owner, entry, value). */
static PyObject *reads_changed(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct reads *reads = (struct reads *)self;
    struct owners *owners = reads->owners;
    PyObject *changes = PyList_New(0);
    if (!changes || !owners)
        return changes;
    owners->users++;
    for (size_t i = 0; i < owners->count; i++)
        if (!look_at(reads, &owners->list[i], i, changes) && PyErr_Occurred()) {
            Py_CLEAR(changes);
            break;
        }
    release(owners);
    return changes;
}

/* accept(owner, entry, value): from now on that is what was known. */
static PyObject *reads_accept(PyObject *self, PyObject *args)
{
    struct reads *reads = (struct reads *)self;
    Py_ssize_t which, entry;
    PyObject *value;
    if (!PyArg_ParseTuple(args, "nnO", &which, &entry, &value))
        return NULL;
    if (!reads->owners || which < 0 || (size_t)which >= reads->owners->count || entry < 0 ||
        (size_t)entry >= value_count(&reads->owners->list[which]))
        return PyErr_Format(PyExc_IndexError, "there is no such owner or entry");
    struct owner *owner = &reads->owners->list[which];
    forget_entries(reads->owners);
    PyObject *values = PySequence_List(owner->values), *tuple = NULL;
    if (values && PyList_SetItem(values, entry, Py_NewRef(value)) == 0)
        tuple = PyList_AsTuple(values);
    Py_XDECREF(values);
    if (!tuple)
        return NULL;
    PyObject *old = owner->values;
    owner->values = tuple;
    if (owner->word_at)
        *word_at(reads->owners, owner, (size_t)entry) = reference(owner, value);
    distrust_words(reads->owners, owner);
    rpp_context_forget(&reads->owners->context_seen);
    reads->epoch++;
    Py_DECREF(old);
    return Py_NewRef(Py_None);
}

/* ---- Setting ------------------------------------------------------------------------------- */

static bool fits_kind(const struct owner *owner)
{
    size_t keys = owner->keys ? (size_t)PyTuple_Size(owner->keys) : 0;
    bool has_keys = owner->kind == NAMES || owner->kind == ITEMS || owner->kind == ATTRIBUTES;
    bool is_dict = owner->kind == NAMES || owner->kind == ITEMS;
    if (has_keys != (owner->keys != NULL) || (has_keys && keys != value_count(owner)))
        return false;
    if (is_dict && !PyDict_Check(owner->object))
        return false;
    if (owner->kind == LIST)
        return PyList_Check(owner->object);
    if (owner->kind == FUNCTION)
        return value_count(owner) == RPP_FUNCTION_PARTS;
    return has_keys || value_count(owner) == (owner->kind != TENSOR);
}

/* Of functools.partial(function, an OrderedDict) that; NULL, without an exception, where its order
 * has no tag. */
static PyObject *ordered_of(PyObject *partial)
{
    PyObject *args = PyObject_GetAttrString(partial, "args"), *found = NULL;
    if (args && PyTuple_Check(args) && PyTuple_Size(args) == 1)
        found = PyTuple_GetItem(args, 0);
    found = found && rpp_has_order_tag(found) ? Py_NewRef(found) : NULL;
    Py_XDECREF(args);
    PyErr_Clear();
    return found;
}

/* Reads one owner of (kind, way, object, keys or None, values); false with an exception set. */
static bool read_owner(const struct reads *reads, struct owner *owner, PyObject *given,
                       const PyObject *unowned)
{
    int kind, way;
    PyObject *object, *keys, *values;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "an owner is a tuple");
        return false;
    }
    if (!PyArg_ParseTuple(given, "iiOOO!", &kind, &way, &object, &keys, &PyTuple_Type, &values))
        return false;
    owner->kind = (enum kind)kind;
    owner->unowned = object == unowned;
    owner->object = owner->unowned ? object : Py_NewRef(object);
    owner->keys = keys == Py_None ? NULL : Py_NewRef(keys);
    owner->values = Py_NewRef(values);
    if (kind < 0 || kind >= KINDS || (owner->keys && !PyTuple_Check(keys)) || !fits_kind(owner)) {
        PyErr_SetString(PyExc_ValueError, "set takes owners of (kind, way, object, keys, values)");
        return false;
    }
    bool is_dict = kind == NAMES || kind == ITEMS;
    if (is_dict && way == RPP_BY_WATCHER)
        owner->mark = rpp_mark_take(object, kind == NAMES ? keys : NULL);
    if (owner->mark || (is_dict && way == RPP_BY_TAG))
        owner->way = (enum rpp_way_to_look)way;
    if (kind == CALL && way == RPP_BY_ORDER && (owner->ordered = ordered_of(object)))
        owner->way = RPP_BY_ORDER;
    owner->is_closed = kind == CELL && way == RPP_BY_DESCRIPTOR;
    owner->seen = mark_of(owner) - 1; /* it was not looked at yet */
    if (kind == TENSOR) {
        owner->place = place_now(reads, owner);
        owner->form = form_now(owner);
    }
    return !PyErr_Occurred();
}

/* Room for so many; NULL without memory, with an exception set. */
static struct owners *make_owners(size_t room)
{
    struct owners *owners = PyMem_Calloc(1, sizeof *owners + room * sizeof *owners->list);
    size_t *always = PyMem_Calloc(room + 1, sizeof *always);
    if (!owners || !always) {
        PyMem_Free(owners);
        PyMem_Free(always);
        PyErr_NoMemory();
        return NULL;
    }
    owners->users = 1;
    owners->always = always;
    return owners;
}

/* Reads those of the list that are not there yet, for which there is room; false with an exception
 * set, and all let go. */
static bool read_rest(const struct reads *reads, struct owners *owners, PyObject *given,
                      const PyObject *unowned)
{
    struct rpp_told_types types = {0};
    for (size_t count = (size_t)PyList_Size(given); owners->count < count; owners->count++) {
        struct owner *owner = &owners->list[owners->count];
        PyObject *item = PyList_GetItem(given, (Py_ssize_t)owners->count);
        if (!read_owner(reads, owner, item, unowned)) {
            owners->count++; /* half of it may be there */
            release(owners);
            return false;
        }
        bool has_mark = owner->way == RPP_BY_WATCHER || owner->way == RPP_BY_TAG;
        if (!has_mark && !is_told(owners, owner) && !add_words(owners, owner, &types) &&
            !take_words(owners, owner))
            owners->always[owners->always_count++] = owners->count;
    }
    find_marked(owners);
    see_none(owners); /* the new ones were not looked at yet */
    for (size_t g = 0; g < GROUPS; g++)
        rpp_words_settle(&owners->words[g]);
    rpp_words_settle(&owners->heads);
    rpp_words_settle(&owners->members);
    find_tagged(owners);
    return true;
}

/* A group without functions has a word for each owner at most. */
static size_t most_words(enum group group, size_t owners)
{
    return group == OF_INSTANCES ? owners : owners * RPP_FUNCTION_PARTS;
}

static struct owners *read_owners(const struct reads *reads, PyObject *given,
                                  const PyObject *unowned)
{
    size_t count = (size_t)PyList_Size(given);
    struct owners *owners = make_owners(count);
    if (!owners)
        return NULL;
    bool has_room = true;
    for (enum group g = 0; has_room && g < GROUPS; g++) {
        has_room = rpp_words_reserve(&owners->words[g], most_words(g, count));
        owners->told_seen[g] = rpp_told_changes[told_of[g]];
    }
    if (!has_room) {
        release(owners);
        PyErr_NoMemory();
        return NULL;
    }
    owners->functions_seen = rpp_function_changes;
    return read_rest(reads, owners, given, unowned) ? owners : NULL;
}

/* set(owners, unowned=None): a list of (kind, way, object, keys or None, values). The object
 * `unowned` is not kept alive by those that it is the object of: whoever looks knows that it lives.
 */
static PyObject *reads_set(PyObject *self, PyObject *args)
{
    struct reads *reads = (struct reads *)self;
    PyObject *given, *unowned = Py_None;
    if (!PyArg_ParseTuple(args, "O!|O", &PyList_Type, &given, &unowned))
        return NULL;
    struct owners *made = read_owners(reads, given, unowned), *old = reads->owners;
    if (!made)
        return NULL;
    reads->owners = made;
    reads->epoch++;
    release(old);
    return Py_NewRef(Py_None);
}

static void keep_owner(struct owner *owner)
{
    rpp_mark_keep(owner->mark);
    Py_XINCREF(owner->ordered);
    Py_XINCREF(owner->kept);
    if (!owner->unowned)
        Py_XINCREF(owner->object);
    Py_XINCREF(owner->keys);
    Py_XINCREF(owner->values);
}

/* Others that are the same, with room for more. Looks count as made. NULL without memory, with an
 * exception set. */
static struct owners *copy_owners(const struct owners *from, size_t more)
{
    struct owners *made = make_owners(from->count + more);
    if (!made)
        return NULL;
    bool has_room = rpp_words_copy(&made->heads, &from->heads, 0) &&
                    rpp_words_copy(&made->members, &from->members, 0);
    for (size_t g = 0; has_room && g < GROUPS; g++)
        has_room = rpp_words_copy(&made->words[g], &from->words[g], most_words(g, more));
    if (!has_room) {
        release(made);
        PyErr_NoMemory();
        return NULL;
    }
    memcpy(made->list, from->list, from->count * sizeof *from->list);
    memcpy(made->always, from->always, from->always_count * sizeof *from->always);
    made->count = from->count;
    made->always_count = from->always_count;
    made->seen = from->seen;
    made->functions_seen = from->functions_seen;
    memcpy(made->told_seen, from->told_seen, sizeof made->told_seen);
    made->has_variables = from->has_variables;
    for (size_t i = 0; i < made->count; i++)
        keep_owner(&made->list[i]);
    find_marked(made);
    find_tagged(made);
    return made;
}

/* add(owners, unowned=None): as of set, a list that begins with the owners that were set or added:
 * those behind them are looked at too. What was known of the others stays. */
static PyObject *reads_add(PyObject *self, PyObject *args)
{
    struct reads *reads = (struct reads *)self;
    PyObject *given, *unowned = Py_None;
    if (!PyArg_ParseTuple(args, "O!|O", &PyList_Type, &given, &unowned))
        return NULL;
    size_t had = reads->owners ? reads->owners->count : 0, count = (size_t)PyList_Size(given);
    if (!reads->owners || count < had)
        return PyErr_Format(PyExc_ValueError, "add takes a list of more owners than are there");
    struct owners *made = copy_owners(reads->owners, count - had);
    if (!made || !read_rest(reads, made, given, unowned))
        return NULL;
    struct owners *old = reads->owners;
    reads->owners = made;
    reads->epoch++;
    release(old);
    return Py_NewRef(Py_None);
}

/* take(other): looks at what another one looks at, if that holds. False: it does not. */
static PyObject *reads_take(PyObject *self, PyObject *other)
{
    struct reads *reads = (struct reads *)self;
    if (!rpp_is_reads(other))
        return PyErr_Format(PyExc_TypeError, "take takes a Reads");
    if (!((struct reads *)other)->owners || !rpp_reads_hold(other))
        return Py_NewRef(Py_False);
    struct owners *made = copy_owners(((struct reads *)other)->owners, 0), *old = reads->owners;
    if (!made)
        return NULL;
    reads->owners = made;
    reads->epoch++;
    release(old);
    return Py_NewRef(Py_True);
}

/* Does an owner fit where another one is, with its words and in the same passes? */
static bool fits_place(const struct owner *owner, const struct owner *before)
{
    return owner->kind == before->kind && owner->way == before->way && !before->word_at &&
           !before->is_told;
}

/* replace(which, owner): another object is looked at in the place of one. False: it does not fit
 * there. */
static PyObject *reads_replace(PyObject *self, PyObject *args)
{
    struct reads *reads = (struct reads *)self;
    Py_ssize_t which;
    PyObject *given;
    if (!PyArg_ParseTuple(args, "nO", &which, &given))
        return NULL;
    if (!reads->owners || which < 0 || (size_t)which >= reads->owners->count)
        return PyErr_Format(PyExc_IndexError, "there is no such owner");
    struct owner made = {0}, *place = &reads->owners->list[which];
    bool is_read = read_owner(reads, &made, given, NULL);
    bool fits = is_read && fits_place(&made, place);
    if (fits && place->head_at)
        leave_words(reads->owners, place);
    struct owner gone = fits ? *place : made;
    if (fits) {
        *place = made;
        find_marked(reads->owners);
        find_tagged(reads->owners);
        see_none(reads->owners);
        reads->epoch++;
    }
    release_owner(&gone);
    return is_read ? PyBool_FromLong(fits) : NULL;
}

/* counts(): owners, and those of them that each call looks at. */
static PyObject *reads_counts(PyObject *self, PyObject *unused)
{
    (void)unused;
    const struct owners *owners = ((struct reads *)self)->owners;
    return Py_BuildValue("(nn)", owners ? (Py_ssize_t)owners->count : 0,
                         owners ? (Py_ssize_t)owners->always_count : 0);
}

/* words(): how many each call compares. */
static PyObject *reads_words(PyObject *self, PyObject *unused)
{
    (void)unused;
    const struct owners *owners = ((struct reads *)self)->owners;
    return PyLong_FromSize_t(owners ? owners->words[EACH_CALL].count + owners->heads.count +
                                          owners->members.count + owners->tags.count
                                    : 0);
}

/* ---- The type ------------------------------------------------------------------------------ */

/* Reads(torch.Tensor or None) */
static PyObject *reads_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    PyObject *tensor;
    if (!PyArg_ParseTuple(args, "O", &tensor))
        return NULL;
    PyObject *capsule = PyObject_GetAttrString(tensor, "__dlpack_c_exchange_api__");
    const struct dl_exchange *exchange =
        capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    Py_XDECREF(capsule);
    PyErr_Clear();
    struct reads *reads = (struct reads *)rpp_allocate(type);
    if (reads && exchange && exchange->header.major == 1)
        reads->exchange = exchange;
    return (PyObject *)reads;
}

static int reads_traverse(PyObject *object, visitproc visit, void *arg)
{
    const struct owners *owners = ((struct reads *)object)->owners;
    Py_VISIT(Py_TYPE(object));
    for (size_t i = 0; owners && owners->users == 1 && i < owners->count; i++) {
        if (!owners->list[i].unowned)
            Py_VISIT(owners->list[i].object);
        Py_VISIT(owners->list[i].keys);
        Py_VISIT(owners->list[i].ordered);
        Py_VISIT(owners->list[i].values);
        Py_VISIT(owners->list[i].kept);
    }
    return 0;
}

static int reads_clear(PyObject *object)
{
    struct reads *reads = (struct reads *)object;
    struct owners *old = reads->owners;
    reads->owners = NULL;
    reads->epoch++;
    release(old);
    return 0;
}

static void reads_dealloc(PyObject *object)
{
    rpp_deallocate(object, reads_clear);
}

static PyMethodDef methods[] = {
    {"set", reads_set, METH_VARARGS,
     "set(owners, unowned=None): of (kind, way, object, keys or None, values) each."},
    {"add", reads_add, METH_VARARGS,
     "add(owners, unowned=None): a list that begins with those that are there; the others too."},
    {"take", reads_take, METH_O,
     "take(other): looks at what another one looks at, if that holds; does it?"},
    {"holds", reads_holds, METH_NOARGS, "Is all as it was set?"},
    {"blind", reads_blind, METH_O,
     "blind(is_blind): looks hold whatever changed. For benchmarks of what a look costs."},
    {"changed", reads_changed, METH_NOARGS, "What is not: (owner, entry or -1, value) each."},
    {"replace", reads_replace, METH_VARARGS,
     "replace(which, owner): that is looked at in the place of one; False where it does not fit "
     "there."},
    {"accept", reads_accept, METH_VARARGS, "accept(owner, entry, value): that is known now."},
    {"counts", reads_counts, METH_NOARGS, "(owners, how many each call looks at)."},
    {"words", reads_words, METH_NOARGS, "How many words of memory each call compares."},
    {NULL, NULL, 0, NULL},
};

int rpp_add_reads_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)reads_new},
        {Py_tp_dealloc, (void *)reads_dealloc},
        {Py_tp_traverse, (void *)reads_traverse},
        {Py_tp_clear, (void *)reads_clear},
        {Py_tp_methods, methods},
        {Py_tp_doc, "What a callable reads beside its arguments."},
        {0, NULL},
    };
    static PyType_Spec spec = {"reprise._C.Reads", sizeof(struct reads), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
    rpp_marks_prepare();
    rpp_containers_prepare();
    rpp_dicts_prepare();
    rpp_orders_prepare();
    rpp_contexts_prepare();
    rpp_descriptors_prepare();
    reads_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!reads_type || !rpp_layouts_prepare() ||
        PyModule_AddObjectRef(module, "absent", rpp_absent) != 0)
        return -1;
    return PyModule_AddType(module, reads_type);
}
