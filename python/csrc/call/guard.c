/* SPDX-License-Identifier: MIT */
#include "call/guard.h"

#include "base/gradient_address.h"
#include "reads/marks.h"
#include "reads/reads.h"

#include <assert.h>
#include <dlfcn.h>
#include <string.h>

/* The dict watchers of CPython 3.12 and later, which the stable interface does not have. */
enum { DICT_ADDED = 0, DICT_MODIFIED = 1, DICT_DELETED = 2 };
typedef int (*dict_callback)(int event, PyObject *dict, PyObject *key, PyObject *value);

static struct {
    PyObject *training, *next_id, *requires_grad; /* names */
    long registrations;
    unsigned long mode_changes;
    int watcher; /* -1: none */
    int (*watch)(int watcher, PyObject *dict);
} state = {.watcher = -1};

PyObject *rpp_count_registration(PyObject *module, PyObject *unused)
{
    rpp_assert_gil();
    (void)module, (void)unused;
    state.registrations++;
    return Py_NewRef(Py_None);
}

/* Dicts are watched to their end; what happens to one that no guard holds costs a look. */
static int on_dict_event(int event, PyObject *dict, PyObject *key, PyObject *value)
{
    (void)dict, (void)value;
    bool other = (event == DICT_ADDED || event == DICT_MODIFIED || event == DICT_DELETED) && key &&
                 key != state.training && PyUnicode_Check(key) &&
                 PyUnicode_CompareWithASCIIString(key, "training") != 0;
    state.mode_changes += !other;
    return 0;
}

int rpp_guard_prepare(void)
{
    int (*add)(dict_callback callback);
    void *found = dlsym(RTLD_DEFAULT, "PyDict_AddWatcher");
    void *watch = dlsym(RTLD_DEFAULT, "PyDict_Watch");
    state.training = PyUnicode_InternFromString("training");
    state.next_id = PyUnicode_InternFromString("next_id");
    state.requires_grad = PyUnicode_InternFromString("requires_grad");
    if (!state.training || !state.next_id || !state.requires_grad)
        return -1;
    if (!found || !watch)
        return 0;
    memcpy(&add, &found, sizeof found);
    memcpy(&state.watch, &watch, sizeof watch);
    state.watcher = add(on_dict_event);
    if (state.watcher < 0) /* all of the interpreter's few are taken */
        PyErr_Clear();
    return 0;
}

PyObject *rpp_watches_dicts(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(state.watcher >= 0);
}

/* ---- Modes --------------------------------------------------------------------------------- */

static PyObject *mode_of(const struct rpp_guard *guard, size_t i)
{
    assert(i < guard->dict_count);
    return PyDict_GetItem(PyTuple_GetItem(guard->dicts, (Py_ssize_t)i), state.training);
}

static void note_modes(struct rpp_guard *guard)
{
    rpp_assert_gil();
    guard->watches = state.watcher >= 0;
    for (size_t i = 0; i < guard->dict_count; i++) {
        PyObject *dict = PyTuple_GetItem(guard->dicts, (Py_ssize_t)i);
        if (guard->watches && state.watch(state.watcher, dict) != 0) {
            PyErr_Clear();
            guard->watches = false;
        }
        const uint64_t *at = rpp_instances_have_tags() ? rpp_dict_tag_at(dict) : NULL;
        guard->modes[i] = (struct rpp_mode){mode_of(guard, i), at, at ? *at : 0};
    }
    guard->mode_changes = state.mode_changes;
}

static bool modes_hold(struct rpp_guard *guard)
{
    if (guard->watches && guard->mode_changes == state.mode_changes)
        return true;
    for (size_t i = 0; i < guard->dict_count; i++) {
        struct rpp_mode *mode = &guard->modes[i];
        uint64_t tag = mode->at ? *mode->at : 0;
        if (mode->at && tag == mode->tag)
            continue;
        if (mode_of(guard, i) != mode->mode)
            return false;
        mode->tag = tag;
    }
    guard->mode_changes = state.mode_changes;
    return true;
}

/* ---- Places -------------------------------------------------------------------------------- */

static bool look(const struct rpp_guard *guard, size_t i, struct dl_tensor *out_tensor)
{
    assert(i < guard->tensor_count);
    PyObject *tensor = PyTuple_GetItem(guard->tensors, (Py_ssize_t)i);
    return guard->exchange->look(tensor, out_tensor) == 0;
}

/* The tensor's impl, its storage and where that lies: what leads from one to the next. */
static void note_path(struct rpp_guard *guard, size_t i, const void *tensor)
{
    struct rpp_path *path = &guard->paths[i];
    path->tensor = tensor;
    path->impl = rpp_tensor_impl(tensor);
    path->storage = ((const uint64_t *const *)path->impl)[rpp_tensor_layout.storage];
    path->form = rpp_impl_form(path->impl);
}

