/* SPDX-License-Identifier: MIT */
#include "reads/walk.h"

#include "base/members.h"
#include "reads/layouts.h"
#include "reads/same.h"
#include "reads/scope.h"
#include "reads/walking.h"

#include <stddef.h>
#include <structmember.h>

/* Of the names of Python's methods. */
static struct {
    PyObject *maker, *weak, *is_cuda, *meet, *kept, *shown, *could_be, *is_dynamic, *ask, *not_left,
        *has_slots;
} says;

static PyObject *absent_token, *absent_word, *seen_word;

/* ---- Tokens -------------------------------------------------------------------------------- */

static PyObject *maker_of(struct rpp_walk *walk, PyTypeObject *type)
{
    PyObject *maker = PyDict_GetItemWithError(walk->makers, (PyObject *)type);
    if (maker || PyErr_Occurred())
        return maker ? Py_NewRef(maker) : NULL;
    maker = PyObject_CallMethodObjArgs((PyObject *)walk, says.maker, type, NULL);
    if (maker && PyDict_SetItem(walk->makers, (PyObject *)type, maker) != 0)
        Py_CLEAR(maker);
    return maker;
}

/* 0.0 and -0.0 are equal, and work is not the same with them; nan is not equal to nan. */
static PyObject *text_token(PyTypeObject *type, PyObject *value)
{
    PyObject *text = PyObject_Repr(value);
    PyObject *token = text ? PyTuple_Pack(2, type, text) : NULL;
    Py_XDECREF(text);
    return token;
}

static PyObject *object_token(struct rpp_walk *walk, PyObject *maker, PyObject *value,
                              PyObject *path)
{
    size_t number;
    if (rpp_seen_add(&walk->seen, value, &number))
        return PyObject_CallFunctionObjArgs(maker, walk, value, path, NULL);
    PyObject *of = PyErr_Occurred() ? NULL : PyLong_FromSize_t(number);
    PyObject *token = of ? PyTuple_Pack(2, seen_word, of) : NULL;
    Py_XDECREF(of);
    return token;
}

static PyObject *token_of(struct rpp_walk *walk, PyObject *value, PyObject *path)
{
    if (value == rpp_absent)
        return Py_NewRef(absent_token);
    PyTypeObject *type = Py_TYPE(value);
    PyObject *maker = maker_of(walk, type), *token = NULL;
    if (maker == Py_True)
        token = PyTuple_Pack(2, type, value);
    else if (maker == Py_False)
        token = text_token(type, value);
    else if (maker)
        token = object_token(walk, maker, value, path);
    Py_XDECREF(maker);
    return token;
}

/* Tells Python of a value that is put, where calls may bring others in the place of tensors. */
static bool meet(struct rpp_walk *walk, PyObject *value)
{
    if (walk->takes == Py_None)
        return true;
    PyObject *place = walk->place;
    walk->place = Py_NewRef(Py_None);
    PyObject *met = PyObject_CallMethodObjArgs((PyObject *)walk, says.meet, value, place, NULL);
    Py_DECREF(place);
    Py_XDECREF(met);
    return met != NULL;
}

bool rpp_walk_append(struct rpp_walk *walk, PyObject *token, PyObject *path)
{
    rpp_assert_gil();
    return PyList_Append(walk->tokens, token) == 0 && PyList_Append(walk->paths, path) == 0;
}

bool rpp_walk_put(struct rpp_walk *walk, PyObject *value, PyObject *path)
{
    rpp_assert_gil();
    PyObject *token = meet(walk, value) ? token_of(walk, value, path) : NULL;
    bool worked = token && rpp_walk_append(walk, token, path);
    Py_XDECREF(token);
    return worked;
}

static PyObject *walk_put(PyObject *self, PyObject *args)
{
    PyObject *value, *path;
    if (!PyArg_ParseTuple(args, "OO", &value, &path))
        return NULL;
    return rpp_walk_put((struct rpp_walk *)self, value, path) ? Py_NewRef(Py_None) : NULL;
}

/* ---- Owners -------------------------------------------------------------------------------- */

PyObject *rpp_walk_weak(struct rpp_walk *walk, PyObject *value)
{
    rpp_assert_gil();
    PyObject *is_cuda = PyObject_GetAttr(value, says.is_cuda);
    bool is_there = is_cuda == Py_True;
    Py_XDECREF(is_cuda);
    if (!is_there) {
        PyErr_Clear();
        return PyObject_CallMethodObjArgs((PyObject *)walk, says.weak, value, NULL);
    }
    walk->has_memory = true;
    return PyWeakref_NewRef(value, NULL);
}

