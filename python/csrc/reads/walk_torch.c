/* SPDX-License-Identifier: MIT
 *
 * Modules and tensors of PyTorch in a walk: what most of a model's objects are.
 */
#include "base/members.h"
#include "reads/marks.h"
#include "reads/walk.h"
#include "reads/walking.h"

/* Names of attributes and methods. */
static struct {
    PyObject *dict, *dictoffset, *values, *modules, *parameters, *buffers, *is_cuda, *hooks,
        *forward_hooks, *forward_pre_hooks, *later_hooks, *data_ptr, *shape, *stride, *dtype,
        *device, *requires_grad, *tensor_slowly, *executed, *news, *tensors, *known;
} says;

static PyObject *tensor_word, *dict_word;

/* ---- Classes and dicts --------------------------------------------------------------------- */

/* An object may come to have another class. */
static bool add_class(struct rpp_walk *walk, PyObject *object, PyObject *path)
{
    struct rpp_owned owned = {.kind = RPP_TYPE, .object = object, .keys = Py_None};
    PyObject *text = PyUnicode_FromFormat("the class of %U", path);
    owned.values = PyTuple_Pack(1, Py_TYPE(object));
    owned.paths = text ? PyTuple_Pack(1, text) : NULL;
    bool worked = owned.values && owned.paths && rpp_walk_own(walk, &owned);
    Py_XDECREF(text);
    Py_XDECREF(owned.values);
    Py_XDECREF(owned.paths);
    return worked;
}

/* Has its type a place for a dict, so that another one can be put there? -1 with an exception set. */
static int has_dict_place(PyObject *object)
{
    PyObject *offset = PyObject_GetAttr((PyObject *)Py_TYPE(object), says.dictoffset);
    int has = offset ? PyObject_IsTrue(offset) : -1;
    Py_XDECREF(offset);
    return has;
}

/* Or another dict. */
static bool add_dict(struct rpp_walk *walk, PyObject *object, PyObject *path, PyObject *names)
{
    int has = has_dict_place(object);
    if (has <= 0)
        return has == 0;
    struct rpp_owned owned = {.kind = RPP_DICT, .object = object, .keys = Py_None};
    PyObject *text = PyUnicode_FromFormat("%U.__dict__", path);
    owned.values = PyTuple_Pack(1, names);
    bool worked = text && owned.values && rpp_walk_append_owner(walk, &owned) &&
                  rpp_walk_append(walk, dict_word, text);
    Py_XDECREF(text);
    Py_XDECREF(owned.values);
    return worked;
}

static bool add_kind(struct rpp_walk *walk, PyObject *object, PyObject *path, PyObject *names)
{
    return add_class(walk, object, path) &&
           (!names || !PyDict_CheckExact(names) || add_dict(walk, object, path, names));
}

PyObject *rpp_walk_kind_of(PyObject *self, PyObject *args)
{
    rpp_assert_gil();
    PyObject *object, *path;
    if (!PyArg_ParseTuple(args, "OU", &object, &path))
        return NULL;
    PyObject *names =
        PyObject_GenericGetAttr(object, says.dict); /* without code of the program's */
    if (!names && !PyErr_ExceptionMatches(PyExc_AttributeError))
        return NULL;
    PyErr_Clear();
    bool worked = add_kind((struct rpp_walk *)self, object, path, names);
    Py_XDECREF(names);
    return worked ? Py_NewRef(Py_None) : NULL;
}

/* ---- Modules ------------------------------------------------------------------------------- */

static bool is_number(PyObject *text)
{
    Py_ssize_t length = PyUnicode_GetLength(text);
    for (Py_ssize_t i = 0; i < length; i++) {
        Py_UCS4 sign = PyUnicode_ReadChar(text, i);
        if (sign < '0' || sign > '9')
            return false;
    }
    return length > 0;
}

static bool is_word(PyObject *text, PyObject *word)
{
    return text == word || PyUnicode_Compare(text, word) == 0;
}

