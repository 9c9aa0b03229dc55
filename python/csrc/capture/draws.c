/* SPDX-License-Identifier: MIT
 *
 * Random numbers of graphs. A captured kernel of PyTorch's that draws reads seed and offset from
 * two words of device memory, and adds the count that it was captured with:
 *
 *     struct of its parameters | seed's address | offset's address | count | captured |
 *
 * The words are values of the graph (rp_call_value): each replay is given seed and offset of the
 * generator as it is then, and moves it on. Where they lie PyTorch does not tell. So a kernel that
 * draws is captured behind all others, counting from a marker that no other word is likely to be,
 * and its parameters tell; it is left out of the graph.
 */
#include "capture/draws.h"

#include "base/state.h"

#include <reprise_framework.h>
#include <string.h>

static PyObject *initial_seed, *get_offset, *set_offset; /* names */

static bool prepare(void)
{
    if (!initial_seed)
        initial_seed = PyUnicode_InternFromString("initial_seed");
    if (!get_offset)
        get_offset = PyUnicode_InternFromString("get_offset");
    if (!set_offset)
        set_offset = PyUnicode_InternFromString("set_offset");
    return initial_seed && get_offset && set_offset;
}

/* What a method of the generator tells; an exception is set where it does not. */
static uint64_t ask(PyObject *generator, PyObject *name)
{
    PyObject *told = PyObject_CallMethodObjArgs(generator, name, NULL);
    uint64_t value = told ? PyLong_AsUnsignedLongLong(told) : 0;
    Py_XDECREF(told);
    return value;
}

bool rpp_draws_read(const struct rpp_draws *draws, size_t first)
{
    rpp_assert_gil();
    for (size_t i = first; i < draws->count; i++) {
        draws->values[2 * i] = ask(draws->list[i].generator, initial_seed);
        if (!PyErr_Occurred())
            draws->values[2 * i + 1] = ask(draws->list[i].generator, get_offset);
        if (PyErr_Occurred())
            return false;
    }
    return true;
}

bool rpp_draws_take(const struct rpp_draws *draws, PyObject *state)
{
    rpp_assert_gil();
    if (!draws->count || !PyTuple_Check(state) || PyTuple_Size(state) != 2) {
        PyErr_Format(PyExc_TypeError, "a state is a tuple of a seed and an offset, for a graph "
                                      "that draws");
        return false;
    }
    for (Py_ssize_t i = 0; i < 2; i++)
        draws->values[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(state, i));
    return !PyErr_Occurred();
}

bool rpp_draws_advance(const struct rpp_draws *draws, size_t first)
{
    rpp_assert_gil();
    for (size_t i = first; i < draws->count; i++) {
        const struct rpp_draw *draw = &draws->list[i];
        if (!draw->increment)
            continue;
        PyObject *offset = PyLong_FromUnsignedLongLong(draws->values[2 * i + 1] + draw->increment);
        PyObject *set =
            offset ? PyObject_CallMethodObjArgs(draw->generator, set_offset, offset, NULL) : NULL;
        Py_XDECREF(offset);
        Py_XDECREF(set);
        if (!set)
            return false;
    }
    return true;
}

void rpp_draws_finish(struct rpp_draws *draws)
{
    rpp_assert_gil();
    for (size_t i = 0; i < draws->count; i++)
        Py_XDECREF(draws->list[i].generator);
    PyMem_Free(draws->list);
    PyMem_Free(draws->values);
    *draws = (struct rpp_draws){0};
}

bool rpp_draws_set(struct rpp_draws *draws, PyObject *pairs)
{
    rpp_assert_gil();
    Py_ssize_t count = PyTuple_Size(pairs);
    if (count < 0 || !prepare())
        return false;
    struct rpp_draws made = {PyMem_Calloc((size_t)count + 1, sizeof *made.list),
                             PyMem_Calloc(2 * (size_t)count + 1, sizeof *made.values), 0};
    if (!made.list || !made.values)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++) {
        PyObject *pair = PyTuple_GetItem(pairs, i), *generator;
        unsigned long long increment;
        if (!PyTuple_Check(pair)) {
            PyErr_SetString(PyExc_TypeError,
                            "set_draws takes pairs of a generator and an increment");
            break;
        }
        if (!PyArg_ParseTuple(pair, "OK", &generator, &increment))
            break;
        made.list[made.count++] = (struct rpp_draw){Py_NewRef(generator), increment};
    }
    if (PyErr_Occurred()) {
        rpp_draws_finish(&made);
        return false;
    }
    rpp_draws_finish(draws);
    *draws = made;
    return true;
}

/* ---- Where the words are -------------------------------------------------------------------- */

enum { MOST_BYTES = 32768 }; /* of a kernel's parameters */

/* The node that the stream's next one would depend on, if it is the only one; NULL. */
static void *last_node(const struct rpp_device *device, struct CUstream_st *stream)
{
    enum { ACTIVE = 1 }; /* CU_STREAM_CAPTURE_STATUS_ACTIVE */
    int status = 0;
    unsigned long long id;
    void *graph, **nodes = NULL, *edges;
    size_t count = 0;
    int result = device->capture_info(stream, &status, &id, &graph, &nodes, &edges, &count);
    return result == 0 && status == ACTIVE && count == 1 ? nodes[0] : NULL;
}

