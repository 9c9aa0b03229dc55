/* SPDX-License-Identifier: MIT */
#include "reads/context.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

/* Which words of a thread's state may have its context: behind what differs most from version to
 * version, and within the shortest state (280 bytes, of CPython 3.10). */
enum { FIRST_WORD = 16, END_WORD = 35 };
enum { HEAD_WORDS = 2, MOST_WORDS = 16 };

static struct {
    size_t context_at;  /* the word of a thread's state; 0: it was not proved */
    size_t tree_at;     /* the word of a context */
    size_t referent_at; /* the word of a weak reference, which asking for it would look at too */
} state;

static const uint64_t *words_of(const void *object)
{
    return object;
}

bool rpp_contexts_are_known(void)
{
    rpp_assert_gil();
    return state.context_at != 0;
}

/* The tree with all values, borrowed; NULL: the thread has no context yet. */
static PyObject *tree_now(void)
{
    const void *context = (const void *)words_of(PyThreadState_Get())[state.context_at];
    return context ? (PyObject *)words_of(context)[state.tree_at] : NULL;
}

bool rpp_context_holds(const struct rpp_context_seen *seen)
{
    assert(rpp_contexts_are_known());
    PyObject *tree = tree_now();
    if (!tree)
        return seen->is_empty;
    return seen->reference && words_of(seen->reference)[state.referent_at] == (uintptr_t)tree;
}

void rpp_context_see(struct rpp_context_seen *seen)
{
    assert(rpp_contexts_are_known());
    PyObject *tree = tree_now();
    rpp_context_forget(seen);
    seen->is_empty = !tree;
    seen->reference = tree ? PyWeakref_NewRef(tree, NULL) : NULL;
    PyErr_Clear();
}

void rpp_context_forget(struct rpp_context_seen *seen)
{
    Py_CLEAR(seen->reference);
    seen->is_empty = false;
}

/* ---- The proof ----------------------------------------------------------------------------- */

/* Of CPython, beside the stable interface. */
struct calls {
    PyObject *(*copy)(void);
    int (*enter)(PyObject *context), (*leave)(PyObject *context);
    PyObject *(*make)(const char *name, PyObject *value);
    PyObject *(*set)(PyObject *variable, PyObject *value);
};

static bool find_calls(struct calls *out)
{
    void *found[] = {dlsym(RTLD_DEFAULT, "PyContext_CopyCurrent"),
                     dlsym(RTLD_DEFAULT, "PyContext_Enter"), dlsym(RTLD_DEFAULT, "PyContext_Exit"),
                     dlsym(RTLD_DEFAULT, "PyContextVar_New"),
                     dlsym(RTLD_DEFAULT, "PyContextVar_Set")};
    _Static_assert(sizeof found == sizeof *out, "one each");
    memcpy(out, found, sizeof found);
    return out->copy && out->enter && out->leave && out->make && out->set;
}

/* The only word from `first` to `end` that has a value, or, with earlier ones, that has another one; 0: none has, or
 * several have. */
static size_t only_word(const uint64_t *words, size_t first, size_t end, uint64_t value,
                        const uint64_t *earlier)
{
    size_t found = 0, count = 0;
    for (size_t at = first; at < end; at++)
        if (earlier ? words[at] != earlier[at] : words[at] == value) {
            found = at;
            count++;
        }
    return count == 1 ? found : 0;
}

static size_t words_in(PyObject *object)
{
    PyObject *bytes = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__basicsize__");
    size_t count = bytes ? PyLong_AsSize_t(bytes) / sizeof(uint64_t) : 0;
    Py_XDECREF(bytes);
    PyErr_Clear();
    return count;
}

static bool sets(const struct calls *calls, PyObject *variable, PyObject *value)
{
    PyObject *token = calls->set(variable, value);
    Py_XDECREF(token);
    return token != NULL;
}

/* Which word of a weak reference leads to what it is of, for as long as that is there. 0: that is not so. */
static size_t find_referent(PyObject *object)
{
    PyObject *reference = PyWeakref_NewRef(object, NULL);
    size_t at = reference ? only_word(words_of(reference), HEAD_WORDS, words_in(reference),
                                      (uintptr_t)object, NULL)
                          : 0;
    Py_XDECREF(reference);
    PyObject *made = PySet_New(NULL);
    reference = made ? PyWeakref_NewRef(made, NULL) : NULL;
    bool is_right = at && reference && words_of(reference)[at] == (uintptr_t)made;
    Py_XDECREF(made);
    is_right = is_right && words_of(reference)[at] == (uintptr_t)Py_None;
    Py_XDECREF(reference);
    return is_right ? at : 0;
}

/* Which word of a context, the thread's own, another value of a variable changes: the tree's, of a type of that name
 * to which weak references lead. 0: that is not so. */
static size_t find_tree(const struct calls *calls, PyObject *context)
{
    uint64_t earlier[MOST_WORDS];
    size_t count = words_in(context), at = 0;
    PyObject *variable = calls->make("reprise", NULL);
    if (variable && count <= MOST_WORDS && sets(calls, variable, Py_True)) {
        memcpy(earlier, context, count * sizeof *earlier);
        if (sets(calls, variable, Py_None))
            at = only_word(words_of(context), HEAD_WORDS, count, 0, earlier);
    }
    PyObject *tree = at ? (PyObject *)words_of(context)[at] : NULL;
    PyObject *name = tree ? PyObject_GetAttrString((PyObject *)Py_TYPE(tree), "__name__") : NULL;
    bool is_tree = name && PyUnicode_CompareWithASCIIString(name, "hamt") == 0;
    state.referent_at = is_tree ? find_referent(tree) : 0;
    Py_XDECREF(name);
    Py_XDECREF(variable);
    return state.referent_at ? at : 0;
}

void rpp_contexts_prepare(void)
{
    rpp_assert_gil();
    struct calls calls;
    if (!find_calls(&calls))
        return;
    PyObject *context = calls.copy();
    const uint64_t *thread = words_of(PyThreadState_Get());
    size_t at = 0;
    if (context && calls.enter(context) == 0) {
        at = only_word(thread, FIRST_WORD, END_WORD, (uintptr_t)context, NULL);
        state.tree_at = at ? find_tree(&calls, context) : 0;
        bool is_left = calls.leave(context) == 0;
        if (state.tree_at && is_left && thread[at] != (uintptr_t)context)
            state.context_at = at;
    }
    Py_XDECREF(context);
    PyErr_Clear();
}
