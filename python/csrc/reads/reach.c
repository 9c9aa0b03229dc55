/* SPDX-License-Identifier: MIT */
#include "reads/reach.h"

#include "base/members.h"
#include "reads/bodies.h"
#include "reads/layouts.h"
#include "reads/reached.h"
#include "reads/record.h"
#include "reads/same.h"

#include <stddef.h>
#include <structmember.h>

struct reach {
    PyObject_HEAD PyObject *records, *ahead; /* lists; ahead: (object, path) */
    PyObject
        *kinds; /* by type: the method that looks at such an object; True: it is a module; False: a
                   function; Ellipsis: a tensor;
                   NotImplemented: a class; None */
    PyObject *methods; /* by type: as method_of has it */
    PyObject *path_type, *mapping_type, *elements_type, *members_type, *pointing_type, *cell_type,
        *body_type;
    PyObject *strided; /* torch.strided, or None */
    PyObject *ordered; /* collections.OrderedDict */
    PyObject *names;   /* in code that was followed: a set */
    PyObject *waiting; /* a dict by name: methods that nobody has named so far */
    PyObject *spaces;  /* by the id of globals: their record */
    PyObject *modules; /* by the id of globals: a dict of their names of modules of the program's */
    PyObject *followed; /* (id of code, of its globals): a set */
    PyObject
        *empties; /* a list: owner, path of its module, name, and so on; None: they get records */
    PyObject *functions, *objects; /* lists, as reached.h has them; None: nothing is noted */
    struct rpp_seen seen;
    Py_ssize_t most_owners, most_elements;
};

/* Words, and names of Python's methods. */
static struct {
    PyObject *find_look, *look, *is_touched, *dict, *name, *empty, *parameters, *buffers, *modules,
        *attribute, *item, *empty_dicts, *cell, *memo, *cache_info, *data_ptr, *numel, *forward,
        *call, *find_method, *meet_module, *module, *closure, *globals, *defaults, *is_outside,
        *names_of, *space, *name_in_module, *tensor, *is_cuda, *layout, *detach, *is_inference,
        *version, *free_names, *cell_name, *wrapped, *of_graphed, *body_names, *class_by_view,
        *bases, *hooks, *backward_hooks, *later_hooks;
} says;

enum { UNTOLD = 2, MOST_CODE = 4096 };

static PyObject *nothing;       /* an empty dict, which nobody adds to */
static PyObject *names_by_code; /* by the id of code: (code, names in it) */
static PyObject *zero;          /* the key of what a cell holds */

/* ---- Is it touched? ------------------------------------------------------------------------ */

/* The same objects in the same order? */
static bool is_same_dict(PyObject *now, PyObject *held)
{
    PyObject *key, *value, *known_key, *known;
    Py_ssize_t at = 0, known_at = 0;
    if (PyDict_Size(now) != PyDict_Size(held))
        return false;
    while (PyDict_Next(held, &known_at, &known_key, &known))
        if (!PyDict_Next(now, &at, &key, &value) || key != known_key || value != known)
            return false;
    return true;
}

static bool is_same_list(PyObject *now, PyObject *held)
{
    Py_ssize_t count = PyList_Size(held);
    if (PyList_Size(now) != count)
        return false;
    for (Py_ssize_t i = 0; i < count; i++)
        if (PyList_GetItem(now, i) != PyList_GetItem(held, i))
            return false;
    return true;
}

/* Has the owner what it held by these names? An exception may be set. */
static bool is_same_by_names(const struct rpp_record *record)
{
    PyObject *name;
    Py_ssize_t at = 0;
    while (PyDict_Next(record->alike, &at, &name, NULL))
        if (PyDict_GetItemWithError(record->owner, name) !=
            PyDict_GetItemWithError(record->held, name))
            return false;
    return true;
}

static bool is_exact_set(PyObject *object)
{
    return Py_TYPE(object) == &PySet_Type;
}

/* Is what a method of the owner's gives an equal number? -1 with an exception set. */
static int gives(PyObject *owner, PyObject *method, PyObject *number)
{
    PyObject *now = PyObject_CallMethodObjArgs(owner, method, NULL);
    int is_same = now ? PyObject_RichCompareBool(now, number, Py_EQ) : -1;
    Py_XDECREF(now);
    return is_same;
}

/* A tensor of the device, which is looked at for where it lies: (address, elements). */
static int touched_tensor(const struct rpp_record *record)
{
    int is_same = gives(record->owner, says.data_ptr, PyTuple_GetItem(record->alike, 0));
    if (is_same > 0)
        is_same = gives(record->owner, says.numel, PyTuple_GetItem(record->alike, 1));
    return is_same < 0 ? -1 : !is_same;
}

/* A cell: {0: what it holds}, or an empty dict. */
static int touched_cell(const struct rpp_record *record)
{
    PyObject *now = rpp_cell_value(record->owner);
    if (!now)
        return -1;
    PyObject *held = PyDict_GetItemWithError(record->held, zero);
    bool is_same = held ? now == held : now == rpp_absent;
    Py_DECREF(now);
    return PyErr_Occurred() ? -1 : !is_same;
}

/* A cache of a function's results: (misses, size). */
static int touched_memo(const struct rpp_record *record)
{
    PyObject *info = PyObject_CallMethodObjArgs(record->owner, says.cache_info, NULL);
    int is_same = info && PyTuple_Check(info) && PyTuple_Size(info) == 4 ? 1 : UNTOLD;
    for (Py_ssize_t i = 0; is_same == 1 && i < 2; i++) {
        is_same = PyObject_RichCompareBool(PyTuple_GetItem(info, 2 * i + 1),
                                           PyTuple_GetItem(record->held, i), Py_EQ);
    }
    Py_XDECREF(info);
    if (!info || is_same < 0)
        return -1;
    return is_same == UNTOLD ? UNTOLD : !is_same;
}

static int touched_alike(const struct rpp_record *record)
{
    PyObject *now, *copy;
    if (PyTuple_Check(record->alike) && PyTuple_Size(record->alike) == 2 &&
        PyLong_CheckExact(PyTuple_GetItem(record->alike, 0)))
        return touched_tensor(record);
    if (PyDict_CheckExact(record->alike)) {
        if (!PyDict_CheckExact(record->owner) || !PyDict_CheckExact(record->held))
            return UNTOLD;
        bool is_same = is_same_by_names(record);
        return PyErr_Occurred() ? -1 : !is_same;
    }
    if (!PyArg_ParseTuple(record->alike, "O!O!", &PyDict_Type, &now, &PyDict_Type, &copy))
        return -1;
    return is_same_dict(now, copy) ? 0 : UNTOLD;
}

/* 1 or 0; UNTOLD: Python has to say. A dict with an order of its own is looked at here while it is
 * empty. -1 with an exception set. */
