/* SPDX-License-Identifier: MIT */
#include "reads/walk.h"

#include "reads/reads.h"
#include "reads/same.h"
#include "reads/scope.h"

#include <stddef.h>
#include <structmember.h>

enum { NAMES }; /* of the kinds of owners */

struct walk {
    PyObject_HEAD PyObject *tokens, *paths, *owners, *first; /* lists */
    PyObject *names, *maybe, *dynamic_classes;               /* sets */
    PyObject *skipped;                                       /* names that are never looked up */
    PyObject *left, *takes, *place, *parts;
    PyObject *tensor;     /* the class of tensors */
    PyObject *makers;     /* by type, what makes its token: a function of Python's; True: the value
                              is plain; False: it is, and its text tells it */
    PyObject *could_be;   /* by (type, own): names, as long as `could_be_at` holds */
    PyObject *is_dynamic; /* by type: is it one of dynamic_classes?, likewise */
    PyObject *has_slots;  /* by type */
    struct rpp_known could_be_at;
    Py_ssize_t class_count; /* of `classes`, then */
    PyObject *classes;      /* those that were met: a dict */
    struct rpp_seen seen;
    char dynamic;
};

/* Of the names of Python's methods. */
static struct {
    PyObject *maker, *weak, *meet, *kept, *shown, *could_be, *is_dynamic, *ask, *not_left,
        *has_slots;
} says;

static PyObject *absent_token, *absent_word, *seen_word;

/* ---- Tokens -------------------------------------------------------------------------------- */

static PyObject *maker_of(struct walk *walk, PyTypeObject *type)
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

static PyObject *object_token(struct walk *walk, PyObject *maker, PyObject *value, PyObject *path)
{
    size_t number;
    if (rpp_seen_add(&walk->seen, value, &number))
        return PyObject_CallFunctionObjArgs(maker, walk, value, path, NULL);
    PyObject *of = PyErr_Occurred() ? NULL : PyLong_FromSize_t(number);
    PyObject *token = of ? PyTuple_Pack(2, seen_word, of) : NULL;
    Py_XDECREF(of);
    return token;
}

static PyObject *token_of(struct walk *walk, PyObject *value, PyObject *path)
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
static bool meet(struct walk *walk, PyObject *value)
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

static bool put(struct walk *walk, PyObject *value, PyObject *path)
{
    PyObject *token = meet(walk, value) ? token_of(walk, value, path) : NULL;
    bool worked =
        token && PyList_Append(walk->tokens, token) == 0 && PyList_Append(walk->paths, path) == 0;
    Py_XDECREF(token);
    return worked;
}

static PyObject *walk_put(PyObject *self, PyObject *args)
{
    PyObject *value, *path;
    if (!PyArg_ParseTuple(args, "OO", &value, &path))
        return NULL;
    return put((struct walk *)self, value, path) ? Py_NewRef(Py_None) : NULL;
}

/* ---- Owners -------------------------------------------------------------------------------- */

/* One owner, and what its values are found by. */
struct owned {
    int kind, way;
    bool is_open;
    PyObject *object, *keys, *values; /* keys: a tuple, or None */
    PyObject *paths;                  /* of the values: a sequence; NULL: prefix and key are */
    PyObject *prefix;
    Py_ssize_t missing; /* of the values: so many at the end are absent, and have one token */
};