/* How the program would write a child, a tensor or a hook. */
static PyObject *part_path(PyObject *part, PyObject *key, PyObject *path)
{
    bool is_child = is_word(part, says.modules);
    if (!is_child && !is_word(part, says.parameters) && !is_word(part, says.buffers))
        return PyUnicode_FromFormat("a hook of %U", path);
    PyObject *text = PyObject_Str(key), *made = NULL;
    if (text)
        made = PyUnicode_FromFormat(is_child && is_number(text) ? "%U[%U]" : "%U.%U", path, text);
    Py_XDECREF(text);
    return made;
}

static PyObject *part_paths(PyObject *part, PyObject *keys, PyObject *path)
{
    Py_ssize_t count = PyTuple_Size(keys);
    PyObject *paths = PyTuple_New(count);
    for (Py_ssize_t i = 0; paths && i < count; i++) {
        PyObject *one = part_path(part, PyTuple_GetItem(keys, i), path);
        if (!one || PyTuple_SetItem(paths, i, one) != 0)
            Py_CLEAR(paths);
    }
    return paths;
}

/* Children, tensors or hooks by name, in their order. */
static bool add_part(struct rpp_walk *walk, PyObject *part, PyObject *held, PyObject *path, int way)
{
    struct rpp_owned owned = {.kind = RPP_ITEMS, .way = way, .object = held};
    PyObject *text = PyUnicode_FromFormat("%U.%U", path, part);
    owned.keys = PySequence_Tuple(held);
    owned.values = PyDict_CheckExact(held) ? PyDict_Values(held)
                                           : PyObject_CallMethodObjArgs(held, says.values, NULL);
    owned.paths = owned.keys ? part_paths(part, owned.keys, path) : NULL;
    bool worked = text && owned.keys && owned.values && owned.paths &&
                  rpp_walk_append(walk, owned.keys, text) && rpp_walk_own(walk, &owned);
    Py_XDECREF(text);
    Py_XDECREF(owned.keys);
    Py_XDECREF(owned.values);
    Py_XDECREF(owned.paths);
    return worked;
}

PyObject *rpp_walk_module_part(PyObject *self, PyObject *args)
{
    rpp_assert_gil();
    PyObject *part, *held, *path;
    int way;
    if (!PyArg_ParseTuple(args, "UO!Ui", &part, &PyDict_Type, &held, &path, &way))
        return NULL;
    return add_part((struct rpp_walk *)self, part, held, path, way) ? Py_NewRef(Py_None) : NULL;
}

/* May the program put something into this part by its own hand, which nothing but a watcher would tell? */
static bool may_be_filled(PyObject *part, int way)
{
    return way == RPP_BY_WATCHER &&
           (is_word(part, says.forward_hooks) || is_word(part, says.forward_pre_hooks));
}

/* Those of these parts that are there, and not empty, with those that may be filled at no cost. */
static bool add_parts(struct rpp_walk *walk, PyObject *names, PyObject *parts, PyObject *path,
                      int way)
{
    Py_ssize_t count = PyTuple_Size(parts);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *part = PyTuple_GetItem(parts, i);
        PyObject *held = PyDict_GetItemWithError(names, part);
        if (!held && PyErr_Occurred())
            return false;
        if (!held || !PyDict_Check(held) || (PyDict_Size(held) == 0 && !may_be_filled(part, way)))
            continue;
        Py_INCREF(held);
        bool worked = add_part(walk, part, held, path, way);
        Py_DECREF(held);
        if (!worked)
            return false;
    }
    return true;
}

/* Another dict may come to be where a module has its children, parameters or buffers. */
static bool add_places_of_parts(struct rpp_walk *walk, PyObject *names, PyObject *path, int way)
{
    PyObject *const parts[] = {says.modules, says.parameters, says.buffers};
    enum { COUNT = sizeof parts / sizeof *parts };
    struct rpp_owned owned = {.kind = RPP_NAMES, .way = way, .object = names};
    PyObject *held[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        held[i] = PyDict_GetItemWithError(names, parts[i]);
        if (!held[i])
            return !PyErr_Occurred();
    }
    owned.keys = PyTuple_Pack(COUNT, parts[0], parts[1], parts[2]);
    owned.values = PyTuple_Pack(COUNT, held[0], held[1], held[2]);
    bool worked = owned.keys && owned.values && rpp_walk_append_owner(walk, &owned);
    for (size_t i = 0; worked && i < COUNT; i++) {
        PyObject *text = PyUnicode_FromFormat("%U.%U", path, parts[i]);
        worked = text && rpp_walk_append(walk, dict_word, text);
        Py_XDECREF(text);
    }
    Py_XDECREF(owned.keys);
    Py_XDECREF(owned.values);
    return worked;
}

