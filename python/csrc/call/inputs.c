/* SPDX-License-Identifier: MIT */
#include "call/inputs.h"

#include "base/tensor_address.h"
#include "capture/scalars.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 32 }; /* tensors that are compared pair by pair */

/* ---- Inputs -------------------------------------------------------------------------------- */

static bool is_constant(PyObject *value)
{
    return value == Py_None || value == Py_True || value == Py_False || PyLong_CheckExact(value) ||
           PyFloat_CheckExact(value) || PyUnicode_CheckExact(value);
}

/* Takes a tensor on the CPU off the end of the tensors. */
static bool move_to_cpu(struct rpp_inputs *inputs)
{
    if (!rpp_tensor_layout.known || inputs->cpu_count == RPP_MOST_ON_CPU)
        return false;
    size_t from = --inputs->tensor_count, to = inputs->cpu_count++;
    inputs->on_cpu[to] = inputs->objects[from];
    inputs->cpu[to] = inputs->tensors[from];
    inputs->cpu_keys[to] = inputs->keys[from];
    return true;
}

/* Is it on the inputs' device, or on the CPU, where that is allowed? */
static bool look_at_tensor(struct rpp_inputs *inputs, const struct dl_exchange *exchange,
                           PyObject *value, bool may_be_on_cpu)
{
    if (inputs->tensor_count == RPP_MOST_TENSORS)
        return false;
    struct dl_tensor *tensor = &inputs->tensors[inputs->tensor_count];
    if (exchange->look(value, tensor) != 0) {
        PyErr_Clear();
        return false;
    }
    inputs->keys[inputs->tensor_count] = rpp_tensor_layout.known ? rpp_tensor_keys(value) : 0;
    inputs->wants[inputs->tensor_count] = false;
    inputs->own[inputs->tensor_count] = 0;
    inputs->objects[inputs->tensor_count++] = value;
    if (tensor->device.type == DL_CPU)
        return may_be_on_cpu && move_to_cpu(inputs);
    if (inputs->ordinal < 0)
        inputs->ordinal = tensor->device.ordinal;
    return tensor->device.type == DL_CUDA && tensor->device.ordinal == inputs->ordinal;
}

/* Takes the tensors of an object; its token, or NULL where Python has to look at it. */
static PyObject *look_at_object(struct rpp_inputs *inputs, const struct dl_exchange *exchange,
                                const struct rpp_object_table *known, PyObject *value)
{
    const struct rpp_object *object = rpp_objects_find(known, value);
    if (!object)
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_Size(object->tensors); i++) {
        PyObject *tensor = PyTuple_GetItem(object->tensors, i);
        if (PyWeakref_CheckRefExact(tensor))
            tensor = PyWeakref_GetObject(tensor);
        if (tensor == Py_None || inputs->held_count == RPP_MOST_TENSORS)
            return NULL;
        inputs->held[inputs->held_count++] = Py_NewRef(tensor);
        if (!look_at_tensor(inputs, exchange, tensor, false))
            return NULL;
    }
    return object->token;
}

void rpp_inputs_let_go(struct rpp_inputs *inputs)
{
    rpp_assert_gil();
    while (inputs->held_count)
        Py_DECREF(inputs->held[--inputs->held_count]);
}

/* Is the object that has this token among the arguments that were read? */
static bool was_read(const struct rpp_inputs *inputs, const PyObject *token)
{
    for (size_t i = 0; i < inputs->count; i++)
        if (inputs->values[i] == token)
            return true;
    return false;
}

/* Reads one argument; false where it is for Python: an object that is two arguments among others. */
static bool read_value(struct rpp_inputs *inputs, const struct dl_exchange *exchange,
                       const struct rpp_tensor_types *types, const struct rpp_object_table *known,
                       PyObject *value)
{
    PyObject **into = &inputs->values[inputs->count], *type = (PyObject *)Py_TYPE(value);
    *into = NULL;
    if (type == types->tensor || type == types->parameter) {
        size_t before = inputs->cpu_count;
        if (!look_at_tensor(inputs, exchange, value, type == types->tensor))
            return false;
        *into = inputs->cpu_count > before ? Py_Ellipsis : NULL;
        return true;
    }
    if (is_constant(value)) {
        *into = value;
        return true;
    }
    PyObject *token = look_at_object(inputs, exchange, known, value);
    *into = token && !was_read(inputs, token) ? token : NULL;
    return *into;
}

