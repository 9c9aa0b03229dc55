/* SPDX-License-Identifier: MIT */
#include "inputs.h"

#include "tensor_address.h"

#include <string.h>

/* ---- Inputs -------------------------------------------------------------------------------- */

static bool is_constant(PyObject *value)
{
    return value == Py_None || value == Py_True || value == Py_False || PyLong_CheckExact(value) ||
           PyFloat_CheckExact(value) || PyUnicode_CheckExact(value);
}

static bool look_at_tensor(struct rpp_inputs *inputs, const struct dl_exchange *exchange,
                           PyObject *value)
{
    if (inputs->tensor_count == RPP_MOST_TENSORS)
        return false;
    struct dl_tensor *tensor = &inputs->tensors[inputs->tensor_count];
    if (exchange->look(value, tensor) != 0) {
        PyErr_Clear();
        return false;
    }
    inputs->keys[inputs->tensor_count] = rpp_tensor_layout.known ? rpp_tensor_keys(value) : 0;
    inputs->tensor_at[inputs->tensor_count++] = inputs->count;
    if (inputs->ordinal < 0)
        inputs->ordinal = tensor->device.ordinal;
    return tensor->device.type == DL_CUDA && tensor->device.ordinal == inputs->ordinal;
}

bool rpp_inputs_read(struct rpp_inputs *inputs, const struct dl_exchange *exchange,
                     PyObject *tensor_type, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t by_position = PyTuple_Size(args), at = 0;
    inputs->count = inputs->tensor_count = 0;
    inputs->ordinal = -1;
    for (;;) {
        PyObject *name = NULL, *value;
        if ((Py_ssize_t)inputs->count < by_position)
            value = PyTuple_GetItem(args, (Py_ssize_t)inputs->count);
        else if (!PyDict_Next(kwargs, &at, &name, &value))
            return true;
        bool known = inputs->count < RPP_MOST_INPUTS;
        if (known && (PyObject *)Py_TYPE(value) == tensor_type)
            known = look_at_tensor(inputs, exchange, value);
        else if (known)
            known = is_constant(value);
        if (!known)
            return false;
        inputs->values[inputs->count] = value;
        inputs->names[inputs->count++] = name;
    }
}

bool rpp_inputs_overlap(const struct rpp_inputs *inputs, const struct rpp_signature *signature)
{
    for (size_t i = 0; i < inputs->tensor_count; i++)
        for (size_t k = 0; k < i; k++) {
            uintptr_t a = (uintptr_t)inputs->tensors[i].data;
            uintptr_t b = (uintptr_t)inputs->tensors[k].data;
            if (a < b + signature->tensors[k].bytes && b < a + signature->tensors[i].bytes)
                return true;
        }
    return false;
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
    uint64_t hash = mix(inputs->count, (uint64_t)inputs->ordinal);
    size_t next = 0;
    for (size_t i = 0; i < inputs->count; i++) {
        if (next < inputs->tensor_count && inputs->tensor_at[next] == i) {
            const struct dl_tensor *tensor = &inputs->tensors[next++];
            for (int32_t k = 0; k < tensor->rank; k++)
                hash = mix(hash, (uint64_t)tensor->shape[k]);
        } else { /* of the constants' types, for which it raises nothing */
            hash = mix(hash, (uint64_t)PyObject_Hash(inputs->values[i]));
        }
    }
    return hash;
}

static bool sign_tensor(struct rpp_signature *signature, const struct dl_tensor *tensor,
                        uint64_t keys)
{
    if (tensor->rank > RPP_MOST_RANK || tensor->type.code == DL_COMPLEX)
        return false;
    size_t i = signature->tensor_count++;
    uint64_t elements = 1, last = 0;
    signature->tensors[i].type = tensor->type;
    signature->tensors[i].rank = tensor->rank;
    signature->tensors[i].keys = keys;
    for (int32_t k = 0; k < tensor->rank; k++) {
        signature->tensors[i].shape[k] = tensor->shape[k];
        signature->tensors[i].strides[k] = tensor->strides[k];
        elements *= (uint64_t)tensor->shape[k];
        last += (uint64_t)((tensor->shape[k] - 1) * tensor->strides[k]);
    }
    signature->tensors[i].bytes = elements ? (last + 1) * ((tensor->type.bits + 7u) / 8u) : 0;
    return true;
}

bool rpp_signature_make(struct rpp_signature *signature, const struct rpp_inputs *inputs)
{
    *signature = (struct rpp_signature){0};
    for (size_t i = 0; i < inputs->tensor_count; i++)
        if (!sign_tensor(signature, &inputs->tensors[i], inputs->keys[i]))
            return false;
    signature->ordinal = inputs->ordinal;
    signature->hash = rpp_inputs_hash(inputs);
    size_t next = 0;
    for (size_t i = 0; i < inputs->count; i++) {
        bool is_tensor = next < inputs->tensor_count && inputs->tensor_at[next] == i;
        next += is_tensor;
        signature->constants[i] = is_tensor ? NULL : Py_NewRef(inputs->values[i]);
        signature->names[i] = Py_XNewRef(inputs->names[i]);
    }
    signature->count = inputs->count;
    return true;
}

void rpp_signature_drop(struct rpp_signature *signature)
{
    for (size_t i = 0; i < signature->count; i++) {
        Py_XDECREF(signature->constants[i]);
        Py_XDECREF(signature->names[i]);
    }
    *signature = (struct rpp_signature){0};
}

static bool tensor_fits(const struct rpp_signature *signature, const struct rpp_inputs *inputs,
                        size_t i)
{
    const struct dl_tensor *tensor = &inputs->tensors[i];
    size_t bytes = (size_t)tensor->rank * sizeof(int64_t);
    return tensor->rank == signature->tensors[i].rank &&
           inputs->keys[i] == signature->tensors[i].keys &&
           memcmp(&tensor->type, &signature->tensors[i].type, sizeof tensor->type) == 0 &&
           memcmp(tensor->shape, signature->tensors[i].shape, bytes) == 0 &&
           memcmp(tensor->strides, signature->tensors[i].strides, bytes) == 0;
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

bool rpp_signature_fits(const struct rpp_signature *signature, const struct rpp_inputs *inputs)
{
    if (signature->count != inputs->count || signature->tensor_count != inputs->tensor_count ||
        signature->ordinal != inputs->ordinal)
        return false;
    for (size_t i = 0; i < inputs->tensor_count; i++)
        if (!tensor_fits(signature, inputs, i))
            return false;
    size_t next = 0;
    for (size_t i = 0; i < inputs->count; i++) {
        PyObject *name = inputs->names[i], *wanted = signature->names[i];
        bool is_tensor = next < inputs->tensor_count && inputs->tensor_at[next] == i;
        next += is_tensor;
        if (!name != !wanted || (name && !equal(name, wanted)) ||
            is_tensor != !signature->constants[i] ||
            (!is_tensor && !equal(inputs->values[i], signature->constants[i])))
            return false;
    }
    return true;
}
