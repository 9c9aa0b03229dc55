/* SPDX-License-Identifier: MIT */
#include "base/gradient_address.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct rpp_gradient_layout rpp_gradient_layout;

/* How far is searched: within what PyTorch's objects have at least. */
enum { IMPL_WORDS = 24, KEPT_WORDS = 32, KEPT_BYTES = 8 * KEPT_WORDS };

/* What each word of an impl may point to; guarded by the GIL. */
static struct {
    PyTypeObject *types[2];
    bool no_gradient[IMPL_WORDS][KEPT_WORDS]; /* held another value in some tensor */
    bool no_wish[IMPL_WORDS][KEPT_BYTES];
    bool was_none; /* a tensor without a gradient was seen */
    uint64_t none[IMPL_WORDS][KEPT_WORDS];
} seen;

/* Copies what may not be memory; false if so. pipe_ends: of an empty pipe. */
static bool copy_out(const int *pipe_ends, uint64_t address, uint64_t *into)
{
    const void *at = (const void *)(uintptr_t)address;
    ssize_t put = write(pipe_ends[1], at, KEPT_BYTES);
    ssize_t got = put > 0 ? read(pipe_ends[0], into, (size_t)put) : 0;
    return got == KEPT_BYTES;
}

/* Rules out what the copy of the object that word i points to does not hold. */
static void compare(size_t i, const uint64_t *copy, uint64_t gradient, bool wants)
{
    const uint8_t *bytes = (const uint8_t *)copy;
    for (size_t k = 0; k < KEPT_WORDS; k++) {
        if (!gradient && !seen.was_none)
            seen.none[i][k] = copy[k];
        if (copy[k] != (gradient ? gradient : seen.none[i][k]))
            seen.no_gradient[i][k] = true;
    }
    for (size_t b = 0; b < KEPT_BYTES; b++)
        if (bytes[b] != wants)
            seen.no_wish[i][b] = true;
}

static void note_type(PyTypeObject *type)
{
    for (size_t i = 0; i < 2 && seen.types[i] != type; i++)
        if (!seen.types[i]) {
            seen.types[i] = (PyTypeObject *)Py_NewRef((PyObject *)type);
            return;
        }
}

/* see_gradient(tensor, address of its impl, address of its gradient's or 0, does it want one): of a
 * tensor that autograd keeps something of */
PyObject *rpp_see_gradient(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    PyObject *tensor;
    unsigned long long impl, gradient;
    int wants, pipe_ends[2];
    if (!PyArg_ParseTuple(args, "OKKp", &tensor, &impl, &gradient, &wants))
        return NULL;
    if (pipe2(pipe_ends, O_NONBLOCK | O_CLOEXEC) != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    const uint64_t *words = (const uint64_t *)(uintptr_t)impl;
    for (size_t i = 0; i < IMPL_WORDS; i++) {
        uint64_t copy[KEPT_WORDS];
        if (copy_out(pipe_ends, words[i], copy)) {
            compare(i, copy, gradient, wants);
        } else {
            memset(seen.no_gradient[i], true, sizeof seen.no_gradient[i]);
            memset(seen.no_wish[i], true, sizeof seen.no_wish[i]);
        }
    }
    seen.was_none = seen.was_none || !gradient;
    note_type(Py_TYPE(tensor));
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    return Py_NewRef(Py_None);
}

/* The only place that is not ruled out, among count; false where there is another number of them.
 */
static bool only(const bool *ruled_out, size_t count, size_t *out_place)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        if (!ruled_out[i]) {
            *out_place = i;
            found++;
        }
    return found == 1;
}

/* Uses what was seen, where it leaves one answer: is the layout known? */
PyObject *rpp_settle_gradients(PyObject *module, PyObject *unused)
{
    rpp_assert_gil();
    (void)module, (void)unused;
    size_t gradient, wish;
    bool known = rpp_tensor_layout.known && seen.was_none &&
                 only(&seen.no_gradient[0][0], IMPL_WORDS * KEPT_WORDS, &gradient);
    size_t kept = known ? gradient / KEPT_WORDS : 0;
    if (!known || !only(seen.no_wish[kept], KEPT_BYTES, &wish))
        return Py_NewRef(Py_False);
    rpp_gradient_layout = (struct rpp_gradient_layout){
        .known = true,
        .kept = (uint32_t)kept,
        .grad = (uint32_t)(gradient % KEPT_WORDS),
        .wants = (uint32_t)wish,
        .none = seen.none[kept][gradient % KEPT_WORDS],
        .types = {seen.types[0], seen.types[1]},
    };
    return Py_NewRef(Py_True);
}
