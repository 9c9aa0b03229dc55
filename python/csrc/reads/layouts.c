/* SPDX-License-Identifier: MIT */
#include "reads/layouts.h"

#include "reads/functions.h"

#include <dlfcn.h>
#include <string.h>

enum { TENSOR_HOOKS = 2, MOST_LEARNED = 16 };
enum { HEAD_WORDS = 2, MOST_WORDS = 128 };

PyObject *rpp_absent;

/* Of CPython, beside the stable interface; NULL where it has them no more, and attributes do. */
static struct {
    PyObject *(*cell)(PyObject *cell);                          /* new; NULL: it is empty */
    PyObject *(*parts[RPP_FUNCTION_PARTS])(PyObject *function); /* borrowed, may be NULL */
    int (*variable)(PyObject *variable, PyObject *other, PyObject **out); /* -1: exception set */
    PyObject *cell_contents, *part_names[RPP_FUNCTION_PARTS];
    size_t part_at[RPP_FUNCTION_PARTS]; /* the word of a function that has it; 0: not known */
    size_t attributes_at;   /* the word that has the dict of its attributes; 0: likewise */
    PyTypeObject *function; /* for ever; NULL: it was not learned yet */
    PyObject *tensor;       /* torch.Tensor; likewise */
    PyObject *hook_names[TENSOR_HOOKS];
    size_t hooks_at[TENSOR_HOOKS]; /* as part_at, of a tensor */
    size_t learned_count;
    struct learned {
        PyObject *name;
        PyTypeObject *type; /* of classes `type`, whatever theirs is */
        size_t at;
    } learned[MOST_LEARNED]; /* words of attributes */
    PyObject *ask_count;     /* what gives the number in this word, for ever; NULL: none is known */
    const uint64_t *count;
} python;

static const uint64_t *words_of(PyObject *object)
{
    return (const uint64_t *)(const void *)object;
}

/* ---- Values -------------------------------------------------------------------------------- */

PyObject *rpp_cell_value(PyObject *cell)
{
    rpp_assert_gil();
    if (!python.cell) {
        PyObject *value = PyObject_GetAttr(cell, python.cell_contents);
        if (!value && PyErr_ExceptionMatches(PyExc_ValueError)) {
            PyErr_Clear();
            return Py_NewRef(rpp_absent);
        }
        return value;
    }
    PyObject *value = python.cell(cell);
    return value ? value : Py_NewRef(rpp_absent);
}

PyObject *rpp_variable_value(PyObject *variable)
{
    rpp_assert_gil();
    PyObject *value = NULL;
    if (!python.variable)
        return PyObject_CallMethod(variable, "get", "O", rpp_absent);
    return python.variable(variable, rpp_absent, &value) == 0 ? value : NULL;
}

PyObject *rpp_function_part(PyObject *function, size_t i)
{
    rpp_assert_gil();
    if (!python.parts[i])
        return PyObject_GetAttr(function, python.part_names[i]);
    PyObject *part = python.parts[i](function);
    return Py_NewRef(part ? part : Py_None);
}

PyObject *rpp_parts_of(PyObject *module, PyObject *function)
{
    rpp_assert_gil();
    (void)module;
    if (Py_TYPE(function) != python.function)
        return PyErr_Format(PyExc_TypeError, "parts_of takes a function");
    PyObject *parts = PyTuple_New(RPP_FUNCTION_PARTS);
    for (size_t i = 0; parts && i < RPP_FUNCTION_PARTS; i++) {
        PyObject *part = rpp_function_part(function, i);
        if (!part || PyTuple_SetItem(parts, (Py_ssize_t)i, part) != 0)
            Py_CLEAR(parts);
    }
    return parts;
}

/* ---- Learning ------------------------------------------------------------------------------ */

/* The word of an object that holds the part; 0: none does, or several do. */
static size_t only_word(PyObject *object, size_t count, const PyObject *part)
{
    const uint64_t *words = words_of(object);
    size_t found = 0, places = 0;
    for (size_t at = HEAD_WORDS; at < count && at < MOST_WORDS; at++)
        if (words[at] == (uintptr_t)part) {
            found = at;
            places++;
        }
    return places == 1 ? found : 0;
}