/* What is compared with values later, a new tuple: tensors of the device by weak references. */
static PyObject *weak_values(struct rpp_walk *walk, PyObject *values)
{
    Py_ssize_t count = PyTuple_Size(values);
    PyObject *made = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PyTuple_GetItem(values, i);
        if (!PyType_IsSubtype(Py_TYPE(value), (PyTypeObject *)walk->tensor))
            continue;
        PyObject *weak = rpp_walk_weak(walk, value);
        if (weak && !made)
            made = PySequence_List(values);
        if (!weak || !made || PyList_SetItem(made, i, weak) != 0) {
            Py_XDECREF(made);
            return NULL;
        }
    }
    if (!made)
        return Py_NewRef(values);
    PyObject *tuple = PyList_AsTuple(made);
    Py_DECREF(made);
    return tuple;
}

bool rpp_walk_append_owner(struct rpp_walk *walk, const struct rpp_owned *owned)
{
    rpp_assert_gil();
    PyObject *values = weak_values(walk, owned->values);
    PyObject *owner = values ? Py_BuildValue("(iiOOO)", owned->kind, owned->way, owned->object,
                                             owned->keys, values)
                             : NULL;
    PyObject *first = PyLong_FromSsize_t(PyList_Size(walk->tokens));
    bool worked = owner && first && PyList_Append(walk->owners, owner) == 0 &&
                  PyList_Append(walk->first, first) == 0;
    Py_XDECREF(values);
    Py_XDECREF(owner);
    Py_XDECREF(first);
    return worked;
}

/* Where others may be put in the place of a value: (kind, owner, key). */
static bool set_place(struct rpp_walk *walk, const struct rpp_owned *owned, Py_ssize_t i)
{
    if (walk->takes == Py_None || !owned->is_open)
        return true;
    PyObject *key =
        owned->keys == Py_None ? PyLong_FromSsize_t(i) : Py_NewRef(PyTuple_GetItem(owned->keys, i));
    PyObject *place = key ? Py_BuildValue("(iOO)", owned->kind, owned->object, key) : NULL;
    Py_XDECREF(key);
    if (!place)
        return false;
    PyObject *before = walk->place;
    walk->place = place;
    Py_DECREF(before);
    return true;
}

static PyObject *path_of(const struct rpp_owned *owned, Py_ssize_t i)
{
    return owned->paths ? PySequence_GetItem(owned->paths, i)
                        : PyUnicode_Concat(owned->prefix, PyTuple_GetItem(owned->keys, i));
}

/* One token for the names that are not there: ("absent", names); its path is what stands before each
 * of them. */
static bool put_missing(struct rpp_walk *walk, const struct rpp_owned *owned)
{
    if (owned->missing == 0)
        return true;
    Py_ssize_t count = PyTuple_Size(owned->keys);
    PyObject *names = PyTuple_GetSlice(owned->keys, count - owned->missing, count);
    PyObject *token = names ? PyTuple_Pack(2, absent_word, names) : NULL;
    bool worked = token && rpp_walk_append(walk, token, owned->prefix);
    Py_XDECREF(names);
    Py_XDECREF(token);
    return worked;
}

static bool add_owned(struct rpp_walk *walk, const struct rpp_owned *owned)
{
    if (owned->is_open && walk->takes != Py_None && PyList_Append(walk->parts, owned->object) != 0)
        return false;
    if (!rpp_walk_append_owner(walk, owned))
        return false;
    Py_ssize_t count = PyTuple_Size(owned->values) - owned->missing;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *path = path_of(owned, i);
        bool worked = path && set_place(walk, owned, i) &&
                      rpp_walk_put(walk, PyTuple_GetItem(owned->values, i), path);
        Py_XDECREF(path);
        if (!worked)
            return false;
    }
    return put_missing(walk, owned);
}

/* What a dict has by these keys, a new tuple; absent: nothing. */
static PyObject *values_by_name(PyObject *names, PyObject *keys)
{
    Py_ssize_t count = PyTuple_Check(keys) ? PyTuple_Size(keys) : -1;
    if (count < 0)
        return PyErr_Format(PyExc_TypeError, "own takes keys as a tuple");
    PyObject *values = PyTuple_New(count);
    for (Py_ssize_t i = 0; values && i < count; i++) {
        PyObject *value = PyDict_GetItemWithError(names, PyTuple_GetItem(keys, i));
        if ((!value && PyErr_Occurred()) ||
            PyTuple_SetItem(values, i, Py_NewRef(value ? value : rpp_absent)) != 0)
            Py_CLEAR(values);
    }
    return values;
}

static bool add_kept(struct rpp_walk *walk, struct rpp_owned *owned)
{
    owned->values = owned->values == Py_None && PyDict_Check(owned->object)
                        ? values_by_name(owned->object, owned->keys)
                        : PySequence_Tuple(owned->values);
    bool worked = owned->values && add_owned(walk, owned);
    Py_XDECREF(owned->values);
    return worked;
}