/* Notes where the tensors lie, in the quick way if that agrees with DLPack about all of them. */
static bool note_places(struct rpp_guard *guard)
{
    struct dl_tensor tensor;
    guard->asks_dlpack = !rpp_tensor_layout.known;
    for (size_t i = 0; !guard->asks_dlpack && i < guard->tensor_count; i++) {
        if (!look(guard, i, &tensor))
            return false;
        const void *here = PyTuple_GetItem(guard->tensors, (Py_ssize_t)i);
        guard->places[i] = rpp_tensor_place(here);
        note_path(guard, i, here);
        guard->asks_dlpack = !rpp_tensor_is_placed(here, &tensor);
    }
    for (size_t i = 0; guard->asks_dlpack && i < guard->tensor_count; i++) {
        if (!look(guard, i, &tensor))
            return false;
        guard->places[i] = (struct rpp_tensor_place){rpp_tensor_seen(&tensor), 0};
    }
    return true;
}

/* Do all lie where they did, on the same path? It is known, and so none of its loads waits for the
 * one before: the processor has many of them under way, where a chain of three would take three
 * times as long for each tensor. What is read is there: each step is looked at before the next. */
static bool paths_hold(const struct rpp_guard *guard)
{
    const struct rpp_tensor_layout at = rpp_tensor_layout;
    for (size_t i = 0; i < guard->tensor_count; i++) {
        const struct rpp_path *path = &guard->paths[i];
        if (path->tensor[at.impl] != (uintptr_t)path->impl || !path->storage ||
            path->impl[at.storage] != (uintptr_t)path->storage ||
            path->impl[at.offset] != guard->places[i].offset ||
            path->storage[at.data] != guard->places[i].data ||
            rpp_impl_form(path->impl) != path->form)
            return false;
    }
    return true;
}

static bool places_hold(const struct rpp_guard *guard)
{
    rpp_assert_gil();
    struct dl_tensor tensor;
    if (!guard->asks_dlpack && paths_hold(guard))
        return true;
    for (size_t i = 0; i < guard->tensor_count; i++) {
        struct rpp_tensor_place now = {0};
        if (!guard->asks_dlpack)
            now = rpp_tensor_place(PyTuple_GetItem(guard->tensors, (Py_ssize_t)i));
        else if (look(guard, i, &tensor))
            now.data = rpp_tensor_seen(&tensor);
        else
            return false;
        if (!rpp_tensor_same_place(now, guard->places[i]))
            return false;
        if (!guard->asks_dlpack &&
            rpp_tensor_form(PyTuple_GetItem(guard->tensors, (Py_ssize_t)i)) != guard->paths[i].form)
            return false;
    }
    return true;
}

/* ---- Wishes for gradients ------------------------------------------------------------------ */

static PyObject *wants_of(PyObject *params, Py_ssize_t i)
{
    PyObject *param = PyTuple_GetItem(params, i);
    enum rpp_wish wish = rpp_gradient_is_known(param) ? rpp_gradient_wish(param) : RPP_ASK_FOR_WISH;
    if (wish == RPP_ASK_FOR_WISH)
        return PyObject_GetAttr(param, state.requires_grad);
    return PyBool_FromLong(wish == RPP_WANTS_ONE);
}

/* A new tuple; NULL with an exception set. */
static PyObject *wants_now(PyObject *params)
{
    PyObject *wants = PyTuple_New(PyTuple_Size(params));
    for (Py_ssize_t i = 0; wants && i < PyTuple_Size(params); i++) {
        PyObject *one = wants_of(params, i);
        if (!one)
            Py_CLEAR(wants);
        else
            PyTuple_SetItem(wants, i, one);
    }
    return wants;
}

/* Asking may let others run, who set the guard anew. */
static bool wants_hold(const struct rpp_guard *guard)
{
    PyObject *params = Py_NewRef(guard->params), *wants = Py_NewRef(guard->wants);
    bool same = true;
    for (Py_ssize_t i = 0; same && i < PyTuple_Size(params); i++) {
        PyObject *one = wants_of(params, i);
        same = one == PyTuple_GetItem(wants, i);
        Py_XDECREF(one);
    }
    same = same && guard->wants == wants;
    Py_DECREF(params);
    Py_DECREF(wants);
    return same;
}

/* ---- Guards -------------------------------------------------------------------------------- */