static bool add_scope(PyObject *scopes, PyObject *module, PyObject *names, PyObject *path,
                      PyObject *own, PyObject *skips, int way)
{
    PyObject *prefix = PyUnicode_FromFormat("%U.", path);
    struct rpp_scope *scope = prefix ? rpp_scope_new(module, names, prefix, own, skips) : NULL;
    if (scope) {
        scope->way = way;
        scope->inherits = true;
    }
    bool worked = scope && PyList_Append(scopes, (PyObject *)scope) == 0;
    Py_XDECREF(prefix);
    Py_XDECREF(scope);
    return worked;
}

PyObject *rpp_walk_module(PyObject *self, PyObject *args)
{
    rpp_assert_gil();
    struct rpp_walk *walk = (struct rpp_walk *)self;
    PyObject *module, *path, *own, *skips, *parts, *scopes;
    int way, way_of_parts;
    if (!PyArg_ParseTuple(args, "OUO!O!O!O!(ii)", &module, &path, &PyFrozenSet_Type, &own,
                          &PyFrozenSet_Type, &skips, &PyTuple_Type, &parts, &PyList_Type, &scopes,
                          &way, &way_of_parts))
        return NULL;
    PyObject *names = PyObject_GetAttr(module, says.dict);
    bool worked = names && add_kind(walk, module, path, names);
    if (worked && !PyDict_Check(names)) {
        PyErr_SetString(PyExc_TypeError, "a module has a dict");
        worked = false;
    }
    worked = worked && add_scope(scopes, module, names, path, own, skips, way) &&
             add_parts(walk, names, parts, path, way_of_parts) &&
             add_places_of_parts(walk, names, path, way);
    Py_XDECREF(names);
    return worked ? Py_NewRef(Py_None) : NULL;
}

/* ---- Tensors ------------------------------------------------------------------------------- */

/* Is an attribute there that says something? Not, where it raises. */
static bool has_some(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    bool has = value && value != Py_None && !(PyDict_Check(value) && PyDict_Size(value) == 0);
    Py_XDECREF(value);
    PyErr_Clear();
    return has;
}

/* Is it a tensor of the device that has nothing but its memory? */
static bool is_plain_tensor(PyObject *tensor)
{
    PyObject *is_cuda = PyObject_GetAttr(tensor, says.is_cuda);
    bool is_plain = is_cuda == Py_True && !has_some(tensor, says.hooks) &&
                    !has_some(tensor, says.later_hooks) && !has_some(tensor, says.dict);
    Py_XDECREF(is_cuda);
    PyErr_Clear();
    return is_plain;
}

/* What tells it from others: a new tuple. NULL with an exception set: it has no memory of its own. */
static PyObject *tensor_token(PyObject *tensor)
{
    PyObject *const names[] = {says.shape, says.dtype, says.device, says.requires_grad};
    PyObject *found[4] = {NULL};
    bool worked = true;
    for (size_t i = 0; worked && i < 4; i++)
        worked = (found[i] = PyObject_GetAttr(tensor, names[i])) != NULL;
    PyObject *stride = worked ? PyObject_CallMethodObjArgs(tensor, says.stride, NULL) : NULL;
    PyObject *address = stride ? PyObject_CallMethodObjArgs(tensor, says.data_ptr, NULL) : NULL;
    PyObject *token = address ? PyTuple_Pack(7, tensor_word, address, found[0], stride, found[1],
                                             found[2], found[3])
                              : NULL;
    for (size_t i = 0; i < 4; i++)
        Py_XDECREF(found[i]);
    Py_XDECREF(stride);
    Py_XDECREF(address);
    return token;
}