/* learn_function(function, its size): one whose parts are all there, and nothing twice. */
PyObject *rpp_learn_function(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    PyObject *function;
    int bytes;
    if (!PyArg_ParseTuple(args, "Oi", &function, &bytes))
        return NULL;
    size_t count = (size_t)bytes / sizeof(uint64_t), known = 0;
    for (size_t i = 0; i < RPP_FUNCTION_PARTS; i++) {
        PyObject *part = PyObject_GetAttr(function, python.part_names[i]);
        if (!part)
            return NULL;
        python.part_at[i] = only_word(function, count, part);
        known += python.part_at[i] != 0;
        Py_DECREF(part);
    }
    PyObject *attributes = PyObject_GenericGetDict(function, NULL);
    if (!attributes)
        return NULL;
    python.attributes_at = only_word(function, count, attributes);
    python.function = Py_TYPE(function);
    Py_DECREF(attributes);
    rpp_functions_watch(function, python.part_names, RPP_FUNCTION_PARTS);
    return PyBool_FromLong(known == RPP_FUNCTION_PARTS);
}

static PyTypeObject *learned_type(PyObject *object)
{
    return PyType_Check(object) ? &PyType_Type : Py_TYPE(object);
}

/* The word of an object by an attribute's name; 0: it is not known. Classes that C declares are shorter. */
static size_t learned_at(PyObject *object, const PyObject *name)
{
    const PyTypeObject *type = learned_type(object);
    if (PyType_Check(object) && !(PyType_GetFlags((PyTypeObject *)object) & Py_TPFLAGS_HEAPTYPE))
        return 0;
    for (size_t i = 0; i < python.learned_count; i++)
        if (python.learned[i].name == name && python.learned[i].type == type)
            return python.learned[i].at;
    return 0;
}

/* learn_words(object, the size of its struct, names): a function or a class whose attributes of these names
 * are nothing twice. How many are known? */
PyObject *rpp_learn_words(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    PyObject *object, *names;
    int bytes;
    if (!PyArg_ParseTuple(args, "OiO!", &object, &bytes, &PyTuple_Type, &names))
        return NULL;
    size_t count = (size_t)bytes / sizeof(uint64_t), known = 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++) {
        PyObject *name = Py_NewRef(PyTuple_GetItem(names, i));
        PyUnicode_InternInPlace(&name);
        PyObject *part = PyObject_GetAttr(object, name);
        size_t at = part ? only_word(object, count, part) : 0;
        Py_XDECREF(part);
        if (!part || learned_at(object, name) || at == 0 || python.learned_count == MOST_LEARNED) {
            Py_DECREF(name);
            if (!part)
                return NULL;
            continue;
        }
        python.learned[python.learned_count++] =
            (struct learned){name, learned_type(object), at}; /* for ever */
        known++;
    }
    return PyLong_FromSize_t(known);
}

/* The number that a function gives; UINT64_MAX with an exception set. */
static uint64_t number_of(PyObject *ask)
{
    PyObject *number = PyObject_CallObject(ask, NULL);
    uint64_t value = number ? PyLong_AsUnsignedLongLong(number) : UINT64_MAX;
    Py_XDECREF(number);
    return value;
}

/* Of a module's state the word that holds a number before a step, and that of behind it then; NULL: there is not
 * one such word, or an exception is set. */
static const uint64_t *stepped_word(PyObject *module, PyObject *ask, PyObject *step)
{
    const PyModuleDef *def = PyModule_GetDef(module);
    const uint64_t *words = PyModule_GetState(module), *found = NULL;
    size_t count = def && words ? (size_t)def->m_size / sizeof *words : 0, places = 0;
    uint64_t before = number_of(ask);
    PyErr_Clear();
    for (size_t i = 0; i < count; i++)
        if (words[i] == before) {
            found = words + i;
            places++;
        }
    PyObject *stepped = places == 1 ? PyObject_CallObject(step, NULL) : NULL;
    uint64_t after = stepped ? number_of(ask) : before;
    Py_XDECREF(stepped);
    return after != before && !PyErr_Occurred() && *found == after ? found : NULL;
}

/* learn_count(module, ask, step): step() changes the number that ask() gives. */
PyObject *rpp_learn_count(PyObject *self, PyObject *args)
{
    rpp_assert_gil();
    (void)self;
    PyObject *module, *ask, *step;
    if (!PyArg_ParseTuple(args, "OOO", &module, &ask, &step))
        return NULL;
    const uint64_t *word = PyModule_Check(module) ? stepped_word(module, ask, step) : NULL;
    PyErr_Clear();
    if (word && !python.ask_count) {
        python.ask_count = Py_NewRef(ask);
        python.count = word;
    }
    return PyBool_FromLong(word != NULL);
}