bool rpp_walk_own(struct rpp_walk *walk, const struct rpp_owned *owned)
{
    struct rpp_owned rest = *owned;
    rpp_assert_gil();
    if (PyDict_Size(walk->left) == 0)
        return add_kept(walk, &rest);
    PyObject *values = owned->values == Py_None && PyDict_Check(owned->object)
                           ? values_by_name(owned->object, owned->keys)
                           : Py_NewRef(owned->values);
    PyObject *kind = values ? PyLong_FromLong(owned->kind) : NULL;
    PyObject *kept =
        kind ? PyObject_CallMethodObjArgs((PyObject *)walk, says.kept, kind, owned->object,
                                          owned->keys, values, owned->paths, NULL)
             : NULL;
    bool worked = kept == Py_None || (kept &&
                                      PyArg_ParseTuple(kept, "iOOO", &rest.kind, &rest.keys,
                                                       &rest.values, &rest.paths) &&
                                      add_kept(walk, &rest));
    Py_XDECREF(kind);
    Py_XDECREF(values);
    Py_XDECREF(kept);
    return worked;
}

/* own(kind, object, keys, values, paths, way, is_open): an owner, and the tokens of its values, but
 * for places that are left out. */
static PyObject *walk_own(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"kind", "object", "keys", "values", "paths", "way", "is_open", NULL};
    struct rpp_owned owned = {0};
    int is_open = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iOOOO|ip", names, &owned.kind, &owned.object,
                                     &owned.keys, &owned.values, &owned.paths, &owned.way,
                                     &is_open))
        return NULL;
    owned.is_open = is_open != 0;
    if (owned.keys != Py_None && !PyTuple_Check(owned.keys))
        return PyErr_Format(PyExc_TypeError, "own takes keys as a tuple");
    return rpp_walk_own((struct rpp_walk *)self, &owned) ? Py_NewRef(Py_None) : NULL;
}

/* ---- Attributes by name -------------------------------------------------------------------- */

static struct rpp_known known_now(const struct rpp_walk *walk, const PyObject *own)
{
    return (struct rpp_known){.names = PySet_Size(walk->names),
                              .maybe = PySet_Size(walk->maybe),
                              .classes = PySet_Size(walk->dynamic_classes),
                              .own = own,
                              .dynamic = walk->dynamic};
}

static bool is_same_known(const struct rpp_known *one, const struct rpp_known *other)
{
    return one->names == other->names && one->maybe == other->maybe &&
           one->classes == other->classes && one->own == other->own &&
           one->dynamic == other->dynamic;
}

/* Adds the names that came to be known to those in the order in which they did. */
static bool list_names(struct rpp_walk *walk)
{
    if (PySet_Size(walk->names) == PyList_Size(walk->listed))
        return true;
    PyObject *iterator = PyObject_GetIter(walk->names), *name;
    bool worked = iterator != NULL;
    while (worked && (name = PyIter_Next(iterator))) {
        int known = PySet_Contains(walk->are_listed, name);
        worked = known > 0 || (known == 0 && PySet_Add(walk->are_listed, name) == 0 &&
                               PyList_Append(walk->listed, name) == 0);
        Py_DECREF(name);
    }
    Py_XDECREF(iterator);
    return worked && !PyErr_Occurred();
}

/* What was derived from less than is known by now is to be asked again. */
static bool refresh(struct rpp_walk *walk)
{
    struct rpp_known now = known_now(walk, NULL);
    Py_ssize_t count = PyDict_Size(walk->classes);
    if (is_same_known(&now, &walk->known_at) && count == walk->class_count)
        return true;
    if (now.classes != walk->known_at.classes)
        PyDict_Clear(walk->is_dynamic);
    walk->known_at = now;
    walk->class_count = count;
    walk->turn++;
    return list_names(walk);
}

/* 1 or 0, as Python's method says of the type, which is asked once; -1 with an exception set. */
static int told_of_type(struct rpp_walk *walk, PyObject *told, PyObject *method, PyObject *type)
{
    PyObject *known = PyDict_GetItemWithError(told, type);
    if (known || PyErr_Occurred())
        return known ? known == Py_True : -1;
    known = PyObject_CallMethodObjArgs((PyObject *)walk, method, type, NULL);
    int answer = known ? PyObject_IsTrue(known) : -1;
    if (answer >= 0 && PyDict_SetItem(told, type, answer ? Py_True : Py_False) != 0)
        answer = -1;
    Py_XDECREF(known);
    return answer;
}