static int touched(const struct rpp_record *record)
{
    if (record->alike && record->alike != Py_None)
        return touched_alike(record);
    if (record->form == says.cell && PyDict_CheckExact(record->held))
        return touched_cell(record);
    if (record->form == says.memo && PyTuple_CheckExact(record->held) &&
        PyTuple_Size(record->held) == 2)
        return touched_memo(record);
    if (record->held && PyList_CheckExact(record->owner) && PyList_CheckExact(record->held))
        return !is_same_list(record->owner, record->held);
    if (record->held && is_exact_set(record->owner) && is_exact_set(record->held))
        return PyObject_RichCompareBool(record->owner, record->held, Py_NE);
    if (!record->form || !record->held || !PyDict_CheckExact(record->held))
        return UNTOLD;
    if (PyDict_CheckExact(record->owner))
        return !is_same_dict(record->owner, record->held);
    return record->held == nothing ? PyDict_Size(record->owner) != 0 : UNTOLD;
}

static bool is_word(PyObject *name, PyObject *word)
{
    return name == word || (PyUnicode_Check(name) && PyUnicode_Compare(name, word) == 0);
}

static bool is_registered(PyObject *name)
{
    return is_word(name, says.parameters) || is_word(name, says.buffers) ||
           is_word(name, says.modules);
}

/* A record of a dict of a module, as it would have been made while the dict was empty. */
static PyObject *record_empty(PyTypeObject *mapping, PyTypeObject *path_type, PyObject *owner,
                              PyObject *path, PyObject *name)
{
    bool registered = is_registered(name);
    PyObject *own_path =
        registered ? Py_NewRef(path) : rpp_path_new(path_type, path, says.attribute, name);
    PyObject *made = own_path ? rpp_record_new(mapping, owner, own_path, nothing) : NULL;
    Py_XDECREF(own_path);
    if (made) {
        ((struct rpp_record *)made)->form = Py_NewRef(registered ? says.attribute : says.item);
        ((struct rpp_record *)made)->registered = registered;
    }
    return made;
}

/* Gives those of some dicts that are not empty by now records of their own, which are put behind the
 * others: a run seldom fills one. False with an exception set. */
static bool record_filled(const struct rpp_record *record, PyObject *records)
{
    PyObject *mapping, *path_type;
    if (!PyArg_ParseTuple(record->alike, "O!O!", &PyType_Type, &mapping, &PyType_Type, &path_type))
        return false;
    for (Py_ssize_t i = 0; i + 2 < PyList_Size(record->held); i += 3) {
        PyObject *owner = PyList_GetItem(record->held, i);
        if (PyDict_Size(owner) == 0)
            continue;
        PyObject *made =
            record_empty((PyTypeObject *)mapping, (PyTypeObject *)path_type, owner,
                         PyList_GetItem(record->held, i + 1), PyList_GetItem(record->held, i + 2));
        bool worked = made && PyList_Append(records, made) == 0 &&
                      PyList_SetSlice(record->held, i, i + 3, NULL) == 0;
        Py_XDECREF(made);
        if (!worked)
            return false;
        i -= 3;
    }
    return true;
}

static bool is_of_empties(PyObject *object)
{
    const struct rpp_record *record = (struct rpp_record *)object;
    return rpp_is_record(object) && record->form == says.empty_dicts &&
           PyList_CheckExact(record->held);
}

PyObject *rpp_touched(PyObject *module, PyObject *records)
{
    rpp_assert_gil();
    (void)module;
    PyObject *found = PyList_Check(records) ? PyList_New(0) : NULL;
    for (Py_ssize_t i = 0; found && i < PyList_Size(records); i++) {
        PyObject *record = Py_NewRef(PyList_GetItem(records, i));
        if (is_of_empties(record)) {
            if (!record_filled((struct rpp_record *)record, records))
                Py_CLEAR(found);
            Py_DECREF(record);
            continue;
        }
        int is_touched = rpp_is_record(record) ? touched((struct rpp_record *)record) : UNTOLD;
        if (is_touched == UNTOLD) {
            PyObject *said = PyObject_CallMethodObjArgs(record, says.is_touched, NULL);
            is_touched = said ? PyObject_IsTrue(said) : -1;
            Py_XDECREF(said);
        }
        if (is_touched < 0 || (is_touched && PyList_Append(found, record) != 0))
            Py_CLEAR(found);
        Py_DECREF(record);
    }
    if (!found && !PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "touched takes a list of records");
    return found;
}

/* ---- What lies ahead ----------------------------------------------------------------------- */

/* What looks at objects of a type, borrowed; NULL with an exception set. */
static PyObject *look_of(struct reach *reach, PyTypeObject *type)
{
    PyObject *look = PyDict_GetItemWithError(reach->kinds, (PyObject *)type);
    if (look || PyErr_Occurred())
        return look;
    look = PyObject_CallMethodObjArgs((PyObject *)reach, says.find_look, type, NULL);
    if (look && PyDict_SetItem(reach->kinds, (PyObject *)type, look) != 0)
        Py_CLEAR(look);
    Py_XDECREF(look); /* the dict has it */
    return look;
}

/* Puts an object behind what lies ahead, where it is one that is looked at. */
static bool push(struct reach *reach, PyObject *value, PyObject *above, PyObject *form,
                 PyObject *name)
{
    PyObject *look = look_of(reach, Py_TYPE(value));
    if (!look || look == Py_None || rpp_seen_has(&reach->seen, value))
        return look != NULL;
    PyObject *path = rpp_path_new((PyTypeObject *)reach->path_type, above, form, name);
    PyObject *item = path ? PyTuple_Pack(2, value, path) : NULL;
    bool worked = item && PyList_Append(reach->ahead, item) == 0;
    Py_XDECREF(path);
    Py_XDECREF(item);
    return worked;
}

/* A key of a dict leads on as well, but for classes and tensors, which registries and optimizers have
 * by the hundred. */
static bool push_key(struct reach *reach, PyObject *key, PyObject *above, PyObject *form)
{
    if (PyUnicode_CheckExact(key) || PyLong_CheckExact(key))
        return true;
    PyObject *look = look_of(reach, Py_TYPE(key));
    if (look == Py_Ellipsis || look == Py_NotImplemented)
        return true;
    return look && push(reach, key, above, form, key);
}

static bool see(struct reach *reach, PyObject *object)
{
    size_t number;
    rpp_seen_add(&reach->seen, object, &number);
    return !PyErr_Occurred();
}

