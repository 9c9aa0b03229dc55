/* SPDX-License-Identifier: MIT */
#include "base/tensor_address.h"

#include "base/python.h"

#include <assert.h>

struct rpp_tensor_layout rpp_tensor_layout;

/* How far is searched: within what PyTorch's objects have at least. A tensor's own size is told. */
enum { IMPL_WORDS = 24, STORAGE_WORDS = 6, MOST_WORDS = 32 };
enum { QUARTERS = 4, QUARTER_BITS = 16 };

/* Places that held the right value in every tensor so far, a bit each; guarded by the GIL. */
static struct {
    uint32_t impl, storage, data, offset, keys, form;
    uint32_t type[QUARTERS]; /* of the words whose first, second .. quarter may be it */
} candidates = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, {~0u, ~0u, ~0u, ~0u}};

static uint32_t matches(const void *object, size_t words, unsigned long long value)
{
    assert(words <= MOST_WORDS);
    const uint64_t *word = object;
    uint32_t found = 0;
    for (size_t i = 0; i < words; i++)
        found |= (uint32_t)(word[i] == value) << i;
    return found;
}

enum { FORM_RANK = RPP_FORM_RANK, FORM_WORDS = 1 + 2 * FORM_RANK };

/* Odd numbers of 64 bits: the initial values of SHA-512 and three of SHA-384, with the last bit set. */
const uint64_t rpp_form_mix[2 * RPP_FORM_RANK + 1] = {
    0x6a09e667f3bcc909, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
    0xcbbb9d5dc1059ed9, 0x629a292a367cd507, 0x9159015a3070dd17};

/* Which words of an impl begin such a form? */
static uint32_t matches_form(const uint64_t *impl, PyObject *shape, PyObject *stride)
{
    size_t rank = (size_t)PyTuple_Size(shape);
    uint32_t found = 0;
    if (rank > FORM_RANK || (size_t)PyTuple_Size(stride) != rank)
        return ~0u;
    for (size_t at = 1; at + FORM_WORDS <= IMPL_WORDS; at++) {
        bool fits = impl[at] == rank;
        for (size_t i = 0; fits && i < rank; i++)
            fits = impl[at + 1 + i] ==
                       PyLong_AsUnsignedLongLong(PyTuple_GetItem(shape, (Py_ssize_t)i)) &&
                   impl[at + 1 + FORM_RANK + i] ==
                       PyLong_AsUnsignedLongLong(PyTuple_GetItem(stride, (Py_ssize_t)i));
        found |= (uint32_t)fits << at;
    }
    return found;
}

/* Which words of an impl have the number in a quarter of theirs? */
static uint32_t matches_quarter(const uint64_t *impl, unsigned quarter, unsigned number)
{
    uint32_t found = 0;
    for (size_t at = 1; at < IMPL_WORDS; at++)
        found |= (uint32_t)((uint16_t)(impl[at] >> quarter * QUARTER_BITS) == number) << at;
    return found;
}

PyObject *rpp_tensor_places(PyObject *module, PyObject *tensors)
{
    rpp_assert_gil();
    (void)module;
    if (!PyList_Check(tensors))
        return PyErr_Format(PyExc_TypeError, "tensor_places takes a list");
    if (!rpp_tensor_layout.known || !rpp_tensor_layout.form)
        return Py_NewRef(Py_None);
    enum { WORDS = 3 };
    Py_ssize_t count = PyList_Size(tensors);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, count * WORDS * (Py_ssize_t)sizeof(uint64_t));
    uint64_t *words = bytes ? (uint64_t *)(void *)PyBytes_AsString(bytes) : NULL;
    for (Py_ssize_t i = 0; words && i < count; i++) {
        const void *tensor = PyList_GetItem(tensors, i);
        struct rpp_tensor_place place = rpp_tensor_place(tensor);
        words[WORDS * i] = place.data;
        words[WORDS * i + 1] = place.offset;
        words[WORDS * i + 2] = rpp_tensor_form(tensor);
    }
    return bytes;
}

/* see_tensor(tensor, its size as an object, addresses of its impl and storage, data, offset, keys,
 * shape, stride, PyTorch's number of its dtype) */
PyObject *rpp_see_tensor(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    PyObject *tensor;
    Py_ssize_t bytes;
    unsigned long long impl, storage, data, offset, keys;
    PyObject *shape, *stride;
    unsigned type;
    if (!PyArg_ParseTuple(args, "OnKKKKKO!O!I", &tensor, &bytes, &impl, &storage, &data, &offset,
                          &keys, &PyTuple_Type, &shape, &PyTuple_Type, &stride, &type))
        return NULL;
    size_t words = (size_t)bytes / 8 < MOST_WORDS ? (size_t)bytes / 8 : MOST_WORDS;
    const void *impl_at = (const void *)(uintptr_t)impl;
    candidates.impl &= matches(tensor, words, impl);
    candidates.storage &= matches(impl_at, IMPL_WORDS, storage);
    candidates.data &= matches((const void *)(uintptr_t)storage, STORAGE_WORDS, data);
    candidates.offset &= matches(impl_at, IMPL_WORDS, offset);
    candidates.keys &= matches(impl_at, IMPL_WORDS, keys);
    candidates.form &= matches_form(impl_at, shape, stride);
    for (unsigned quarter = 0; quarter < QUARTERS; quarter++)
        candidates.type[quarter] &= matches_quarter(impl_at, quarter, type);
    return Py_NewRef(Py_None);
}

static uint32_t lowest(uint32_t bits)
{
    assert(bits);
    return (uint32_t)__builtin_ctz(bits);
}

static bool is_one(uint32_t bits)
{
    return bits && (bits & (bits - 1)) == 0;
}

/* Where the number of the dtype is, if one place is left. */
static void settle_type(void)
{
    uint32_t found = 0, quarters = 0;
    for (uint32_t quarter = 0; quarter < QUARTERS; quarter++) {
        found |= candidates.type[quarter];
        quarters += candidates.type[quarter] != 0;
        if (candidates.type[quarter])
            rpp_tensor_layout.type_shift = quarter * QUARTER_BITS;
    }
    rpp_tensor_layout.type = quarters == 1 && is_one(found) ? lowest(found) : 0;
}

/* Uses what was seen, where it leaves one answer: is the layout known? */
PyObject *rpp_settle_layout(PyObject *module, PyObject *unused)
{
    rpp_assert_gil();
    (void)module, (void)unused;
    const uint32_t found[] = {candidates.impl, candidates.storage, candidates.data,
                              candidates.offset, candidates.keys};
    bool known = true;
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        known = known && is_one(found[i]);
    if (!known)
        return Py_NewRef(Py_False);
    rpp_tensor_layout = (struct rpp_tensor_layout){
        .known = true,
        .impl = lowest(found[0]),
        .storage = lowest(found[1]),
        .data = lowest(found[2]),
        .offset = lowest(found[3]),
        .keys = lowest(found[4]),
        .form = is_one(candidates.form) ? lowest(candidates.form) : 0,
    };
    settle_type();
    return Py_NewRef(Py_True);
}