/* Of a class that class, of another object its type. */
static PyObject *type_of(PyObject *object)
{
    return PyType_Check(object) ? object : (PyObject *)Py_TYPE(object);
}

/* Is the scope's object asked for names that code makes? */
static int is_dynamic(struct rpp_walk *walk, const struct rpp_scope *scope)
{
    if (walk->dynamic || PySet_Size(walk->dynamic_classes) == 0)
        return walk->dynamic;
    return told_of_type(walk, walk->is_dynamic, says.is_dynamic, type_of(scope->object));
}

static bool is_dunder(PyObject *name)
{
    return PyUnicode_GetLength(name) >= 2 && PyUnicode_ReadChar(name, 0) == '_' &&
           PyUnicode_ReadChar(name, 1) == '_';
}

static bool has(PyObject *set, PyObject *name)
{
    return PySet_Size(set) > 0 && PySet_Contains(set, name) == 1;
}

/* Is the name looked up? Most are not, and that is told first. An exception may be set. */
static bool wants(const struct rpp_walk *walk, const struct rpp_scope *scope, PyObject *name,
                  bool dynamic)
{
    if (!PyUnicode_CheckExact(name))
        return false;
    bool in_names = has(walk->names, name), in_own = has(scope->own, name);
    if ((!in_names && !in_own && !dynamic) || has(scope->skips, name) || has(scope->done, name))
        return false;
    if (in_own)
        return true;
    if (in_names)
        return !has(walk->skipped, name);
    return !scope->shallow && !is_dunder(name);
}

static bool add_wanted(const struct rpp_walk *walk, const struct rpp_scope *scope, PyObject *name,
                       bool dynamic, PyObject *found)
{
    return !wants(walk, scope, name, dynamic) ||
           (!PyErr_Occurred() && PyList_Append(found, name) == 0);
}

/* Adds those of a scope's names that are wanted, in their order. */
static bool add_of_dict(const struct rpp_walk *walk, const struct rpp_scope *scope, bool dynamic,
                        PyObject *found)
{
    PyObject *keys = PyDict_Keys(scope->names);
    Py_ssize_t count = keys ? PyList_Size(keys) : -1;
    bool worked = keys != NULL;
    for (Py_ssize_t i = 0; worked && i < count; i++)
        worked = add_wanted(walk, scope, PyList_GetItem(keys, i), dynamic, found);
    Py_XDECREF(keys);
    return worked;
}

/* The same of some names, where the scope has them. own: of those that count in it, or not. */
static bool add_if_there(const struct rpp_walk *walk, const struct rpp_scope *scope, PyObject *name,
                         PyObject *found)
{
    int is_there = PyDict_Contains(scope->names, name);
    return is_there == 0 || (is_there > 0 && add_wanted(walk, scope, name, false, found));
}

static bool add_own(const struct rpp_walk *walk, const struct rpp_scope *scope, PyObject *found)
{
    PyObject *iterator = PyObject_GetIter(scope->own), *name;
    bool worked = iterator != NULL;
    while (worked && (name = PyIter_Next(iterator))) {
        worked = add_if_there(walk, scope, name, found);
        Py_DECREF(name);
    }
    Py_XDECREF(iterator);
    return worked && !PyErr_Occurred();
}

/* Adds those that are wanted of what came to count since the scope was looked at, which is less than
 * it has. */
static bool add_news(const struct rpp_walk *walk, const struct rpp_scope *scope, PyObject *found)
{
    bool own_is_new = scope->own != scope->own_seen;
    Py_ssize_t count = PyList_Size(walk->listed);
    bool worked = !own_is_new || add_own(walk, scope, found);
    for (Py_ssize_t i = scope->listed; worked && i < count; i++) {
        PyObject *name = PyList_GetItem(walk->listed, i);
        worked = (own_is_new && has(scope->own, name)) || add_if_there(walk, scope, name, found);
    }
    return worked;
}

/* How many names came to count since a scope was looked at. */
static Py_ssize_t count_news(const struct rpp_walk *walk, const struct rpp_scope *scope)
{
    return PyList_Size(walk->listed) - scope->listed +
           (scope->own != scope->own_seen ? PySet_Size(scope->own) : 0);
}

/* The names that a scope has, of those that came to count: a new list, in an order that does not hang
 * on when it got them. Code that asks for all that there is goes by their order. */
