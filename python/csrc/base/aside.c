/* SPDX-License-Identifier: MIT */
#include "base/aside.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct work {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    PyObject *callable; /* the thread's */
    bool done;
    int users; /* the thread, and who waits: the last one frees it */
};

static void let_go(struct work *work) /* with `lock`, which it releases */
{
    bool last = --work->users == 0;
    pthread_mutex_unlock(&work->lock);
    if (!last)
        return;
    pthread_cond_destroy(&work->ended);
    pthread_mutex_destroy(&work->lock);
    free(work);
}

static void *thread_main(void *user)
{
    struct work *work = user;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *result = PyObject_CallNoArgs(work->callable);
    if (!result)
        PyErr_Clear();
    Py_XDECREF(result);
    Py_CLEAR(work->callable);
    PyGILState_Release(gil);
    pthread_mutex_lock(&work->lock);
    work->done = true;
    pthread_cond_signal(&work->ended);
    let_go(work);
    return NULL;
}

/* NULL: there is no memory for it. */
static struct work *make(PyObject *callable)
{
    struct work *work = calloc(1, sizeof *work);
    if (!work)
        return NULL;
    pthread_mutex_init(&work->lock, NULL);
    pthread_cond_init(&work->ended, NULL);
    work->callable = Py_NewRef(callable);
    work->users = 1;
    return work;
}

static bool wait(struct work *work, double seconds)
{
    assert(seconds >= 0);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    double whole = floor(seconds), nanoseconds = (seconds - whole) * 1e9 + (double)until.tv_nsec;
    until.tv_sec += (time_t)whole + (nanoseconds >= 1e9);
    until.tv_nsec = (long)(nanoseconds >= 1e9 ? nanoseconds - 1e9 : nanoseconds);
    pthread_mutex_lock(&work->lock);
    while (!work->done && pthread_cond_timedwait(&work->ended, &work->lock, &until) == 0) {
    }
    bool done = work->done;
    let_go(work);
    return done;
}

PyObject *rpp_run_aside(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    PyObject *callable;
    double seconds;
    if (!PyArg_ParseTuple(args, "Od", &callable, &seconds))
        return NULL;
    struct work *work = make(callable);
    if (!work)
        return PyErr_NoMemory();
    pthread_t thread;
    work->users = 2;
    if (pthread_create(&thread, NULL, thread_main, work) != 0) {
        Py_CLEAR(work->callable);
        work->users = 1;
        pthread_mutex_lock(&work->lock);
        let_go(work);
        Py_RETURN_FALSE;
    }
    pthread_detach(thread);
    bool done;
    Py_BEGIN_ALLOW_THREADS done = wait(work, seconds);
    Py_END_ALLOW_THREADS return PyBool_FromLong(done);
}