/* What is compared with values later, a new tuple: tensors of the device by weak references. */
static PyObject *weak_values(struct walk *walk, PyObject *values)
{
    Py_ssize_t count = PyTuple_Size(values);
    PyObject *made = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PyTuple_GetItem(values, i);
        if (!PyType_IsSubtype(Py_TYPE(value), (PyTypeObject *)walk->tensor))
            continue;
        PyObject *weak = PyObject_CallMethodObjArgs((PyObject *)walk, says.weak, value, NULL);
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

static bool append_owner(struct walk *walk, const struct owned *owned)
{
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
static bool set_place(struct walk *walk, const struct owned *owned, Py_ssize_t i)
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

static PyObject *path_of(const struct owned *owned, Py_ssize_t i)
{
    return owned->paths ? PySequence_GetItem(owned->paths, i)
                        : PyUnicode_Concat(owned->prefix, PyTuple_GetItem(owned->keys, i));
}

/* One token for the names that are not there: ("absent", names); its path is what stands before each
 * of them. */
static bool put_missing(struct walk *walk, const struct owned *owned)
{
    if (owned->missing == 0)
        return true;
    Py_ssize_t count = PyTuple_Size(owned->keys);
    PyObject *names = PyTuple_GetSlice(owned->keys, count - owned->missing, count);
    PyObject *token = names ? PyTuple_Pack(2, absent_word, names) : NULL;
    bool worked = token && PyList_Append(walk->tokens, token) == 0 &&
                  PyList_Append(walk->paths, owned->prefix) == 0;
    Py_XDECREF(names);
    Py_XDECREF(token);
    return worked;
}

static bool add_owned(struct walk *walk, const struct owned *owned)
{
    if (owned->is_open && walk->takes != Py_None && PyList_Append(walk->parts, owned->object) != 0)
        return false;
    if (!append_owner(walk, owned))
        return false;
    Py_ssize_t count = PyTuple_Size(owned->values) - owned->missing;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *path = path_of(owned, i);
        bool worked =
            path && set_place(walk, owned, i) && put(walk, PyTuple_GetItem(owned->values, i), path);
        Py_XDECREF(path);
        if (!worked)
            return false;
    }
    return put_missing(walk, owned);
}

/* own(kind, object, keys, values, paths, way, is_open): an owner, and the tokens of its values, but
 * for places that are left out. */
static PyObject *walk_own(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"kind", "object", "keys", "values", "paths", "way", "is_open", NULL};
    struct walk *walk = (struct walk *)self;
    struct owned owned = {0};
    int is_open = 0;
    PyObject *kept = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iOOOO|ip", names, &owned.kind, &owned.object,
                                     &owned.keys, &owned.values, &owned.paths, &owned.way,
                                     &is_open))
        return NULL;
    owned.is_open = is_open != 0;
    if (PyObject_IsTrue(walk->left) == 1) {
        PyObject *kind = PyLong_FromLong(owned.kind);
        kept = kind ? PyObject_CallMethodObjArgs(self, says.kept, kind, owned.object, owned.keys,
                                                 owned.values, owned.paths, NULL)
                    : NULL;
        Py_XDECREF(kind);
        if (!kept || kept == Py_None)
            return kept;
        if (!PyArg_ParseTuple(kept, "iOOO", &owned.kind, &owned.keys, &owned.values,
                              &owned.paths)) {
            Py_DECREF(kept);
            return NULL;
        }
    }
    owned.values = PySequence_Tuple(owned.values);
    bool worked = owned.values && (owned.keys == Py_None || PyTuple_Check(owned.keys)) &&
                  add_owned(walk, &owned);
    if (!worked && !PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "own takes keys as a tuple");
    Py_XDECREF(owned.values);
    Py_XDECREF(kept);
    return worked ? Py_NewRef(Py_None) : NULL;
}

/* ---- Attributes by name -------------------------------------------------------------------- */

static struct rpp_known known_now(const struct walk *walk, const PyObject *own)
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

/* Forgets what was derived from less than is known by now. */
static void refresh(struct walk *walk)
{
    struct rpp_known now = known_now(walk, NULL);
    Py_ssize_t count = PyDict_Size(walk->classes);
    if (is_same_known(&now, &walk->could_be_at) && count == walk->class_count)
        return;
    PyDict_Clear(walk->could_be);
    PyDict_Clear(walk->is_dynamic);
    walk->could_be_at = now;
    walk->class_count = count;
}

/* 1 or 0, as Python's method says of the type, which is asked once; -1 with an exception set. */
static int told_of_type(struct walk *walk, PyObject *told, PyObject *method, PyObject *type)
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