static PyObject *present(struct rpp_walk *walk, struct rpp_scope *scope)
{
    int dynamic = is_dynamic(walk, scope);
    PyObject *found = dynamic < 0 ? NULL : PyList_New(0);
    if (!found)
        return NULL;
    bool worked = dynamic || PyDict_Size(scope->names) <= count_news(walk, scope)
                      ? add_of_dict(walk, scope, dynamic == 1, found)
                      : add_news(walk, scope, found);
    if (!worked || (!dynamic && PyList_Sort(found) != 0))
        Py_CLEAR(found);
    scope->listed = PyList_Size(walk->listed);
    scope->own_seen = scope->own;
    if (!found || !scope->shallow)
        return found;
    PyObject *shown = PyObject_CallMethodObjArgs((PyObject *)walk, says.shown, scope, found, NULL);
    Py_DECREF(found);
    return shown;
}

/* Names that a class, or an object of a type, could come to have itself, in the order in which they
 * came to be known. */
struct possible {
    PyObject *names, *are_there; /* a list, and a set of the same; borrowed */
};

/* Those of a set that are not there: a new list. */
static PyObject *fresh_of(PyObject *said, PyObject *are_there)
{
    PyObject *fresh = PyList_New(0), *iterator = fresh ? PyObject_GetIter(said) : NULL, *name;
    bool worked = iterator != NULL;
    while (worked && (name = PyIter_Next(iterator))) {
        int known = PySet_Contains(are_there, name);
        worked = known > 0 || (known == 0 && PyList_Append(fresh, name) == 0);
        Py_DECREF(name);
    }
    Py_XDECREF(iterator);
    if (!worked || PyErr_Occurred() || PyList_Sort(fresh) != 0)
        Py_CLEAR(fresh);
    return fresh;
}

static bool add_possible(struct rpp_walk *walk, const struct rpp_scope *scope,
                         const struct possible *possible)
{
    PyObject *said = PyObject_CallMethodObjArgs((PyObject *)walk, says.could_be, scope, NULL);
    PyObject *fresh = said ? fresh_of(said, possible->are_there) : NULL;
    Py_ssize_t count = fresh ? PyList_Size(fresh) : 0;
    bool worked = fresh != NULL;
    for (Py_ssize_t i = 0; worked && i < count; i++)
        worked = PySet_Add(possible->are_there, PyList_GetItem(fresh, i)) == 0 &&
                 PyList_Append(possible->names, PyList_GetItem(fresh, i)) == 0;
    Py_XDECREF(said);
    Py_XDECREF(fresh);
    return worked;
}

/* What is kept of a type and names of its own: [turn in which it was asked, names, the same]. */
static PyObject *entry_of(struct rpp_walk *walk, PyObject *type, PyObject *own)
{
    PyObject *at = PyTuple_Pack(2, type, own);
    PyObject *entry = at ? PyDict_GetItemWithError(walk->could_be, at) : NULL;
    if (at && !entry && !PyErr_Occurred()) {
        PyObject *names = PyList_New(0), *are_there = PySet_New(NULL);
        PyObject *made = names && are_there ? Py_BuildValue("[iOO]", -1, names, are_there) : NULL;
        if (made && PyDict_SetItem(walk->could_be, at, made) == 0)
            entry = made; /* the dict has it */
        Py_XDECREF(made);
        Py_XDECREF(names);
        Py_XDECREF(are_there);
    }
    Py_XDECREF(at);
    return entry;
}

/* Asks once a turn. */
static bool could_be(struct rpp_walk *walk, const struct rpp_scope *scope, struct possible *out)
{
    PyObject *entry = entry_of(walk, type_of(scope->object), scope->own);
    if (!entry)
        return false;
    *out = (struct possible){PyList_GetItem(entry, 1), PyList_GetItem(entry, 2)};
    if (PyLong_AsLong(PyList_GetItem(entry, 0)) == walk->turn)
        return true;
    PyObject *turn = PyLong_FromLong(walk->turn);
    return turn && PyList_SetItem(entry, 0, turn) == 0 && add_possible(walk, scope, out);
}

/* Adds to names those that the scope has not, and could come to have. */
static bool add_missing(struct rpp_walk *walk, struct rpp_scope *scope, PyObject *names)
{
    struct possible possible;
    if (!scope->inherits)
        return true;
    bool worked = could_be(walk, scope, &possible);
    Py_ssize_t count = worked ? PyList_Size(possible.names) : 0;
    for (Py_ssize_t i = scope->possible; worked && i < count; i++) {
        PyObject *name = PyList_GetItem(possible.names, i);
        int here = PyDict_Contains(scope->names, name);
        int done = here ? here : PySet_Contains(scope->done, name);
        worked = here >= 0 && done >= 0 && (here || done || PyList_Append(names, name) == 0);
    }
    scope->possible = count;
    return worked;
}

/* How many are absent at the end. */
static Py_ssize_t count_missing(PyObject *values)
{
    Py_ssize_t count = PyTuple_Size(values), at = count;
    while (at > 0 && PyTuple_GetItem(values, at - 1) == rpp_absent)
        at--;
    return count - at;
}