/* What a dict holds, a new dict. */
static PyObject *held_by(struct reach *reach, PyObject *owner)
{
    if (PyDict_Size(owner) == 0 &&
        (PyDict_CheckExact(owner) || (PyObject *)Py_TYPE(owner) == reach->ordered))
        return Py_NewRef(nothing);
    if (PyDict_CheckExact(owner))
        return PyDict_Copy(owner);
    return PyObject_CallMethodObjArgs(reach->mapping_type, says.look, owner, NULL);
}

/* A record of a dict; its own, borrowed. NULL with an exception set. */
static struct rpp_record *record_dict(struct reach *reach, PyObject *owner, PyObject *path,
                                      PyObject *form, bool registered)
{
    PyObject *held = see(reach, owner) ? held_by(reach, owner) : NULL;
    PyObject *made =
        held ? rpp_record_new((PyTypeObject *)reach->mapping_type, owner, path, held) : NULL;
    Py_XDECREF(held);
    if (!made)
        return NULL;
    struct rpp_record *record = (struct rpp_record *)made;
    record->form = Py_NewRef(form);
    record->registered = registered;
    bool added = PyList_Append(reach->records, made) == 0;
    Py_DECREF(made); /* the list has it */
    return added ? record : NULL;
}

/* A dict, also the attributes of an object: its record, and what it holds lies ahead. */
static bool look_at_dict(struct reach *reach, PyObject *owner, PyObject *path, PyObject *form,
                         bool registered)
{
    if (form != says.item && rpp_seen_has(&reach->seen, owner))
        return true;
    struct rpp_record *record = record_dict(reach, owner, path, form, registered);
    if (!record || PyDict_Size(owner) > reach->most_elements)
        return record != NULL;
    PyObject *held = Py_NewRef(record->held), *key, *value;
    Py_ssize_t at = 0;
    bool worked = true;
    while (worked && PyDict_Next(held, &at, &key, &value))
        worked = push(reach, value, path, form, key) && push_key(reach, key, path, form);
    Py_DECREF(held);
    return worked;
}

/* mapping(owner, path, form, registered=False) */
static PyObject *reach_mapping(PyObject *self, PyObject *args)
{
    PyObject *owner, *path, *form;
    int registered = 0;
    if (!PyArg_ParseTuple(args, "OOU|p", &owner, &path, &form, &registered))
        return NULL;
    if (!PyDict_Check(owner))
        return PyErr_Format(PyExc_TypeError, "mapping takes a dict");
    form = PyUnicode_Compare(form, says.item) == 0 ? says.item : says.attribute;
    return look_at_dict((struct reach *)self, owner, path, form, registered != 0)
               ? Py_NewRef(Py_None)
               : NULL;
}

/* How code finds what a class has: None: nothing finds code there, but a value; a text: the name by which
 * it has a function; else by its own name, where code has that. Borrowed; NULL with an exception set. */
static PyObject *method_of(struct reach *reach, PyTypeObject *type)
{
    PyObject *method = PyDict_GetItemWithError(reach->methods, (PyObject *)type);
    if (method || PyErr_Occurred())
        return method;
    method = PyObject_CallMethodObjArgs((PyObject *)reach, says.find_method, type, NULL);
    if (method && PyDict_SetItem(reach->methods, (PyObject *)type, method) != 0)
        Py_CLEAR(method);
    Py_XDECREF(method); /* the dict has it */
    return method;
}

/* Puts a method behind what lies ahead, if code names it; else among those that wait. */
static bool push_method(const struct reach *reach, PyObject *path, PyObject *name, PyObject *value)
{
    PyObject *item = PyTuple_Pack(2, value, path);
    int is_named = is_word(name, says.forward) || is_word(name, says.call)
                       ? 1
                       : PySet_Contains(reach->names, name);
    PyObject *list = is_named != 0 ? Py_NewRef(reach->ahead)
                                   : Py_XNewRef(PyDict_GetItemWithError(reach->waiting, name));
    if (!list && !PyErr_Occurred()) {
        list = PyList_New(0);
        if (list && PyDict_SetItem(reach->waiting, name, list) != 0)
            Py_CLEAR(list);
    }
    bool worked = item && is_named >= 0 && list && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    Py_XDECREF(list);
    return worked;
}

/* What a class has by a name; held: all that its record has. */
static bool look_at_attribute(struct reach *reach, PyObject *path, PyObject *held, PyObject *name,
                              PyObject *value)
{
    PyObject *method = method_of(reach, Py_TYPE(value));
    if (!method)
        return false;
    if (method == Py_None) {
        int is_held = PyDict_Contains(held, name);
        return is_held > 0 ? push(reach, value, path, says.attribute, name) : is_held == 0;
    }
    PyObject *function =
        PyUnicode_Check(method) ? PyObject_GetAttr(value, method) : Py_NewRef(value);
    bool worked = function && push_method(reach, path, name, function);
    Py_XDECREF(function);
    return worked;
}

/* Is a function or class none of the program's? -1 with an exception set. */
static int is_outside(struct reach *reach, PyObject *object)
{
    PyObject *module = PyObject_GetAttr(object, says.module);
    PyObject *said =
        module ? PyObject_CallMethodObjArgs((PyObject *)reach, says.is_outside, module, NULL)
               : NULL;
    int is_outside = said ? PyObject_IsTrue(said) : -1;
    Py_XDECREF(module);
    Py_XDECREF(said);
    return is_outside;
}

/* What a class has lies ahead; its methods as far as they are named. names: a copy of its dict, as Python
 * may run meanwhile; held: all that its record has. */
static bool look_at_body(struct reach *reach, PyObject *names, PyObject *held, PyObject *path)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    bool worked = true;
    while (worked && PyDict_Next(names, &at, &name, &value))
        worked = look_at_attribute(reach, path, held, name, value);
    return worked;
}

/* attributes(copy of a class's dict, what its record holds, path) */
static PyObject *reach_attributes(PyObject *self, PyObject *args)
{
    PyObject *names, *held, *path;
    if (!PyArg_ParseTuple(args, "O!O!O", &PyDict_Type, &names, &PyDict_Type, &held, &path))
        return NULL;
    return look_at_body((struct reach *)self, names, held, path) ? Py_NewRef(Py_None) : NULL;
}

/* A class, whose dict is known. */
static bool record_body(struct reach *reach, PyObject *type, PyObject *names, PyObject *path)
{
    PyObject *held = rpp_body_of(NULL, names), *copy = held ? PyDict_Copy(names) : NULL;
    PyObject *alike = copy ? PyTuple_Pack(2, names, copy) : NULL;
    PyObject *made =
        alike ? rpp_record_new((PyTypeObject *)reach->body_type, type, path, held) : NULL;
    if (made)
        ((struct rpp_record *)made)->alike = Py_NewRef(alike);
    bool worked = made && PyObject_SetAttr(made, says.body_names, names) == 0 &&
                  PyList_Append(reach->records, made) == 0 && look_at_body(reach, copy, held, path);
    Py_XDECREF(held);
    Py_XDECREF(copy);
    Py_XDECREF(alike);
    Py_XDECREF(made);
    return worked;
}