/* Is the scope's object asked for names that code makes? */
static int is_dynamic(struct walk *walk, const struct rpp_scope *scope)
{
    if (walk->dynamic || PySet_Size(walk->dynamic_classes) == 0)
        return walk->dynamic;
    PyObject *of = PyType_Check(scope->object) ? scope->object : (PyObject *)Py_TYPE(scope->object);
    return told_of_type(walk, walk->is_dynamic, says.is_dynamic, of);
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
static bool wants(const struct walk *walk, const struct rpp_scope *scope, PyObject *name,
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

/* The names that a scope has, of those that count: a new list. */
static PyObject *present(struct walk *walk, const struct rpp_scope *scope)
{
    int dynamic = is_dynamic(walk, scope);
    PyObject *keys = dynamic < 0 ? NULL : PyDict_Keys(scope->names);
    PyObject *found = keys ? PyList_New(0) : NULL;
    Py_ssize_t count = keys ? PyList_Size(keys) : 0;
    for (Py_ssize_t i = 0; found && i < count; i++) {
        PyObject *name = PyList_GetItem(keys, i);
        if (wants(walk, scope, name, dynamic == 1) && PyList_Append(found, name) != 0)
            Py_CLEAR(found);
    }
    Py_XDECREF(keys);
    /* Of the two orders, that which does not hang on when a large dict got its names. */
    bool is_large = PySet_Size(walk->names) + PySet_Size(scope->own) < count && !dynamic;
    if (found && (PyErr_Occurred() || (is_large && PyList_Sort(found) != 0)))
        Py_CLEAR(found);
    if (!found || !scope->shallow)
        return found;
    PyObject *shown = PyObject_CallMethodObjArgs((PyObject *)walk, says.shown, scope, found, NULL);
    Py_DECREF(found);
    return shown;
}

/* Names that a class, or an object of a type, could come to have itself: a new tuple. */
static PyObject *could_be(struct walk *walk, const struct rpp_scope *scope)
{
    PyObject *type =
        PyType_Check(scope->object) ? scope->object : (PyObject *)Py_TYPE(scope->object);
    PyObject *at = PyTuple_Pack(2, type, scope->own);
    PyObject *found = at ? PyDict_GetItemWithError(walk->could_be, at) : NULL;
    if (found)
        Py_INCREF(found);
    else if (at && !PyErr_Occurred()) {
        found = PyObject_CallMethodObjArgs((PyObject *)walk, says.could_be, scope, NULL);
        if (found && (!PyTuple_Check(found) || PyDict_SetItem(walk->could_be, at, found) != 0))
            Py_CLEAR(found);
    }
    Py_XDECREF(at);
    return found;
}

/* Adds to names those that the scope has not, and could come to have. */
static bool add_missing(struct walk *walk, const struct rpp_scope *scope, PyObject *names)
{
    PyObject *possible = scope->inherits ? could_be(walk, scope) : NULL;
    Py_ssize_t count = possible ? PyTuple_Size(possible) : 0;
    bool worked = possible || !scope->inherits;
    for (Py_ssize_t i = 0; worked && i < count; i++) {
        PyObject *name = PyTuple_GetItem(possible, i);
        int here = PyDict_Contains(scope->names, name);
        int done = here ? here : PySet_Contains(scope->done, name);
        worked = here >= 0 && done >= 0 && (here || done || PyList_Append(names, name) == 0);
    }
    Py_XDECREF(possible);
    return worked;
}

static bool note_done(const struct rpp_scope *scope, PyObject *names)
{
    Py_ssize_t count = PyList_Size(names);
    for (Py_ssize_t i = 0; i < count; i++)
        if (PySet_Add(scope->done, PyList_GetItem(names, i)) != 0)
            return false;
    return true;
}

/* A new tuple; how many are missing at its end. */
static PyObject *values_of(const struct rpp_scope *scope, PyObject *keys, Py_ssize_t *out_missing)
{
    Py_ssize_t count = PyTuple_Size(keys), missing = 0;
    PyObject *values = PyTuple_New(count);
    for (Py_ssize_t i = 0; values && i < count; i++) {
        PyObject *value = PyDict_GetItemWithError(scope->names, PyTuple_GetItem(keys, i));
        missing = value ? 0 : missing + 1;
        if ((!value && PyErr_Occurred()) ||
            PyTuple_SetItem(values, i, Py_NewRef(value ? value : rpp_absent)) != 0)
            Py_CLEAR(values);
    }
    *out_missing = missing;
    return values;
}

/* Looks up names of a scope that has them all in a dict. */
static bool look_up(struct walk *walk, const struct rpp_scope *scope, PyObject *names)
{
    PyObject *keys = PyList_AsTuple(names);
    if (keys && PyObject_IsTrue(walk->left) == 1) {
        PyObject *kept =
            PyObject_CallMethodObjArgs((PyObject *)walk, says.not_left, scope, keys, NULL);
        Py_DECREF(keys);
        keys = kept;
    }
    bool worked = keys != NULL;
    if (worked && PyTuple_Size(keys) > 0) {
        struct owned owned = {.kind = NAMES,
                              .way = scope->way,
                              .is_open = scope->is_open,
                              .object = scope->names,
                              .keys = keys,
                              .prefix = scope->path};
        owned.values = values_of(scope, keys, &owned.missing);
        worked = owned.values && add_owned(walk, &owned);
        Py_XDECREF(owned.values);
    }
    Py_XDECREF(keys);
    return worked;
}

static bool extend_dict(struct walk *walk, const struct rpp_scope *scope)
{
    PyObject *names = present(walk, scope);
    bool worked = names && add_missing(walk, scope, names) && note_done(scope, names) &&
                  (PyList_Size(names) == 0 || look_up(walk, scope, names));
    Py_XDECREF(names);
    return worked;
}

/* Looks up the names that came to be known since the scope was looked at. */
static bool extend(struct walk *walk, struct rpp_scope *scope)
{
    struct rpp_known now = known_now(walk, scope->own);
    if (is_same_known(&now, &scope->at))
        return true;
    scope->at = now;
    refresh(walk);
    if (scope->names != Py_None && !extend_dict(walk, scope))
        return false;
    PyObject *type = (PyObject *)Py_TYPE(scope->object);
    int asks =
        scope->names == Py_None ? 1 : told_of_type(walk, walk->has_slots, says.has_slots, type);
    if (asks <= 0)
        return asks == 0;
    PyObject *asked = PyObject_CallMethodObjArgs((PyObject *)walk, says.ask, scope, NULL);
    Py_XDECREF(asked);
    return asked != NULL;
}

/* extend(scopes): those that come to be while it goes on are left for the next time. */
static PyObject *walk_extend(PyObject *self, PyObject *scopes)
{
    if (!PyList_Check(scopes))
        return PyErr_Format(PyExc_TypeError, "extend takes a list of Scopes");
    Py_ssize_t count = PyList_Size(scopes);
    for (Py_ssize_t i = 0; i < count && i < PyList_Size(scopes); i++) {
        PyObject *scope = Py_NewRef(PyList_GetItem(scopes, i));
        bool worked = rpp_is_scope(scope) && extend((struct walk *)self, (struct rpp_scope *)scope);
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
    return PyBool_FromLong(rpp_seen_has(&((struct walk *)self)->seen, value));
}

/* hold(value): it counts as seen, and lives as long as the walk goes on. */
static PyObject *walk_hold(PyObject *self, PyObject *value)
{
    size_t number;
    rpp_seen_add(&((struct walk *)self)->seen, value, &number);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* weaken(): tensors that were seen are the program's to drop. */
static PyObject *walk_weaken(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct walk *walk = (struct walk *)self;
    return rpp_seen_weaken(&walk->seen, (PyTypeObject *)walk->tensor) ? Py_NewRef(Py_None) : NULL;
}

/* let_go(): what was seen is the program's to drop. */
static PyObject *walk_let_go(PyObject *self, PyObject *unused)
{
    (void)unused;
    rpp_seen_clear(&((struct walk *)self)->seen);
    return Py_NewRef(Py_None);
}

static const size_t objects[] = {
    offsetof(struct walk, tokens),     offsetof(struct walk, paths),
    offsetof(struct walk, owners),     offsetof(struct walk, first),
    offsetof(struct walk, names),      offsetof(struct walk, maybe),
    offsetof(struct walk, classes),    offsetof(struct walk, dynamic_classes),
    offsetof(struct walk, skipped),    offsetof(struct walk, left),
    offsetof(struct walk, takes),      offsetof(struct walk, place),
    offsetof(struct walk, parts),      offsetof(struct walk, tensor),
    offsetof(struct walk, makers),     offsetof(struct walk, could_be),
    offsetof(struct walk, is_dynamic), offsetof(struct walk, has_slots),
};
enum { OBJECTS = sizeof objects / sizeof *objects };

static PyObject **object_of(PyObject *walk, size_t i)
{
    return (PyObject **)(void *)((char *)walk + objects[i]);
}

static int walk_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (size_t i = 0; i < OBJECTS; i++)
        Py_VISIT(*object_of(self, i));
    return rpp_seen_visit(&((struct walk *)self)->seen, visit, arg);
}

static int walk_clear(PyObject *self)
{
    for (size_t i = 0; i < OBJECTS; i++)
        Py_CLEAR(*object_of(self, i));
    rpp_seen_clear(&((struct walk *)self)->seen);
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
    struct walk *walk = (struct walk *)rpp_allocate(type);
    if (!walk)
        return NULL;
    PyObject **const lists[] = {&walk->tokens, &walk->paths, &walk->owners, &walk->first,
                                &walk->parts};
    PyObject **const sets[] = {&walk->names, &walk->maybe, &walk->dynamic_classes, &walk->skipped};
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
        if (!*object_of((PyObject *)walk, i)) {
            Py_DECREF(walk);
            return NULL;
        }
    return (PyObject *)walk;
}

static PyMemberDef members[] = {
    {"tokens", T_OBJECT, offsetof(struct walk, tokens), READONLY, NULL},
    {"paths", T_OBJECT, offsetof(struct walk, paths), 0, NULL},
    {"owners", T_OBJECT, offsetof(struct walk, owners), 0, NULL},
    {"first", T_OBJECT, offsetof(struct walk, first), READONLY, NULL},
    {"names", T_OBJECT, offsetof(struct walk, names), 0, NULL},
    {"left", T_OBJECT, offsetof(struct walk, left), 0, NULL},
    {"takes", T_OBJECT, offsetof(struct walk, takes), 0, NULL},
    {"parts", T_OBJECT, offsetof(struct walk, parts), 0, NULL},
    {"dynamic", T_BOOL, offsetof(struct walk, dynamic), 0, NULL},
    {"_maybe", T_OBJECT, offsetof(struct walk, maybe), 0, NULL},
    {"_classes", T_OBJECT, offsetof(struct walk, classes), READONLY, NULL},
    {"_dynamic_classes", T_OBJECT, offsetof(struct walk, dynamic_classes), 0, NULL},
    {"_skipped", T_OBJECT, offsetof(struct walk, skipped), 0, NULL},
    {"_place", T_OBJECT, offsetof(struct walk, place), 0, NULL},
    {"_tensor_class", T_OBJECT, offsetof(struct walk, tensor), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef methods[] = {
    {"put", walk_put, METH_VARARGS,
     "put(value, path): adds a value's token, and goes on to what it holds."},
    {"own", (PyCFunction)(void (*)(void))walk_own, METH_VARARGS | METH_KEYWORDS,
     "own(kind, object, keys, values, paths, way=0, is_open=False): an owner, and the tokens of "
     "its "
     "values, but for places that are left out. is_open: others may be put there for a while."},
    {"extend", walk_extend, METH_O,
     "extend(scopes): looks up the names that came to be known since each was looked at."},
    {"is_seen", walk_is_seen, METH_O, "is_seen(value): did it get a token?"},
    {"hold", walk_hold, METH_O, "hold(value): it counts as seen."},
    {"weaken", walk_weaken, METH_NOARGS, "weaken(): keeps no tensors of what was seen."},
    {"let_go", walk_let_go, METH_NOARGS, "let_go(): forgets what was seen."},
    {NULL, NULL, 0, NULL},
};

static bool prepare(void)
{
    static const struct {
        PyObject **at;
        const char *name;
    } words[] = {
        {&says.maker, "_maker"},
        {&says.weak, "_weak"},
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
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!(*words[i].at = PyUnicode_InternFromString(words[i].name)))
            return false;
    absent_token = PyTuple_Pack(1, absent_word);
    return absent_token != NULL;
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
    static PyType_Spec spec = {"reprise._C.Walk", sizeof(struct walk), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
                               slots};
    if (rpp_add_same_type(module) != 0 || rpp_add_scope_type(module) != 0 || !prepare())
        return -1;
    PyObject *type = PyType_FromSpec(&spec);
    int added = type ? PyModule_AddType(module, (PyTypeObject *)type) : -1;
    Py_XDECREF(type);
    return added;
}