/* Looks up names, a tuple, of a scope that has them all in a dict. */
static bool look_up(struct rpp_walk *walk, const struct rpp_scope *scope, PyObject *names)
{
    PyObject *keys =
        PyDict_Size(walk->left) > 0
            ? PyObject_CallMethodObjArgs((PyObject *)walk, says.not_left, scope, names, NULL)
            : Py_NewRef(names);
    bool worked = keys != NULL;
    if (worked && PyTuple_Size(keys) > 0) {
        struct rpp_owned owned = {.kind = RPP_NAMES,
                                  .way = scope->way,
                                  .is_open = scope->is_open,
                                  .object = scope->names,
                                  .keys = keys,
                                  .prefix = scope->path};
        owned.values = values_by_name(scope->names, keys);
        owned.missing = owned.values ? count_missing(owned.values) : 0;
        worked = owned.values && add_owned(walk, &owned);
        Py_XDECREF(owned.values);
    }
    Py_XDECREF(keys);
    return worked;
}

/* The names that a scope is looked up by next, which are noted: a new tuple. */
static PyObject *names_to_look_up(struct rpp_walk *walk, struct rpp_scope *scope,
                                  struct rpp_peer_turn turn)
{
    PyObject *found = turn.present ? present(walk, scope) : PyList_New(0);
    bool worked =
        found && (!turn.missing || add_missing(walk, scope, found)) && rpp_scope_note(scope, found);
    PyObject *names = worked ? PyList_AsTuple(found) : NULL;
    Py_XDECREF(found);
    return names;
}

/* The same, for what was found of a peer, or is found for the next one. */
static PyObject *names_of_peers(struct rpp_walk *walk, struct rpp_scope *scope,
                                struct rpp_peer_turn turn)
{
    PyObject *names = rpp_peers_find(&walk->peers, scope, turn);
    if (names)
        return names;
    struct rpp_peer_state before = rpp_peer_state(scope);
    PyObject *done = Py_NewRef(before.done); /* which a peer has to have */
    names = names_to_look_up(walk, scope, turn);
    if (names && !rpp_peers_keep(&walk->peers, scope, turn, before, names))
        Py_CLEAR(names);
    scope->done_is_shared = true; /* by the next one, perhaps */
    Py_DECREF(done);
    return names;
}

static bool extend_dict(struct rpp_walk *walk, struct rpp_scope *scope, struct rpp_peer_turn turn)
{
    PyObject *names = rpp_has_peers(scope) ? names_of_peers(walk, scope, turn)
                                           : names_to_look_up(walk, scope, turn);
    bool worked = names && (PyTuple_Size(names) == 0 || look_up(walk, scope, names));
    Py_XDECREF(names);
    return worked;
}

/* Looks up the names that came to be known since the scope was looked at. */
static bool extend(struct rpp_walk *walk, struct rpp_scope *scope, bool missing)
{
    struct rpp_known now = known_now(walk, scope->own);
    struct rpp_peer_turn looks = {.present = !is_same_known(&now, &scope->at),
                                  .missing = missing && !is_same_known(&now, &scope->lacks_at)};
    if (!looks.present && !looks.missing)
        return true;
    if (looks.present)
        scope->at = now;
    if (looks.missing)
        scope->lacks_at = now;
    if (!refresh(walk))
        return false;
    looks.turn = walk->turn;
    if (scope->names != Py_None && !extend_dict(walk, scope, looks))
        return false;
    if (!looks.present)
        return true;
    PyObject *type = (PyObject *)Py_TYPE(scope->object);
    int asks =
        scope->names == Py_None ? 1 : told_of_type(walk, walk->has_slots, says.has_slots, type);
    if (asks <= 0)
        return asks == 0;
    PyObject *asked = PyObject_CallMethodObjArgs((PyObject *)walk, says.ask, scope, NULL);
    Py_XDECREF(asked);
    return asked != NULL;
}

/* extend(scopes, missing=True): those that come to be while it goes on are left for the next time. */
static PyObject *walk_extend(PyObject *self, PyObject *args)
{
    PyObject *scopes;
    int missing = 1;
    if (!PyArg_ParseTuple(args, "O!|p", &PyList_Type, &scopes, &missing))
        return NULL;
    Py_ssize_t count = PyList_Size(scopes);
    for (Py_ssize_t i = 0; i < count && i < PyList_Size(scopes); i++) {
        PyObject *scope = Py_NewRef(PyList_GetItem(scopes, i));
        bool worked = rpp_is_scope(scope) &&
                      extend((struct rpp_walk *)self, (struct rpp_scope *)scope, missing != 0);
        Py_DECREF(scope);
        if (!worked)
            return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "extend takes Scopes");
    }
    return Py_NewRef(Py_None);
}