static bool look_at_own_class(struct reach *reach, PyObject *type)
{
    PyObject *name = see(reach, type) ? PyObject_GetAttr(type, says.name) : NULL;
    PyObject *path =
        name ? rpp_path_new((PyTypeObject *)reach->path_type, Py_None, says.empty, name) : NULL;
    PyObject *names = path ? rpp_dict_of_class(NULL, type) : NULL, *done = NULL;
    if (names == Py_None)
        done = PyObject_CallMethodObjArgs((PyObject *)reach, says.class_by_view, type, path, NULL);
    bool worked =
        names && (names == Py_None ? done != NULL : record_body(reach, type, names, path));
    Py_XDECREF(name);
    Py_XDECREF(path);
    Py_XDECREF(names);
    Py_XDECREF(done);
    return worked;
}

/* The program's classes among those that a class inherits from. */
static bool look_at_class(struct reach *reach, PyObject *type)
{
    PyObject *bases = PyObject_GetAttr(type, says.bases);
    Py_ssize_t count = bases && PyTuple_Check(bases) ? PyTuple_Size(bases) : 0;
    bool worked = bases != NULL;
    for (Py_ssize_t i = 0; worked && i < count; i++) {
        PyObject *base = PyTuple_GetItem(bases, i);
        int outside = is_outside(reach, base);
        bool is_left = outside > 0 || (base != type && rpp_seen_has(&reach->seen, base));
        worked = outside >= 0 && (is_left || look_at_own_class(reach, base));
    }
    Py_XDECREF(bases);
    return worked;
}

/* ---- Names of code ------------------------------------------------------------------------- */

/* A global that code names, and its record has not. */
static bool add_global(struct reach *reach, const struct rpp_record *space, PyObject *name,
                       PyObject *value)
{
    if (PyDict_SetItem(space->alike, name, Py_None) != 0 ||
        PyDict_SetItem(space->held, name, value) != 0)
        return false;
    if (PyModule_Check(value)) {
        PyObject *met = PyObject_CallMethodObjArgs((PyObject *)reach, says.meet_module, space, name,
                                                   value, NULL);
        Py_XDECREF(met);
        return met != NULL;
    }
    return push(reach, value, space->path, space->path == Py_None ? says.empty : says.attribute,
                name);
}

/* A name that no code had so far: methods wait for it, and code may make a global of it. */
static bool add_news(struct reach *reach, const struct rpp_record *space, PyObject *name,
                     bool is_there)
{
    if (!is_there && PyDict_SetItem(space->alike, name, Py_None) != 0)
        return false;
    PyObject *methods = PyDict_GetItemWithError(reach->waiting, name);
    if (!methods)
        return !PyErr_Occurred();
    Py_ssize_t end = PyList_Size(reach->ahead);
    return PyList_SetSlice(reach->ahead, end, end, methods) == 0 &&
           PyDict_DelItem(reach->waiting, name) == 0;
}

static bool add_name(struct reach *reach, const struct rpp_record *space, PyObject *name)
{
    PyObject *value = PyDict_GetItemWithError(space->owner, name);
    if (!value && PyErr_Occurred())
        return false;
    if (value) {
        int is_known = PyDict_Contains(space->alike, name);
        if (is_known < 0 || (is_known == 0 && !add_global(reach, space, name, value)))
            return false;
    }
    int had = PySet_Contains(reach->names, name);
    if (had != 0)
        return had > 0;
    return PySet_Add(reach->names, name) == 0 && add_news(reach, space, name, value != NULL);
}

/* Those that code has which sees these globals, of which this is the record. */
static bool add_names(struct reach *reach, PyObject *names, PyObject *record)
{
    const struct rpp_record *space = (struct rpp_record *)record;
    if (!rpp_is_record(record) || !PyDict_Check(space->owner) || !space->alike ||
        !PyDict_CheckExact(space->alike) || !PyDict_CheckExact(space->held)) {
        PyErr_SetString(PyExc_TypeError, "names are added to the record of some names");
        return false;
    }
    PyObject *iterator = PyObject_GetIter(names), *name;
    bool worked = iterator != NULL;
    while (worked && (name = PyIter_Next(iterator))) {
        worked = add_name(reach, space, name);
        Py_DECREF(name);
    }
    Py_XDECREF(iterator);
    return worked && !PyErr_Occurred();
}

/* Of modules that globals name, the names that code has which sees these globals. */
static bool add_names_in_modules(struct reach *reach, PyObject *names, PyObject *globals,
                                 PyObject *id)
{
    PyObject *modules = PyDict_GetItemWithError(reach->modules, id);
    PyObject *known = modules ? PyDict_Keys(modules) : NULL; /* it may meet more */
    bool worked = known || (!modules && !PyErr_Occurred());
    Py_ssize_t count = known ? PyList_Size(known) : 0;
    for (Py_ssize_t i = 0; worked && i < count; i++) {
        PyObject *name = PyList_GetItem(known, i);
        int is_named = PySet_Contains(names, name);
        PyObject *module = is_named > 0 ? PyObject_GetItem(globals, name) : NULL;
        PyObject *done = module ? PyObject_CallMethodObjArgs((PyObject *)reach, says.name_in_module,
                                                             module, name, names, NULL)
                                : NULL;
        worked = is_named == 0 || done != NULL;
        Py_XDECREF(module);
        Py_XDECREF(done);
    }
    Py_XDECREF(known);
    return worked;
}

/* Once for code and what it sees: -1 with an exception set. */
static int is_followed(const struct reach *reach, PyObject *code, PyObject *id)
{
    PyObject *code_id = PyLong_FromVoidPtr(code);
    PyObject *place = code_id ? PyTuple_Pack(2, code_id, id) : NULL;
    int is_known = place ? PySet_Contains(reach->followed, place) : -1;
    if (is_known == 0 && PySet_Add(reach->followed, place) != 0)
        is_known = -1;
    Py_XDECREF(code_id);
    Py_XDECREF(place);
    return is_known;
}

/* The names in code, a new reference. It is kept by identity: to hash code takes as long as it has
 * instructions. */
