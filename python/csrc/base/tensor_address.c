/* SPDX-License-Identifier: MIT */
#include "base/tensor_address.h"

#include "base/python.h"

struct rpp_tensor_layout rpp_tensor_layout;

/* How far is searched: within what PyTorch's objects have at least. A tensor's own size is told. */
enum { IMPL_WORDS = 24, STORAGE_WORDS = 6, MOST_WORDS = 32 };

/* Places that held the right value in every tensor so far, a bit each; guarded by the GIL. */
static struct {
    uint32_t impl, storage, data, offset, keys;
} candidates = {~0u, ~0u, ~0u, ~0u, ~0u};

static uint32_t matches(const void *object, size_t words, unsigned long long value)
{
    const uint64_t *word = object;
    uint32_t found = 0;
    for (size_t i = 0; i < words; i++)
        found |= (uint32_t)(word[i] == value) << i;
    return found;
}

/* see_tensor(tensor, its size as an object, addresses of its impl and storage, data, offset, keys)
 */
PyObject *rpp_see_tensor(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *tensor;
    Py_ssize_t bytes;
    unsigned long long impl, storage, data, offset, keys;
    if (!PyArg_ParseTuple(args, "OnKKKKK", &tensor, &bytes, &impl, &storage, &data, &offset, &keys))
        return NULL;
    size_t words = (size_t)bytes / 8 < MOST_WORDS ? (size_t)bytes / 8 : MOST_WORDS;
    const void *impl_at = (const void *)(uintptr_t)impl;
    candidates.impl &= matches(tensor, words, impl);
    candidates.storage &= matches(impl_at, IMPL_WORDS, storage);
    candidates.data &= matches((const void *)(uintptr_t)storage, STORAGE_WORDS, data);
    candidates.offset &= matches(impl_at, IMPL_WORDS, offset);
    candidates.keys &= matches(impl_at, IMPL_WORDS, keys);
    return Py_NewRef(Py_None);
}

static uint32_t lowest(uint32_t bits)
{
    return (uint32_t)__builtin_ctz(bits);
}

/* Uses what was seen, where it leaves one answer: is the layout known? */
PyObject *rpp_settle_layout(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    const uint32_t found[] = {candidates.impl, candidates.storage, candidates.data,
                              candidates.offset, candidates.keys};
    bool known = true;
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        known = known && found[i] && (found[i] & (found[i] - 1)) == 0;
    if (known)
        rpp_tensor_layout = (struct rpp_tensor_layout){true,
                                                       lowest(found[0]),
                                                       lowest(found[1]),
                                                       lowest(found[2]),
                                                       lowest(found[3]),
                                                       lowest(found[4])};
    return PyBool_FromLong(known);
}