/* ---- The type ------------------------------------------------------------------------------ */

/* is_seen(value): did it get a token? */
static PyObject *walk_is_seen(PyObject *self, PyObject *value)
{
    return PyBool_FromLong(rpp_seen_has(&((struct rpp_walk *)self)->seen, value));
}

/* hold(value): it counts as seen, and lives as long as the walk goes on. */
static PyObject *walk_hold(PyObject *self, PyObject *value)
{
    size_t number;
    rpp_seen_add(&((struct rpp_walk *)self)->seen, value, &number);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* weaken(): tensors that were seen are the program's to drop. */
static PyObject *walk_weaken(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct rpp_walk *walk = (struct rpp_walk *)self;
    return rpp_seen_weaken(&walk->seen, (PyTypeObject *)walk->tensor) ? Py_NewRef(Py_None) : NULL;
}

/* let_go(): what was seen is the program's to drop. */
static PyObject *walk_let_go(PyObject *self, PyObject *unused)
{
    (void)unused;
    rpp_peers_clear(&((struct rpp_walk *)self)->peers);
    rpp_seen_clear(&((struct rpp_walk *)self)->seen);
    return Py_NewRef(Py_None);
}

static const size_t objects[] = {
    offsetof(struct rpp_walk, tokens),     offsetof(struct rpp_walk, paths),
    offsetof(struct rpp_walk, owners),     offsetof(struct rpp_walk, first),
    offsetof(struct rpp_walk, names),      offsetof(struct rpp_walk, maybe),
    offsetof(struct rpp_walk, classes),    offsetof(struct rpp_walk, dynamic_classes),
    offsetof(struct rpp_walk, skipped),    offsetof(struct rpp_walk, left),
    offsetof(struct rpp_walk, takes),      offsetof(struct rpp_walk, place),
    offsetof(struct rpp_walk, parts),      offsetof(struct rpp_walk, tensor),
    offsetof(struct rpp_walk, makers),     offsetof(struct rpp_walk, could_be),
    offsetof(struct rpp_walk, is_dynamic), offsetof(struct rpp_walk, has_slots),
    offsetof(struct rpp_walk, listed),     offsetof(struct rpp_walk, are_listed),
};
enum { OBJECTS = sizeof objects / sizeof *objects };
static const struct rpp_members references = {objects, OBJECTS};

static int walk_traverse(PyObject *self, visitproc visit, void *arg)
{
    int found = rpp_members_visit(self, &references, visit, arg);
    found = found ? found : rpp_peers_visit(&((struct rpp_walk *)self)->peers, visit, arg);
    return found ? found : rpp_seen_visit(&((struct rpp_walk *)self)->seen, visit, arg);
}

static int walk_clear(PyObject *self)
{
    rpp_members_clear(self, &references);
    rpp_peers_clear(&((struct rpp_walk *)self)->peers);
    rpp_seen_clear(&((struct rpp_walk *)self)->seen);
    return 0;
}

static void walk_dealloc(PyObject *self)
{
    rpp_deallocate(self, walk_clear);
}

/* What the class of Python's is given is its affair. */
static PyObject *walk_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    struct rpp_walk *walk = (struct rpp_walk *)rpp_allocate(type);
    if (!walk)
        return NULL;
    PyObject **const lists[] = {&walk->tokens, &walk->paths, &walk->owners,
                                &walk->first,  &walk->parts, &walk->listed};
    PyObject **const sets[] = {&walk->names, &walk->maybe, &walk->dynamic_classes, &walk->skipped,
                               &walk->are_listed};
    PyObject **const dicts[] = {&walk->classes,  &walk->left,       &walk->makers,
                                &walk->could_be, &walk->is_dynamic, &walk->has_slots};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        *lists[i] = PyList_New(0);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        *sets[i] = PySet_New(NULL);
    for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++)
        *dicts[i] = PyDict_New();
    walk->takes = Py_NewRef(Py_None);
    walk->place = Py_NewRef(Py_None);
    walk->tensor = Py_NewRef((PyObject *)type); /* until it is given */
    for (size_t i = 0; i < OBJECTS; i++)
        if (!*rpp_member((PyObject *)walk, objects[i])) {
            Py_DECREF(walk);
            return NULL;
        }
    return (PyObject *)walk;
}