/* learn_hooks(torch.Tensor, a tensor with hooks of both kinds, one without, their size). */
PyObject *rpp_learn_hooks(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    PyObject *type, *hooked, *bare;
    int bytes;
    if (!PyArg_ParseTuple(args, "OOOi", &type, &hooked, &bare, &bytes))
        return NULL;
    size_t count = (size_t)bytes / sizeof(uint64_t), known = 0;
    for (size_t i = 0; i < TENSOR_HOOKS; i++) {
        PyObject *hooks = PyObject_GetAttr(hooked, python.hook_names[i]);
        if (!hooks)
            return NULL;
        size_t at = only_word(hooked, count, hooks);
        bool is_empty = at && words_of(bare)[at] == 0;
        python.hooks_at[i] = is_empty ? at : 0;
        known += is_empty;
        Py_DECREF(hooks);
    }
    PyObject *old = python.tensor;
    python.tensor = Py_NewRef(type);
    Py_XDECREF(old);
    return PyBool_FromLong(known == TENSOR_HOOKS);
}

/* ---- Words --------------------------------------------------------------------------------- */

const uint64_t *rpp_word_of_type(PyObject *object)
{
    return (const uint64_t *)(const void *)&object->ob_type;
}

const uint64_t *rpp_word_of_cell(PyObject *cell)
{
    return words_of(cell) + HEAD_WORDS;
}

const uint64_t *rpp_word_of_part(PyObject *function, size_t part)
{
    return python.part_at[part] ? words_of(function) + python.part_at[part] : NULL;
}

/* Do a class's instances have that word ahead of themselves? From CPython 3.11 on most do. */
static bool has_dict_ahead(PyTypeObject *type)
{
    enum { MANAGED_DICT = 1UL << 4 };
    return PyType_GetFlags(type) & MANAGED_DICT;
}

/* Of an object whose dict lies behind its other words, as all have it until CPython 3.10. */
static const uint64_t *word_of_dict_behind(PyObject *object)
{
    PyObject *said = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__dictoffset__");
    Py_ssize_t offset = said ? PyLong_AsSsize_t(said) : 0;
    Py_XDECREF(said);
    PyErr_Clear();
    return offset > 0 && offset % (Py_ssize_t)sizeof(uint64_t) == 0
               ? words_of(object) + (size_t)offset / sizeof(uint64_t)
               : NULL;
}

const uint64_t *rpp_word_of_dict(PyObject *object)
{
    if (Py_TYPE(object) == python.function)
        return python.attributes_at ? words_of(object) + python.attributes_at : NULL;
    enum { DICT_WORD = -3 };
    return has_dict_ahead(Py_TYPE(object)) ? words_of(object) + DICT_WORD
                                           : word_of_dict_behind(object);
}

const uint64_t *rpp_word_of_number(const PyObject *ask)
{
    return ask == python.ask_count ? python.count : NULL;
}

/* Of a tensor the word that has its hooks of that name; NULL where that is not known. */
static const uint64_t *word_of_hooks(PyObject *object, const PyObject *name)
{
    for (size_t k = 0; python.tensor && k < TENSOR_HOOKS; k++)
        if (name == python.hook_names[k] && python.hooks_at[k] &&
            PyObject_IsInstance(object, python.tensor) == 1)
            return words_of(object) + python.hooks_at[k];
    PyErr_Clear();
    return NULL;
}

const uint64_t *rpp_word_of_attribute(PyObject *object, PyObject *name)
{
    rpp_assert_gil();
    size_t at = learned_at(object, name);
    return at ? words_of(object) + at : word_of_hooks(object, name);
}

/* ---- What the stable interface lacks --------------------------------------------------------- */

bool rpp_layouts_prepare(void)
{
    rpp_assert_gil();
    static const char *const symbols[] = {"PyFunction_GetCode", "PyFunction_GetDefaults",
                                          "PyFunction_GetKwDefaults"};
    static const char *const names[] = {"__code__", "__defaults__", "__kwdefaults__"};
    void *found = dlsym(RTLD_DEFAULT, "PyCell_Get");
    memcpy(&python.cell, &found, sizeof found);
    found = dlsym(RTLD_DEFAULT, "PyContextVar_Get");
    memcpy(&python.variable, &found, sizeof found);
    python.cell_contents = PyUnicode_InternFromString("cell_contents");
    for (size_t i = 0; i < RPP_FUNCTION_PARTS; i++) {
        found = dlsym(RTLD_DEFAULT, symbols[i]);
        memcpy(&python.parts[i], &found, sizeof found);
        python.part_names[i] = PyUnicode_InternFromString(names[i]);
        if (!python.part_names[i])
            return false;
    }
    static const char *const hooks[] = {"_backward_hooks", "_post_accumulate_grad_hooks"};
    for (size_t i = 0; i < TENSOR_HOOKS; i++)
        if (!(python.hook_names[i] = PyUnicode_InternFromString(hooks[i])))
            return false;
    rpp_absent = PyObject_CallObject((PyObject *)&PyBaseObject_Type, NULL);
    return python.cell_contents && rpp_absent;
}