static uint64_t word_at(const unsigned char *params, size_t offset)
{
    uint64_t word;
    memcpy(&word, params + offset, sizeof word);
    return word;
}

/* Finds the struct by its count. False where it is not there, or twice. */
static bool find_words(const unsigned char *params, size_t bytes, uint32_t marker,
                       uint64_t *out_seed, uint64_t *out_offset)
{
    enum { COUNT = 16, LEAST = 20 }; /* place of the count; bytes up to its end */
    size_t found = 0;
    for (size_t at = 0; at + LEAST <= bytes; at += sizeof(uint64_t)) {
        uint32_t count;
        memcpy(&count, params + at + COUNT, sizeof count);
        uint64_t seed = word_at(params, at), offset = word_at(params, at + 8);
        if (count != marker || !seed || !offset || seed == offset || (seed | offset) % 8)
            continue;
        *out_seed = seed;
        *out_offset = offset;
        found++;
    }
    return found == 1;
}

PyObject *rpp_probe_words(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    int ordinal;
    unsigned long long stream;
    unsigned marker;
    struct rpp_device *device;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "iKI", &ordinal, &stream, &marker))
        return NULL;
    rp_status status = rpp_device_get(ordinal, &device, &err);
    if (status != RP_OK)
        return rpp_set_error(status, &err);
    unsigned char params[MOST_BYTES];
    size_t bytes = 0;
    uint64_t seed, offset;
    void *node = last_node(device, (struct CUstream_st *)(uintptr_t)stream);
    if (!node || rp_node_params(device->device, node, params, sizeof params, &bytes, &err) ||
        bytes > sizeof params || !find_words(params, bytes, marker, &seed, &offset))
        return Py_NewRef(Py_None);
    return Py_BuildValue("(KKK)", (unsigned long long)(uintptr_t)node, (unsigned long long)seed,
                         (unsigned long long)offset);
}

/* The device of (ordinal, handle), and the handle; NULL with an exception set. */
static struct rpp_device *parse_device(PyObject *args, unsigned long long *out_handle)
{
    int ordinal;
    struct rpp_device *device;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "iK", &ordinal, out_handle))
        return NULL;
    rp_status status = rpp_device_get(ordinal, &device, &err);
    if (status == RP_OK)
        return device;
    rpp_set_error(status, &err);
    return NULL;
}

PyObject *rpp_last_node(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    unsigned long long stream;
    const struct rpp_device *device = parse_device(args, &stream);
    if (!device)
        return NULL;
    void *node = last_node(device, (struct CUstream_st *)(uintptr_t)stream);
    return PyLong_FromUnsignedLongLong((uintptr_t)node);
}

/* ---- Which words there are ------------------------------------------------------------------ */

/* Appends (seed's address, offset's address) of each place in a kernel's parameters that looks like
 * the struct, in memory that no capture gives out. False with an exception set. */
static bool add_words(PyObject *list, struct rp_device *device, const unsigned char *params,
                      size_t bytes)
{
    enum { COUNT = 16, CAPTURED = 24, GRAIN = 512 }; /* what PyTorch's allocators align memory to */
    for (size_t at = 0; at + CAPTURED < bytes; at += sizeof(uint64_t)) {
        uint64_t seed = word_at(params, at), offset = word_at(params, at + 8);
        uint64_t count = word_at(params, at + COUNT);
        if (!seed || !offset || seed == offset || (seed | offset) % GRAIN || count % 4 ||
            count > UINT32_MAX || params[at + CAPTURED] != 1 || rp_device_gives(device, seed) ||
            rp_device_gives(device, offset))
            continue;
        PyObject *pair =
            Py_BuildValue("(KK)", (unsigned long long)seed, (unsigned long long)offset);
        bool added = pair && PyList_Append(list, pair) == 0;
        Py_XDECREF(pair);
        if (!added)
            return false;
    }
    return true;
}

static bool add_words_of(PyObject *list, const struct rpp_device *device, void **nodes,
                         size_t count)
{
    unsigned char params[MOST_BYTES];
    bool added = true;
    for (size_t i = 0; added && i < count; i++) {
        size_t bytes = 0;
        struct rp_error err = {0};
        if (rp_node_params(device->device, nodes[i], params, sizeof params, &bytes, &err) == RP_OK)
            added = add_words(list, device->device, params,
                              bytes < sizeof params ? bytes : sizeof params);
    }
    return added;
}

PyObject *rpp_words_of(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    unsigned long long graph;
    size_t count = 0;
    const struct rpp_device *device = parse_device(args, &graph);
    if (!device)
        return NULL;
    void *handle = (void *)(uintptr_t)graph;
    device->graph_nodes(handle, NULL, &count);
    void **nodes = PyMem_Calloc(count + 1, sizeof *nodes);
    PyObject *list = PyList_New(0);
    if (!nodes)
        PyErr_NoMemory();
    else if (list && device->graph_nodes(handle, nodes, &count) == 0)
        add_words_of(list, device, nodes, count);
    PyMem_Free(nodes);
    if (PyErr_Occurred())
        Py_CLEAR(list);
    return list;
}