/* Somebody else looks at tensors whose ids are known; the others are owners. */
static bool own_tensor(struct rpp_walk *walk, PyObject *tensor)
{
    PyObject *known = PyObject_GetAttr((PyObject *)walk, says.known);
    PyObject *id = known ? PyLong_FromVoidPtr(tensor) : NULL;
    int is_known = id ? PySequence_Contains(known, id) : -1;
    Py_XDECREF(known);
    Py_XDECREF(id);
    if (is_known != 0)
        return is_known > 0;
    struct rpp_owned owned = {.kind = RPP_TENSOR, .keys = Py_None};
    owned.object = rpp_walk_weak(walk, tensor);
    owned.values = PyTuple_New(0);
    bool worked = owned.object && owned.values && rpp_walk_append_owner(walk, &owned);
    Py_XDECREF(owned.object);
    Py_XDECREF(owned.values);
    return worked;
}

/* Notes it among what a walk looks at again when it goes on, where it may. */
static bool note_tensor(struct rpp_walk *walk, PyObject *tensor, PyObject *path)
{
    PyObject *executed = PyObject_GetAttr((PyObject *)walk, says.executed);
    bool goes_on = executed != Py_None, worked = executed != NULL;
    Py_XDECREF(executed);
    if (!worked || !goes_on)
        return worked;
    PyObject *news = PyObject_GetAttr((PyObject *)walk, says.news);
    PyObject *tensors = news ? PyObject_GetAttr(news, says.tensors) : NULL;
    PyObject *weak = tensors ? PyWeakref_NewRef(tensor, NULL) : NULL;
    PyObject *entry = weak ? PyTuple_Pack(2, weak, path) : NULL;
    worked = entry && PyList_Append(tensors, entry) == 0;
    Py_XDECREF(news);
    Py_XDECREF(tensors);
    Py_XDECREF(weak);
    Py_XDECREF(entry);
    return worked;
}

PyObject *rpp_walk_tensor(PyObject *self, PyObject *args)
{
    rpp_assert_gil();
    struct rpp_walk *walk = (struct rpp_walk *)self;
    PyObject *tensor, *path;
    if (!PyArg_ParseTuple(args, "OU", &tensor, &path))
        return NULL;
    PyObject *token = is_plain_tensor(tensor) ? tensor_token(tensor) : NULL;
    if (!token) {
        PyErr_Clear();
        return PyObject_CallMethodObjArgs(self, says.tensor_slowly, tensor, path, NULL);
    }
    if (!note_tensor(walk, tensor, path) || !own_tensor(walk, tensor))
        Py_CLEAR(token);
    return token;
}

bool rpp_walk_torch_prepare(void)
{
    static const struct rpp_text_at words[] = {
        {&says.dict, "__dict__"},
        {&says.dictoffset, "__dictoffset__"},
        {&says.values, "values"},
        {&says.modules, "_modules"},
        {&says.parameters, "_parameters"},
        {&says.buffers, "_buffers"},
        {&says.is_cuda, "is_cuda"},
        {&says.hooks, "_backward_hooks"},
        {&says.forward_hooks, "_forward_hooks"},
        {&says.forward_pre_hooks, "_forward_pre_hooks"},
        {&says.later_hooks, "_post_accumulate_grad_hooks"},
        {&says.data_ptr, "data_ptr"},
        {&says.shape, "shape"},
        {&says.stride, "stride"},
        {&says.dtype, "dtype"},
        {&says.device, "device"},
        {&says.requires_grad, "requires_grad"},
        {&says.tensor_slowly, "_tensor"},
        {&says.executed, "executed"},
        {&says.news, "_news"},
        {&says.tensors, "tensors"},
        {&says.known, "known"},
        {&tensor_word, "tensor"},
        {&dict_word, "dict"},
    };
    rpp_assert_gil();
    return rpp_intern(words, sizeof words / sizeof *words);
}