bool rpp_inputs_read(struct rpp_inputs *inputs, const struct dl_exchange *exchange,
                     const struct rpp_tensor_types *types, const struct rpp_object_table *known,
                     PyObject *args, PyObject *kwargs)
{
    rpp_assert_gil();
    Py_ssize_t by_position = PyTuple_Size(args), at = 0;
    inputs->count = inputs->tensor_count = inputs->held_count = inputs->cpu_count = 0;
    inputs->ordinal = -1;
    inputs->args = args;
    inputs->kwargs = kwargs;
    for (;;) {
        PyObject *name = NULL, *value;
        if ((Py_ssize_t)inputs->count < by_position)
            value = PyTuple_GetItem(args, (Py_ssize_t)inputs->count);
        else if (!PyDict_Next(kwargs, &at, &name, &value))
            return true;
        if (inputs->count == RPP_MOST_INPUTS || !read_value(inputs, exchange, types, known, value))
            return false;
        inputs->names[inputs->count++] = name;
    }
}

/* ---- How tensors lie ----------------------------------------------------------------------- */

struct range {
    uint64_t start, end;
    size_t tensor;
};

static int compare_ranges(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* Sorted: what is compared pair by pair for a few takes some microseconds for a hundred. */
static bool many_overlap(const uint64_t *starts, const uint64_t *bytes, size_t count)
{
    struct range ranges[RPP_MOST_TENSORS];
    assert(count <= RPP_MOST_TENSORS);
    for (size_t i = 0; i < count; i++)
        ranges[i] = (struct range){.start = starts[i], .end = starts[i] + bytes[i], .tensor = i};
    qsort(ranges, count, sizeof *ranges, compare_ranges);
    for (size_t i = 1; i < count; i++)
        if (ranges[i].start < ranges[i - 1].end)
            return true;
    return false;
}

static bool any_overlap(const uint64_t *starts, const uint64_t *bytes, size_t count)
{
    if (count > FEW)
        return many_overlap(starts, bytes, count);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (starts[i] < starts[k] + bytes[k] && starts[k] < starts[i] + bytes[i])
                return true;
    return false;
}

/* The first tensor that is the same object as one: its own number, where there is none before. */
static size_t first_same(PyObject *const *objects, size_t i)
{
    size_t first = 0;
    while (objects[first] != objects[i])
        first++;
    assert(first <= i);
    return first;
}

/* The same object lies in the same extent, but where it is empty. */
static bool may_be_the_same(const struct rpp_tensor_form *form, size_t seen)
{
    return form->extent != seen || !form->bytes;
}

bool rpp_inputs_lie(const struct rpp_inputs *inputs, const struct rpp_signature *signature,
                    uint64_t *out_starts)
{
    rpp_assert_gil();
    size_t seen = 0;
    for (size_t i = 0; i < inputs->tensor_count; i++) {
        const struct rpp_tensor_form *form = &signature->tensors[i];
        uint64_t start = (uintptr_t)inputs->tensors[i].data - form->offset;
        assert(form->extent <= seen);
        if (may_be_the_same(form, seen) && first_same(inputs->objects, i) != form->same)
            return false;
        if (form->extent == seen)
            out_starts[seen++] = start;
        else if (out_starts[form->extent] != start)
            return false;
    }
    assert(seen == signature->extent_count);
    return !any_overlap(out_starts, signature->extents, seen);
}

/* Of tensors that were signed, sorted: which extent each lies in, numbered as they come, and where
 * the extents start. False where some overlap and others are empty. */
static bool sort_into_extents(struct rpp_signature *signature, const struct rpp_inputs *inputs,
                              uint64_t *out_starts)
{
    struct range ranges[RPP_MOST_TENSORS];
    bool any_empty = false;
    for (size_t i = 0; i < inputs->tensor_count; i++) {
        uint64_t start = (uintptr_t)inputs->tensors[i].data;
        ranges[i] = (struct range){start, start + signature->tensors[i].bytes, i};
        any_empty |= !signature->tensors[i].bytes;
    }
    qsort(ranges, inputs->tensor_count, sizeof *ranges, compare_ranges);
    uint64_t end = 0;
    for (size_t i = 0; i < inputs->tensor_count; i++) {
        const struct range *range = &ranges[i];
        if (!i || range->start >= end)
            out_starts[signature->extent_count++] = range->start;
        struct rpp_tensor_form *form = &signature->tensors[range->tensor];
        form->extent = signature->extent_count - 1;
        form->offset = range->start - out_starts[form->extent];
        end = range->end > end ? range->end : end;
    }
    return !any_empty || signature->extent_count == inputs->tensor_count;
}

/* Fills in the extents, in the order of their first tensors, as the arguments of a graph are. */
static bool find_extents(struct rpp_signature *signature, const struct rpp_inputs *inputs)
{
    uint64_t starts[RPP_MOST_TENSORS];
    size_t numbers[RPP_MOST_TENSORS], numbered = 0;
    if (!sort_into_extents(signature, inputs, starts))
        return false;
    for (size_t e = 0; e < signature->extent_count; e++)
        numbers[e] = SIZE_MAX;
    for (size_t i = 0; i < inputs->tensor_count; i++) {
        struct rpp_tensor_form *form = &signature->tensors[i];
        if (numbers[form->extent] == SIZE_MAX)
            numbers[form->extent] = numbered++;
        form->extent = numbers[form->extent];
        uint64_t *bytes = &signature->extents[form->extent];
        *bytes = form->offset + form->bytes > *bytes ? form->offset + form->bytes : *bytes;
    }
    assert(numbered == signature->extent_count);
    return true;
}

/* ---- Signatures ---------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* Strides and types follow from shapes as a rule. */
uint64_t rpp_inputs_hash(const struct rpp_inputs *inputs)
{
    rpp_assert_gil();
    uint64_t hash = mix(inputs->count, (uint64_t)inputs->ordinal);
    for (size_t i = 0; i < inputs->count; i++) /* of the constants' types it raises nothing */
        hash = mix(hash, inputs->values[i] ? (uint64_t)PyObject_Hash(inputs->values[i]) : 0);
    for (size_t i = 0; i < inputs->tensor_count; i++)
        for (int32_t k = 0; k < inputs->tensors[i].rank; k++)
            hash = mix(hash, (uint64_t)inputs->tensors[i].shape[k]);
    return hash;
}

static bool sign_tensor(struct rpp_tensor_form *form, const struct dl_tensor *tensor, uint64_t keys)
{
    if (tensor->rank > RPP_MOST_RANK || tensor->type.code == DL_COMPLEX)
        return false;
    uint64_t elements = 1, last = 0;
    form->type = tensor->type;
    form->rank = tensor->rank;
    form->keys = keys;
    for (int32_t k = 0; k < tensor->rank; k++) {
        form->shape[k] = tensor->shape[k];
        form->strides[k] = tensor->strides[k];
        elements *= (uint64_t)tensor->shape[k];
        last += (uint64_t)((tensor->shape[k] - 1) * tensor->strides[k]);
    }
    form->bytes = elements ? (last + 1) * ((tensor->type.bits + 7u) / 8u) : 0;
    return true;
}

/* Do its elements lie in their order, with nothing between? */
static bool is_contiguous(const struct rpp_tensor_form *form)
{
    int64_t dense = 1;
    for (int32_t k = form->rank - 1; k >= 0; k--) {
        if (form->shape[k] != 1 && form->strides[k] != dense)
            return false;
        dense *= form->shape[k];
    }
    return true;
}

/* Is it one float, or one double? */
static bool is_number(const struct rpp_tensor_form *form)
{
    bool is_float = form->type.code == DL_FLOAT && form->type.lanes == 1 &&
                    (form->type.bits == 32 || form->type.bits == 64);
    return is_float && form->bytes == form->type.bits / 8u;
}

/* told: as for rpp_signature_make. */
static bool sign_on_cpu(struct rpp_cpu_form *made, const struct dl_tensor *tensor, uint64_t keys,
                        PyObject *told)
{
    if (!sign_tensor(&made->form, tensor, keys))
        return false;
    if (PyBytes_CheckExact(told)) {
        made->contents = Py_NewRef(told);
        return is_contiguous(&made->form) && (uint64_t)PyBytes_Size(told) == made->form.bytes;
    }
    made->kind = PyLong_CheckExact(told) ? (int)PyLong_AsLong(told) : 0;
    return told == Py_None || (made->kind > 0 && is_number(&made->form));
}

static bool sign_all_on_cpu(struct rpp_signature *signature, const struct rpp_inputs *inputs,
                            PyObject *told)
{
    if (inputs->cpu_count != (told ? (size_t)PyTuple_Size(told) : 0))
        return false;
    for (size_t i = 0; i < inputs->cpu_count; i++) {
        signature->cpu_count++; /* what was made of it is dropped with the signature */
        signature->on_cpu[i].form.same = first_same(inputs->on_cpu, i);
        signature->on_cpu[i].form.own = inputs->cpu_own[i];
        if (!sign_on_cpu(&signature->on_cpu[i], &inputs->cpu[i], inputs->cpu_keys[i],
                         PyTuple_GetItem(told, (Py_ssize_t)i)))
            return false;
    }
    return true;
}

/* Room for what inputs look like; false with an exception set. */
static bool make_room(struct rpp_signature *signature, const struct rpp_inputs *inputs)
{
    signature->tensors = PyMem_Calloc(inputs->tensor_count + 1, sizeof *signature->tensors);
    signature->extents = PyMem_Calloc(inputs->tensor_count + 1, sizeof *signature->extents);
    signature->constants = PyMem_Calloc(inputs->count + 1, sizeof(PyObject *));
    signature->names = PyMem_Calloc(inputs->count + 1, sizeof(PyObject *));
    signature->on_cpu = PyMem_Calloc(inputs->cpu_count + 1, sizeof *signature->on_cpu);
    if (signature->tensors && signature->extents && signature->constants && signature->names &&
        signature->on_cpu)
        return true;
    PyErr_NoMemory();
    return false;
}

bool rpp_signature_make(struct rpp_signature *signature, const struct rpp_inputs *inputs,
                        PyObject *told)
{
    rpp_assert_gil();
    *signature = (struct rpp_signature){0};
    bool made = make_room(signature, inputs);
    for (size_t i = 0; made && i < inputs->tensor_count; i++) {
        signature->tensor_count++;
        signature->tensors[i].wants = inputs->wants[i];
        signature->tensors[i].own = inputs->own[i];
        signature->tensors[i].same = first_same(inputs->objects, i);
        made = sign_tensor(&signature->tensors[i], &inputs->tensors[i], inputs->keys[i]);
    }
    made = made && sign_all_on_cpu(signature, inputs, told);
    if (!made || !find_extents(signature, inputs)) {
        rpp_signature_drop(signature);
        return false;
    }
    signature->ordinal = inputs->ordinal;
    signature->hash = rpp_inputs_hash(inputs);
    for (size_t i = 0; i < inputs->count; i++) {
        signature->constants[i] = Py_XNewRef(inputs->values[i]);
        signature->names[i] = Py_XNewRef(inputs->names[i]);
    }
    signature->count = inputs->count;
    return true;
}

void rpp_signature_drop(struct rpp_signature *signature)
{
    rpp_assert_gil();
    for (size_t i = 0; i < signature->count; i++) {
        Py_XDECREF(signature->constants[i]);
        Py_XDECREF(signature->names[i]);
    }
    for (size_t i = 0; i < signature->cpu_count; i++)
        Py_XDECREF(signature->on_cpu[i].contents);
    PyMem_Free(signature->on_cpu);
    PyMem_Free(signature->constants);
    PyMem_Free(signature->names);
    PyMem_Free(signature->extents);
    PyMem_Free(signature->tensors);
    *signature = (struct rpp_signature){0};
}

static bool form_fits(const struct rpp_tensor_form *form, const struct dl_tensor *tensor,
                      uint64_t keys)
{
    size_t bytes = (size_t)tensor->rank * sizeof(int64_t);
    return tensor->rank == form->rank && keys == form->keys &&
           memcmp(&tensor->type, &form->type, sizeof tensor->type) == 0 &&
           memcmp(tensor->shape, form->shape, bytes) == 0 &&
           memcmp(tensor->strides, form->strides, bytes) == 0;
}

static bool tensor_fits(const struct rpp_signature *signature, const struct rpp_inputs *inputs,
                        size_t i)
{
    return inputs->wants[i] == signature->tensors[i].wants &&
           inputs->own[i] == signature->tensors[i].own &&
           form_fits(&signature->tensors[i], &inputs->tensors[i], inputs->keys[i]);
}

/* Of a tensor that is_number. */
static double number_of(const struct rpp_tensor_form *form, const void *data)
{
    double wide;
    float narrow;
    if (form->type.bits == 32) {
        memcpy(&narrow, data, sizeof narrow);
        return (double)narrow;
    }
    memcpy(&wide, data, sizeof wide);
    return wide;
}

static bool cpu_fits(const struct rpp_cpu_form *wanted, const struct dl_tensor *tensor,
                     uint64_t keys)
{
    if (!form_fits(&wanted->form, tensor, keys))
        return false;
    if (!tensor->data && wanted->form.bytes) /* of a storage that was made smaller */
        return false;
    const void *data = (const char *)tensor->data + tensor->byte_offset;
    if (wanted->contents)
        return !wanted->form.bytes ||
               memcmp(data, PyBytes_AsString(wanted->contents), wanted->form.bytes) == 0;
    return !wanted->kind || rpp_kind_of(number_of(&wanted->form, data)) == wanted->kind;
}

/* By their bits: 0 and -0 are equal, and work is not the same with them; nan is not equal to
 * itself. */
static bool same_float(PyObject *a, PyObject *b)
{
    double x = PyFloat_AsDouble(a), y = PyFloat_AsDouble(b);
    return memcmp(&x, &y, sizeof x) == 0;
}

/* Both are constants, or names: of types whose comparison raises nothing. */
static bool equal(PyObject *a, PyObject *b)
{
    if (a == b || Py_TYPE(a) != Py_TYPE(b))
        return a == b;
    return PyFloat_CheckExact(a) ? same_float(a, b) : PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

/* Either may be NULL. */
static bool same_or_equal(PyObject *a, PyObject *b)
{
    return a == b || (a && b && equal(a, b));
}

bool rpp_signature_fits(const struct rpp_signature *signature, const struct rpp_inputs *inputs)
{
    rpp_assert_gil();
    if (signature->count != inputs->count || signature->tensor_count != inputs->tensor_count ||
        signature->ordinal != inputs->ordinal || signature->cpu_count != inputs->cpu_count)
        return false;
    for (size_t i = 0; i < inputs->tensor_count; i++)
        if (!tensor_fits(signature, inputs, i))
            return false;
    for (size_t i = 0; i < inputs->cpu_count; i++)
        if (first_same(inputs->on_cpu, i) != signature->on_cpu[i].form.same ||
            inputs->cpu_own[i] != signature->on_cpu[i].form.own ||
            !cpu_fits(&signature->on_cpu[i], &inputs->cpu[i], inputs->cpu_keys[i]))
            return false;
    for (size_t i = 0; i < inputs->count; i++)
        if (!same_or_equal(inputs->names[i], signature->names[i]) ||
            !same_or_equal(inputs->values[i], signature->constants[i]))
            return false;
    return true;
}