static PyObject *names_in(struct reach *reach, PyObject *code)
{
    PyObject *id = PyLong_FromVoidPtr(code);
    PyObject *known = id ? PyDict_GetItemWithError(names_by_code, id) : NULL;
    PyObject *names = known ? Py_NewRef(PyTuple_GetItem(known, 1)) : NULL;
    if (id && !known && !PyErr_Occurred()) {
        names = PyObject_CallMethodObjArgs((PyObject *)reach, says.names_of, code, NULL);
        if (PyDict_Size(names_by_code) >= MOST_CODE)
            PyDict_Clear(names_by_code);
        PyObject *entry = names ? PyTuple_Pack(2, code, names) : NULL; /* keeps the id */
        if (!entry || PyDict_SetItem(names_by_code, id, entry) != 0)
            Py_CLEAR(names);
        Py_XDECREF(entry);
    }
    Py_XDECREF(id);
    return names;
}

static bool look_at_names(struct reach *reach, PyObject *code, PyObject *globals, PyObject *id)
{
    PyObject *self = (PyObject *)reach;
    PyObject *names = names_in(reach, code);
    PyObject *space = names ? Py_XNewRef(PyDict_GetItemWithError(reach->spaces, id)) : NULL;
    if (names && !space && !PyErr_Occurred())
        space = PyObject_CallMethodObjArgs(self, says.space, globals, Py_None, NULL);
    bool worked =
        space && add_names(reach, names, space) && add_names_in_modules(reach, names, globals, id);
    Py_XDECREF(names);
    Py_XDECREF(space);
    return worked;
}

/* The names in code, where it sees them. */
static bool look_at_code(struct reach *reach, PyObject *code, PyObject *globals)
{
    PyObject *id = PyLong_FromVoidPtr(globals);
    int is_known = id ? is_followed(reach, code, id) : -1;
    bool worked = is_known > 0 || (is_known == 0 && look_at_names(reach, code, globals, id));
    Py_XDECREF(id);
    return worked;
}

/* What a function is given where a call leaves it out; parts: as parts_of has them. */
static bool push_defaults(struct reach *reach, PyObject *parts, PyObject *path)
{
    PyObject *defaults = PyTuple_GetItem(parts, 1), *by_name = PyTuple_GetItem(parts, 2);
    PyObject *name, *value;
    Py_ssize_t count = defaults && PyTuple_Check(defaults) ? PyTuple_Size(defaults) : 0, at = 0;
    bool worked = true;
    for (Py_ssize_t i = 0; worked && i < count; i++)
        worked = push(reach, PyTuple_GetItem(defaults, i), path, says.attribute, says.defaults);
    PyObject *copy = by_name && PyDict_Check(by_name) ? PyDict_Copy(by_name) : NULL;
    while (worked && copy && PyDict_Next(copy, &at, &name, &value))
        worked = push(reach, value, Py_None, says.empty, name);
    Py_XDECREF(copy);
    return worked && !PyErr_Occurred();
}

/* What a function closes over: a record of a cell that was not seen before. */
static bool look_at_cell(struct reach *reach, PyObject *cell, PyObject *name)
{
    size_t number;
    if (!rpp_seen_add(&reach->seen, cell, &number))
        return !PyErr_Occurred();
    PyObject *value = rpp_cell_value(cell), *held = value ? PyDict_New() : NULL;
    bool is_empty = value == rpp_absent;
    bool worked = held && (is_empty || PyDict_SetItem(held, zero, value) == 0);
    PyObject *made =
        worked ? rpp_record_new((PyTypeObject *)reach->cell_type, cell, Py_None, held) : NULL;
    if (made)
        ((struct rpp_record *)made)->form = Py_NewRef(says.cell);
    worked = made && PyObject_SetAttr(made, says.cell_name, name) == 0 &&
             PyList_Append(reach->records, made) == 0 &&
             (is_empty || push(reach, value, Py_None, says.empty, name));
    Py_XDECREF(value);
    Py_XDECREF(held);
    Py_XDECREF(made);
    return worked;
}

static bool look_at_closure(struct reach *reach, PyObject *function, PyObject *code)
{
    PyObject *cells = PyObject_GetAttr(function, says.closure);
    PyObject *names = cells && cells != Py_None ? PyObject_GetAttr(code, says.free_names) : NULL;
    bool worked = cells && (cells == Py_None || names);
    Py_ssize_t count = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; worked && i < count && i < PyTuple_Size(cells); i++)
        worked = look_at_cell(reach, PyTuple_GetItem(cells, i), PyTuple_GetItem(names, i));
    Py_XDECREF(cells);
    Py_XDECREF(names);
    return worked;
}

/* A function's own attributes. One that functools.wraps() put around a graphed callable has those of
 * that, which change in each capture. */
static bool look_at_own(struct reach *reach, PyObject *attributes, PyObject *path)
{
    if (PyDict_Size(attributes) == 0)
        return true;
    int is_ours = PyDict_Contains(attributes, says.of_graphed);
    return is_ours > 0 ||
           (is_ours == 0 && look_at_dict(reach, attributes, path, says.attribute, false));
}

/* What a function of the program's leads to beside what it closes over; attributes: its dict; parts: as
 * parts_of has them. */
static bool look_at_parts(struct reach *reach, PyObject *function, PyObject *attributes,
                          PyObject *parts, PyObject *path)
{
    PyObject *globals = PyObject_GetAttr(function, says.globals);
    bool worked = globals && push_defaults(reach, parts, path) &&
                  look_at_own(reach, attributes, path) &&
                  look_at_code(reach, PyTuple_GetItem(parts, 0), globals);
    Py_XDECREF(globals);
    return worked;
}

/* Of a decorator that is not the program's, what it is around. */
static bool push_wrapped(const struct reach *reach, PyObject *attributes, PyObject *path)
{
    PyObject *inner = PyDict_GetItemWithError(attributes, says.wrapped);
    PyObject *item = inner && inner != Py_None ? PyTuple_Pack(2, inner, path) : NULL;
    bool worked = item ? PyList_Append(reach->ahead, item) == 0 : !PyErr_Occurred();
    Py_XDECREF(item);
    return worked;
}

static bool look_at_function(struct reach *reach, PyObject *function, PyObject *path)
{
    int outside = is_outside(reach, function);
    PyObject *parts = outside >= 0 ? rpp_parts_of(NULL, function) : NULL;
    PyObject *attributes = parts ? PyObject_GetAttr(function, says.dict) : NULL;
    bool worked = attributes && PyDict_Check(attributes) &&
                  rpp_note_function(reach->functions, function, parts, attributes) &&
                  look_at_closure(reach, function, PyTuple_GetItem(parts, 0)) &&
                  (outside ? push_wrapped(reach, attributes, path)
                           : look_at_parts(reach, function, attributes, parts, path));
    Py_XDECREF(parts);
    Py_XDECREF(attributes);
    return worked;
}

/* The elements of a list or tuple. */
static bool push_row(struct reach *reach, PyObject *row, PyObject *path)
{
    Py_ssize_t count = PyTuple_Size(row);
    bool worked = true;
    for (Py_ssize_t i = 0; worked && i < count && count <= reach->most_elements; i++) {
        PyObject *at = PyLong_FromSsize_t(i);
        worked = at && push(reach, PyTuple_GetItem(row, i), path, says.item, at);
        Py_XDECREF(at);
    }
    return worked;
}

