/* SPDX-License-Identifier: MIT */
#include "alloc/regions.h"

#include "alloc/raise.h"

#include <stdlib.h>
#include <string.h>

bool rpp_regions_answer;

/* libstdc++'s std::string since GCC 5, as far as it is read. */
struct string {
    const char *data;
    size_t length;
};

enum { MOST_NESTED = 64 };

/* Names are as many as a program has regions, and stay. */
struct name {
    struct name *next;
    char text[];
};

static struct {
    pthread_mutex_t lock;
    struct name *names;
} regions = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Of this thread, the innermost last; those beyond the most are counted only. */
static _Thread_local struct {
    size_t depth;
    const char *names[MOST_NESTED];
    bool switches; /* it is in call_for_regions */
} thread;

static const char *keep(const struct string *text)
{
    pthread_mutex_lock(&regions.lock);
    struct name *name = regions.names;
    while (name && (strlen(name->text) != text->length ||
                    memcmp(name->text, text->data, text->length) != 0))
        name = name->next;
    if (!name && (name = malloc(sizeof *name + text->length + 1))) {
        memcpy(name->text, text->data, text->length);
        name->text[text->length] = '\0';
        name->next = regions.names;
        regions.names = name;
    }
    pthread_mutex_unlock(&regions.lock);
    return name ? name->text : NULL;
}

void rpp_region_push(void *allocator, void *text)
{
    (void)allocator;
    if (thread.depth < MOST_NESTED)
        thread.names[thread.depth] = keep(text);
    thread.depth++;
}

void rpp_region_pop(void *allocator)
{
    (void)allocator;
    if (thread.depth)
        thread.depth--;
}

const char *rpp_region_now(void)
{
    size_t depth = thread.depth < MOST_NESTED ? thread.depth : MOST_NESTED;
    return depth ? thread.names[depth - 1] : NULL;
}

void rpp_region_record(void)
{
    if (!thread.switches)
        rpp_raise_error("a memory history that C++ asks for needs PyTorch's own allocator, and "
                        "reprise.install() has put another in its place: ask for it in Python, by "
                        "torch.cuda.memory._record_memory_history");
}

PyObject *rpp_call_for_regions(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    PyObject *function, *arguments;
    if (!PyArg_ParseTuple(args, "OO!", &function, &PyTuple_Type, &arguments))
        return NULL;
    if (!rpp_regions_answer)
        return Py_NewRef(Py_False);
    thread.switches = true;
    PyObject *done = PyObject_CallObject(function, arguments);
    thread.switches = false;
    Py_XDECREF(done);
    return done ? Py_NewRef(Py_True) : NULL;
}