/* What is freed may let others run, who set the guard anew: it is empty before. */
void rpp_guard_drop(struct rpp_guard *guard)
{
    rpp_assert_gil();
    struct rpp_guard old = *guard;
    *guard = (struct rpp_guard){0};
    Py_XDECREF(old.tensors);
    Py_XDECREF(old.dicts);
    Py_XDECREF(old.handles);
    Py_XDECREF(old.handle_count);
    Py_XDECREF(old.params);
    Py_XDECREF(old.wants);
    Py_XDECREF(old.reads);
    Py_XDECREF(old.members);
    Py_XDECREF(old.origins);
    rpp_switches_drop(&old.switches);
    PyMem_Free(old.places);
    PyMem_Free(old.paths);
    PyMem_Free(old.modes);
}

int rpp_guard_set(struct rpp_guard *guard, const struct dl_exchange *exchange, PyObject *tensors,
                  PyObject *dicts, PyObject *handles, PyObject *params, PyObject *reads,
                  PyObject *members, PyObject *origins)
{
    rpp_assert_gil();
    struct rpp_guard made = {.exchange = exchange,
                             .tensor_count = (size_t)PyTuple_Size(tensors),
                             .dict_count = (size_t)PyTuple_Size(dicts),
                             .registrations = state.registrations};
    made.places = PyMem_Calloc(made.tensor_count + 1, sizeof *made.places);
    made.paths = PyMem_Calloc(made.tensor_count + 1, sizeof *made.paths);
    made.modes = PyMem_Calloc(made.dict_count + 1, sizeof *made.modes);
    made.handle_count = PyObject_GetAttr(handles, state.next_id);
    made.tensors = Py_NewRef(tensors);
    made.dicts = Py_NewRef(dicts);
    made.handles = Py_NewRef(handles);
    made.params = Py_NewRef(params);
    made.wants = wants_now(params);
    made.reads = Py_XNewRef(reads);
    made.reads_epoch = reads ? rpp_reads_epoch(reads) : 0;
    made.members = Py_XNewRef(members);
    made.members_epoch = members ? rpp_reads_epoch(members) : 0;
    made.origins = Py_XNewRef(origins);
    made.origins_epoch = origins ? rpp_reads_epoch(origins) : 0;
    if (!made.places || !made.paths || !made.modes || !made.handle_count || !made.wants ||
        !note_places(&made) || rpp_switches_note(&made.switches) != 0) {
        rpp_guard_drop(&made);
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        return -1;
    }
    note_modes(&made);
    *guard = made;
    return 0;
}

/* Looking may let others run, who set the guard anew. */
static bool reads_hold(PyObject *const *noted, const uint64_t *epoch)
{
    PyObject *reads = Py_XNewRef(*noted);
    bool held =
        !reads || (rpp_reads_hold(reads) && *noted == reads && *epoch == rpp_reads_epoch(reads));
    Py_XDECREF(reads);
    return held;
}

/* Others' hooks and modules come and go: where the counts moved, are those of the guarded modules
 * what they were? The counts are taken ahead of the look. */
static bool members_hold(struct rpp_guard *guard)
{
    rpp_assert_gil();
    assert(guard->handles && guard->handle_count);
    long registrations = state.registrations;
    PyObject *handles = PyObject_GetAttr(guard->handles, state.next_id);
    bool same = handles && registrations == guard->registrations &&
                PyObject_RichCompareBool(handles, guard->handle_count, Py_EQ) == 1;
    PyObject *members = same ? NULL : Py_XNewRef(guard->members);
    if (members && handles && rpp_reads_hold(members) && guard->members == members &&
        guard->members_epoch == rpp_reads_epoch(members)) {
        PyObject *old = guard->handle_count;
        guard->handle_count = Py_NewRef(handles);
        guard->registrations = registrations;
        Py_DECREF(old);
        same = true;
    }
    Py_XDECREF(members);
    Py_XDECREF(handles);
    return same;
}

bool rpp_guard_holds(struct rpp_guard *guard)
{
    rpp_assert_gil();
    if (guard->tensors && members_hold(guard) && modes_hold(guard) && places_hold(guard) &&
        wants_hold(guard) && rpp_switches_hold(&guard->switches) &&
        reads_hold(&guard->reads, &guard->reads_epoch) &&
        reads_hold(&guard->origins, &guard->origins_epoch))
        return true;
    PyErr_Clear();
    return false;
}

void rpp_guard_accept_reads(struct rpp_guard *guard)
{
    rpp_assert_gil();
    guard->reads_epoch = guard->reads ? rpp_reads_epoch(guard->reads) : 0;
}

bool rpp_guard_renew(struct rpp_guard *guard, PyObject *handle_count, long registrations)
{
    rpp_assert_gil();
    if (!guard->tensors)
        return false;
    PyObject *old = guard->handle_count;
    guard->handle_count = Py_NewRef(handle_count);
    guard->registrations = registrations;
    guard->members_epoch = guard->members ? rpp_reads_epoch(guard->members) : 0;
    Py_DECREF(old);
    return rpp_guard_holds(guard);
}