static bool look_at_list(struct reach *reach, PyObject *list, PyObject *path)
{
    PyObject *record = PyObject_CallFunctionObjArgs(reach->elements_type, list, path, NULL);
    PyObject *row =
        record && PyList_Append(reach->records, record) == 0 ? PyList_AsTuple(list) : NULL;
    bool worked = row && push_row(reach, row, path);
    Py_XDECREF(record);
    Py_XDECREF(row);
    return worked;
}

/* The class of a module, once. */
static bool push_class(struct reach *reach, PyObject *module)
{
    PyObject *type = (PyObject *)Py_TYPE(module);
    if (rpp_seen_has(&reach->seen, type))
        return true;
    PyObject *name = PyObject_GetAttr(type, says.name);
    bool worked = name && push(reach, type, Py_None, says.empty, name);
    Py_XDECREF(name);
    return worked;
}

/* Is it an empty dict that is met for the first time, and gets no record of its own? */
static bool is_left_empty(const struct reach *reach, PyObject *value)
{
    return reach->empties != Py_None &&
           (PyDict_CheckExact(value) || (PyObject *)Py_TYPE(value) == reach->ordered) &&
           PyDict_Size(value) == 0 && !rpp_seen_has(&reach->seen, value);
}

static bool leave_empty(struct reach *reach, PyObject *owner, PyObject *path, PyObject *name)
{
    return see(reach, owner) && PyList_Append(reach->empties, owner) == 0 &&
           PyList_Append(reach->empties, path) == 0 && PyList_Append(reach->empties, name) == 0;
}

/* What a module has by a name. */
static bool look_at_part(struct reach *reach, PyObject *value, PyObject *path, PyObject *name)
{
    if (is_left_empty(reach, value))
        return leave_empty(reach, value, path, name);
    return is_registered(name) && PyDict_Check(value)
               ? look_at_dict(reach, value, path, says.attribute, true)
               : push(reach, value, path, says.attribute, name);
}

static bool look_at_module(struct reach *reach, PyObject *module, PyObject *path)
{
    PyObject *names = PyObject_GetAttr(module, says.dict), *key, *value;
    bool is_dict = names && PyDict_Check(names);
    struct rpp_record *record =
        is_dict ? record_dict(reach, names, path, says.attribute, false) : NULL;
    PyObject *held = record ? Py_NewRef(record->held) : NULL;
    bool worked = held && rpp_note_object(reach->objects, module, names);
    Py_ssize_t at = 0;
    while (worked && PyDict_Next(held, &at, &key, &value))
        worked = look_at_part(reach, value, path, key);
    Py_XDECREF(held);
    Py_XDECREF(names);
    return worked && push_class(reach, module);
}

/* A set: its record, and what it holds lies ahead. */
static bool look_at_set(struct reach *reach, PyObject *set, PyObject *path)
{
    PyObject *held = PySet_New(set);
    PyObject *record =
        held ? rpp_record_new((PyTypeObject *)reach->members_type, set, path, held) : NULL;
    PyObject *row = record && PyList_Append(reach->records, record) == 0 && PySet_Size(held) > 0
                        ? PySequence_Tuple(held)
                        : NULL;
    bool worked = row ? push_row(reach, row, path) : record && !PyErr_Occurred();
    Py_XDECREF(held);
    Py_XDECREF(record);
    Py_XDECREF(row);
    return worked;
}

/* What a method of a tensor's gives. */
static PyObject *told_by(PyObject *tensor, PyObject *method)
{
    return PyObject_CallMethodObjArgs(tensor, method, NULL);
}

/* The count of its changes; None: an inference tensor has none. */
static PyObject *version_of(PyObject *tensor)
{
    PyObject *is_inference = told_by(tensor, says.is_inference);
    int has_none = is_inference ? PyObject_IsTrue(is_inference) : -1;
    Py_XDECREF(is_inference);
    if (has_none != 0)
        return has_none > 0 ? Py_NewRef(Py_None) : NULL;
    return PyObject_GetAttr(tensor, says.version);
}

/* A record of where a tensor of the device lies, as Pointing makes it. */
static PyObject *record_tensor(const struct reach *reach, PyObject *tensor, PyObject *path)
{
    PyObject *address = told_by(tensor, says.data_ptr);
    PyObject *count = address ? told_by(tensor, says.numel) : NULL;
    PyObject *place = count ? told_by(tensor, says.detach) : NULL;
    PyObject *version = place ? version_of(tensor) : NULL;
    PyObject *held = version ? PyTuple_Pack(4, place, address, version, Py_None) : NULL;
    PyObject *alike = held ? PyTuple_Pack(2, address, count) : NULL;
    PyObject *made =
        alike ? rpp_record_new((PyTypeObject *)reach->pointing_type, tensor, path, held) : NULL;
    if (made)
        ((struct rpp_record *)made)->alike = Py_NewRef(alike);
    Py_XDECREF(address);
    Py_XDECREF(count);
    Py_XDECREF(place);
    Py_XDECREF(version);
    Py_XDECREF(held);
    Py_XDECREF(alike);
    return made;
}

/* Is it one of the device's, in memory of its own? No exception is set. */
static bool is_of_device(const struct reach *reach, PyObject *tensor)
{
    PyObject *is_cuda = PyObject_GetAttr(tensor, says.is_cuda);
    PyObject *layout = is_cuda == Py_True ? PyObject_GetAttr(tensor, says.layout) : NULL;
    bool is_one = layout && layout == reach->strided;
    Py_XDECREF(is_cuda);
    Py_XDECREF(layout);
    PyErr_Clear();
    return is_one;
}

/* Something was met of which there is no record, though it may come to have one. */
static void note_no_more(struct reach *reach)
{
    PyObject *functions = reach->functions, *objects = reach->objects;
    reach->functions = Py_NewRef(Py_None);
    reach->objects = Py_NewRef(Py_None);
    Py_XDECREF(functions);
    Py_XDECREF(objects);
}

/* Hooks of gradients: those of most tensors are None. What they are is not kept for another capture. */
static bool look_at_hooks(struct reach *reach, PyObject *tensor, PyObject *path)
{
    PyObject *const names[] = {says.backward_hooks, says.later_hooks};
    bool worked = true;
    for (size_t i = 0; worked && i < sizeof names / sizeof *names; i++) {
        PyObject *hooks = PyObject_GetAttr(tensor, names[i]);
        if (!hooks)
            PyErr_Clear();
        else if (hooks != Py_None) {
            PyObject *done = PyObject_CallMethodObjArgs((PyObject *)reach, says.hooks, hooks,
                                                        names[i], path, NULL);
            worked = done != NULL;
            Py_XDECREF(done);
            note_no_more(reach);
        }
        Py_XDECREF(hooks);
    }
    return worked;
}