static PyMemberDef members[] = {
    {"tokens", T_OBJECT, offsetof(struct rpp_walk, tokens), READONLY, NULL},
    {"paths", T_OBJECT, offsetof(struct rpp_walk, paths), 0, NULL},
    {"owners", T_OBJECT, offsetof(struct rpp_walk, owners), 0, NULL},
    {"first", T_OBJECT, offsetof(struct rpp_walk, first), READONLY, NULL},
    {"names", T_OBJECT, offsetof(struct rpp_walk, names), 0, NULL},
    {"left", T_OBJECT, offsetof(struct rpp_walk, left), 0, NULL},
    {"takes", T_OBJECT, offsetof(struct rpp_walk, takes), 0, NULL},
    {"parts", T_OBJECT, offsetof(struct rpp_walk, parts), 0, NULL},
    {"has_memory", T_BOOL, offsetof(struct rpp_walk, has_memory), 0, NULL},
    {"dynamic", T_BOOL, offsetof(struct rpp_walk, dynamic), 0, NULL},
    {"_maybe", T_OBJECT, offsetof(struct rpp_walk, maybe), 0, NULL},
    {"_classes", T_OBJECT, offsetof(struct rpp_walk, classes), READONLY, NULL},
    {"_dynamic_classes", T_OBJECT, offsetof(struct rpp_walk, dynamic_classes), 0, NULL},
    {"_skipped", T_OBJECT, offsetof(struct rpp_walk, skipped), 0, NULL},
    {"_place", T_OBJECT, offsetof(struct rpp_walk, place), 0, NULL},
    {"_tensor_class", T_OBJECT, offsetof(struct rpp_walk, tensor), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef methods[] = {
    {"put", walk_put, METH_VARARGS,
     "put(value, path): adds a value's token, and goes on to what it holds."},
    {"own", (PyCFunction)(void (*)(void))walk_own, METH_VARARGS | METH_KEYWORDS,
     "own(kind, object, keys, values, paths, way=0, is_open=False): an owner, and the tokens of "
     "its values, but for places that are left out. values: None for what a dict has by the keys. "
     "is_open: others may be put there for a while."},
    {"_kind_of", rpp_walk_kind_of, METH_VARARGS,
     "_kind_of(object, path): its class, and its dict, which may come to be others."},
    {"_module_part", rpp_walk_module_part, METH_VARARGS,
     "_module_part(part, dict, path, way): children, tensors or hooks by name."},
    {"_module_whole", rpp_walk_module, METH_VARARGS,
     "_module_whole(module, path, own, skips, parts, scopes, ways): its class, attributes and "
     "parts."},
    {"_tensor_there", rpp_walk_tensor, METH_VARARGS,
     "_tensor_there(tensor, path): the token of a tensor of the device; _tensor's of another."},
    {"extend", walk_extend, METH_VARARGS,
     "extend(scopes, missing=True): looks up the names that came to be known since each was looked "
     "at; "
     "missing: those too that it has not."},
    {"is_seen", walk_is_seen, METH_O, "is_seen(value): did it get a token?"},
    {"hold", walk_hold, METH_O, "hold(value): it counts as seen."},
    {"weaken", walk_weaken, METH_NOARGS, "weaken(): keeps no tensors of what was seen."},
    {"let_go", walk_let_go, METH_NOARGS, "let_go(): forgets what was seen."},
    {NULL, NULL, 0, NULL},
};

static bool prepare(void)
{
    static const struct rpp_text_at words[] = {
        {&says.maker, "_maker"},
        {&says.weak, "_weak"},
        {&says.is_cuda, "is_cuda"},
        {&says.meet, "_meet"},
        {&says.kept, "_kept"},
        {&says.shown, "_shown"},
        {&says.could_be, "_could_be"},
        {&says.is_dynamic, "_is_dynamic"},
        {&says.ask, "_ask"},
        {&says.not_left, "_not_left"},
        {&says.has_slots, "_has_slots"},
        {&seen_word, "seen"},
        {&absent_word, "absent"},
    };
    if (!rpp_intern(words, sizeof words / sizeof *words))
        return false;
    absent_token = PyTuple_Pack(1, absent_word);
    return absent_token != NULL && rpp_walk_torch_prepare();
}

int rpp_add_walk_types(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)walk_new},
        {Py_tp_dealloc, (void *)walk_dealloc},
        {Py_tp_traverse, (void *)walk_traverse},
        {Py_tp_clear, (void *)walk_clear},
        {Py_tp_members, members},
        {Py_tp_methods, methods},
        {Py_tp_doc, "The inner loop of a walk."},
        {0, NULL},
    };
    static PyType_Spec spec = {"reprise._C.Walk", sizeof(struct rpp_walk), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
                               slots};
    if (rpp_add_same_type(module) != 0 || rpp_add_scope_type(module) != 0 || !prepare())
        return -1;
    PyObject *type = PyType_FromSpec(&spec);
    int added = type ? PyModule_AddType(module, (PyTypeObject *)type) : -1;
    Py_XDECREF(type);
    return added;
}