static bool look_at_attributes(struct reach *reach, PyObject *tensor, PyObject *path)
{
    PyObject *names = PyObject_GetAttr(tensor, says.dict);
    bool worked = names && rpp_note_object(reach->objects, tensor, names) &&
                  (!PyDict_Check(names) || PyDict_Size(names) == 0 ||
                   look_at_dict(reach, names, path, says.attribute, false));
    Py_XDECREF(names);
    return worked && look_at_hooks(reach, tensor, path);
}

/* One that cannot say where it lies has no memory of its own. */
static bool look_at_tensor(struct reach *reach, PyObject *tensor, PyObject *path)
{
    if (!is_of_device(reach, tensor)) {
        PyObject *done =
            PyObject_CallMethodObjArgs((PyObject *)reach, says.tensor, tensor, path, NULL);
        Py_XDECREF(done);
        return done != NULL;
    }
    PyObject *record = record_tensor(reach, tensor, path);
    if (!record) {
        if (!PyErr_ExceptionMatches(PyExc_RuntimeError) &&
            !PyErr_ExceptionMatches(PyExc_AttributeError))
            return false;
        PyErr_Clear();
        note_no_more(reach);
        return true;
    }
    bool worked = PyList_Append(reach->records, record) == 0;
    Py_DECREF(record);
    return worked && look_at_attributes(reach, tensor, path);
}

static bool look_with(struct reach *reach, PyObject *look, PyObject *value, PyObject *path)
{
    if (PyDict_CheckExact(value) || (PyObject *)Py_TYPE(value) == reach->ordered)
        return look_at_dict(reach, value, path, says.item, false);
    if (PyList_CheckExact(value))
        return look_at_list(reach, value, path);
    if (PyTuple_CheckExact(value))
        return push_row(reach, value, path);
    if (look == Py_True)
        return look_at_module(reach, value, path);
    if (look == Py_False)
        return look_at_function(reach, value, path);
    if (look == Py_Ellipsis)
        return look_at_tensor(reach, value, path);
    if (look == Py_NotImplemented)
        return look_at_class(reach, value);
    if (is_exact_set(value))
        return look_at_set(reach, value, path);
    PyObject *done = PyObject_CallFunctionObjArgs(look, value, path, NULL);
    Py_XDECREF(done);
    return done != NULL;
}

static bool look_at(struct reach *reach, PyObject *value, PyObject *path)
{
    PyObject *look = look_of(reach, Py_TYPE(value));
    if (!look || look == Py_None || rpp_seen_has(&reach->seen, value))
        return look != NULL;
    if (!see(reach, value))
        return false;
    Py_INCREF(look);
    bool worked = look_with(reach, look, value, path);
    Py_DECREF(look);
    return worked;
}

/* follow(value, path): everything that can be reached from the value. What is near comes first. */
static PyObject *reach_follow(PyObject *self, PyObject *args)
{
    struct reach *reach = (struct reach *)self;
    PyObject *value, *path;
    if (!PyArg_ParseTuple(args, "OO", &value, &path))
        return NULL;
    if (PyList_Append(reach->ahead, args) != 0)
        return NULL;
    bool worked = true;
    for (Py_ssize_t i = 0; worked && i < PyList_Size(reach->ahead); i++) {
        if ((Py_ssize_t)reach->seen.count >= reach->most_owners)
            break;
        PyObject *item = Py_NewRef(PyList_GetItem(reach->ahead, i));
        worked = PyArg_ParseTuple(item, "OO", &value, &path) && look_at(reach, value, path);
        Py_DECREF(item);
    }
    if (worked)
        worked = PyList_SetSlice(reach->ahead, 0, PyList_Size(reach->ahead), NULL) == 0;
    return worked ? Py_NewRef(Py_None) : NULL;
}

/* ---- The type ------------------------------------------------------------------------------ */

/* see(object): it counts as seen; was it not before? */
static PyObject *reach_see(PyObject *self, PyObject *object)
{
    size_t number;
    bool is_new = rpp_seen_add(&((struct reach *)self)->seen, object, &number);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(is_new);
}

static PyObject *reach_is_seen(PyObject *self, PyObject *object)
{
    return PyBool_FromLong(rpp_seen_has(&((struct reach *)self)->seen, object));
}

/* let_go(): what was looked at is the program's to drop. */
static PyObject *reach_let_go(PyObject *self, PyObject *unused)
{
    (void)unused;
    rpp_seen_clear(&((struct reach *)self)->seen);
    return Py_NewRef(Py_None);
}

static const size_t objects[] = {
    offsetof(struct reach, records),       offsetof(struct reach, ahead),
    offsetof(struct reach, kinds),         offsetof(struct reach, path_type),
    offsetof(struct reach, ordered),       offsetof(struct reach, mapping_type),
    offsetof(struct reach, elements_type), offsetof(struct reach, empties),
    offsetof(struct reach, methods),       offsetof(struct reach, names),
    offsetof(struct reach, waiting),       offsetof(struct reach, spaces),
    offsetof(struct reach, modules),       offsetof(struct reach, followed),
    offsetof(struct reach, members_type),  offsetof(struct reach, pointing_type),
    offsetof(struct reach, strided),       offsetof(struct reach, cell_type),
    offsetof(struct reach, body_type),     offsetof(struct reach, functions),
    offsetof(struct reach, objects),
};
enum { OBJECTS = sizeof objects / sizeof *objects };
static const struct rpp_members references = {objects, OBJECTS};

static int reach_traverse(PyObject *self, visitproc visit, void *arg)
{
    int found = rpp_members_visit(self, &references, visit, arg);
    return found ? found : rpp_seen_visit(&((struct reach *)self)->seen, visit, arg);
}

static int reach_clear(PyObject *self)
{
    rpp_members_clear(self, &references);
    rpp_seen_clear(&((struct reach *)self)->seen);
    return 0;
}

static void reach_dealloc(PyObject *self)
{
    rpp_deallocate(self, reach_clear);
}

/* What the class of Python's is given is its affair. */
static PyObject *reach_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    struct reach *reach = (struct reach *)rpp_allocate(type);
    if (!reach)
        return NULL;
    PyObject **const lists[] = {&reach->records, &reach->ahead};
    PyObject **const sets[] = {&reach->names, &reach->followed};
    PyObject **const dicts[] = {&reach->kinds, &reach->methods, &reach->waiting, &reach->spaces,
                                &reach->modules};
    bool worked = true;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        worked = (*lists[i] = PyList_New(0)) && worked;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        worked = (*sets[i] = PySet_New(NULL)) && worked;
    for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++)
        worked = (*dicts[i] = PyDict_New()) && worked;
    reach->empties = Py_NewRef(Py_None);
    reach->functions = Py_NewRef(Py_None);
    reach->objects = Py_NewRef(Py_None);
    if (!worked) {
        Py_DECREF(reach);
        return NULL;
    }
    return (PyObject *)reach;
}

/* begin((Path, Mapping, Elements, Members, Pointing, Cell, Body, OrderedDict), torch.strided or None, most owners, most
 * elements) */
static PyObject *reach_begin(PyObject *self, PyObject *args)
{
    struct reach *reach = (struct reach *)self;
    PyTypeObject *const type = &PyType_Type;
    PyObject *path, *mapping, *elements, *members, *pointing, *cell, *body, *ordered, *strided;
    if (!PyArg_ParseTuple(args, "(O!O!O!O!O!O!O!O!)Onn", type, &path, type, &mapping, type,
                          &elements, type, &members, type, &pointing, type, &cell, type, &body,
                          type, &ordered, &strided, &reach->most_owners, &reach->most_elements))
        return NULL;
    PyObject *const given[] = {path, mapping, elements, members, pointing,
                               cell, body,    ordered,  strided};
    PyObject **const at[] = {&reach->path_type,    &reach->mapping_type,  &reach->elements_type,
                             &reach->members_type, &reach->pointing_type, &reach->cell_type,
                             &reach->body_type,    &reach->ordered,       &reach->strided};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        PyObject *gone = *at[i];
        *at[i] = Py_NewRef(given[i]);
        Py_XDECREF(gone);
    }
    return Py_NewRef(Py_None);
}

static PyMemberDef members[] = {
    {"records", T_OBJECT, offsetof(struct reach, records), READONLY, NULL},
    {"_empties", T_OBJECT, offsetof(struct reach, empties), 0, NULL},
    {"functions", T_OBJECT, offsetof(struct reach, functions), 0, NULL},
    {"objects", T_OBJECT, offsetof(struct reach, objects), 0, NULL},
    {"_ahead", T_OBJECT, offsetof(struct reach, ahead), 0, NULL},
    {"_kinds", T_OBJECT, offsetof(struct reach, kinds), READONLY, NULL},
    {"_methods", T_OBJECT, offsetof(struct reach, methods), READONLY, NULL},
    {"_waiting", T_OBJECT, offsetof(struct reach, waiting), READONLY, NULL},
    {"_spaces", T_OBJECT, offsetof(struct reach, spaces), READONLY, NULL},
    {"_modules", T_OBJECT, offsetof(struct reach, modules), READONLY, NULL},
    {"_followed", T_OBJECT, offsetof(struct reach, followed), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef methods[] = {
    {"begin", reach_begin, METH_VARARGS,
     "begin((Path, Mapping, Elements, Members, Pointing, Cell, Body, OrderedDict), torch.strided "
     "or "
     "None, most "
     "owners, most elements of one)."},
    {"follow", reach_follow, METH_VARARGS,
     "follow(value, path): everything that can be reached from the value."},
    {"mapping", reach_mapping, METH_VARARGS,
     "mapping(dict, path, form, registered=False): a record of it; what it holds lies ahead."},
    {"attributes", reach_attributes, METH_VARARGS,
     "attributes(dict of a class, what its record holds, path): what it has lies ahead."},
    {"see", reach_see, METH_O, "see(object): it counts as seen; was it not before?"},
    {"is_seen", reach_is_seen, METH_O, "is_seen(object)"},
    {"let_go", reach_let_go, METH_NOARGS, "let_go(): forgets what was seen."},
    {NULL, NULL, 0, NULL},
};

static bool prepare(void)
{
    static const struct rpp_text_at words[] = {
        {&says.find_look, "_find_look"},
        {&says.look, "look"},
        {&says.is_touched, "is_touched"},
        {&says.dict, "__dict__"},
        {&says.name, "__name__"},
        {&says.empty, ""},
        {&says.parameters, "_parameters"},
        {&says.buffers, "_buffers"},
        {&says.modules, "_modules"},
        {&says.attribute, "."},
        {&says.item, "["},
        {&says.empty_dicts, "{}"},
        {&says.cell, "cell"},
        {&says.memo, "memo"},
        {&says.cache_info, "cache_info"},
        {&says.forward, "forward"},
        {&says.call, "__call__"},
        {&says.module, "__module__"},
        {&says.closure, "__closure__"},
        {&says.globals, "__globals__"},
        {&says.defaults, "__defaults__"},
        {&says.is_outside, "_is_outside"},
        {&says.names_of, "_names_of"},
        {&says.space, "_space"},
        {&says.name_in_module, "_name_in_module"},
        {&says.find_method, "_find_method"},
        {&says.meet_module, "_meet_module"},
        {&says.data_ptr, "data_ptr"},
        {&says.numel, "numel"},
        {&says.tensor, "_tensor"},
        {&says.is_cuda, "is_cuda"},
        {&says.layout, "layout"},
        {&says.detach, "detach"},
        {&says.is_inference, "is_inference"},
        {&says.version, "_version"},
        {&says.free_names, "co_freevars"},
        {&says.cell_name, "name"},
        {&says.wrapped, "__wrapped__"},
        {&says.of_graphed, "_fast_call"},
        {&says.hooks, "_hooks"},
        {&says.backward_hooks, "_backward_hooks"},
        {&says.later_hooks, "_post_accumulate_grad_hooks"},
        {&says.body_names, "names"},
        {&says.class_by_view, "_class_by_view"},
        {&says.bases, "__mro__"},
    };
    return rpp_intern(words, sizeof words / sizeof *words) && (nothing = PyDict_New()) != NULL &&
           (zero = PyLong_FromLong(0)) != NULL && (names_by_code = PyDict_New()) != NULL;
}

int rpp_add_reach_types(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)reach_new},
        {Py_tp_dealloc, (void *)reach_dealloc},
        {Py_tp_traverse, (void *)reach_traverse},
        {Py_tp_clear, (void *)reach_clear},
        {Py_tp_members, members},
        {Py_tp_methods, methods},
        {Py_tp_doc, "The inner loop of what a run may change."},
        {0, NULL},
    };
    static PyType_Spec spec = {"reprise._C.Reach", sizeof(struct reach), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
                               slots};
    if (rpp_add_record_types(module) != 0 || rpp_prepare_reached() != 0 || !prepare())
        return -1;
    PyObject *type = PyType_FromSpec(&spec);
    int added = type ? PyModule_AddType(module, (PyTypeObject *)type) : -1;
    Py_XDECREF(type);
    return added;
}
