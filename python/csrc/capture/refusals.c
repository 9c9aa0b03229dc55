/* SPDX-License-Identifier: MIT
 *
 * What the driver refuses in a capture, and how often it was asked for memory of the device,
 * whoever calls it. Libraries call libcuda on ways of their own; CUPTI, which PyTorch's profiler
 * brings along, tells of all calls. It has one subscriber at a time, so this is for a check only,
 * and gives way to a profiler.
 */
#include "capture/refusals.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Of cupti_callbacks.h, which keeps them as they are: */
enum { DOMAIN_DRIVER = 1, SITE_EXIT = 1 };
struct callback_data {
    int site;
    const char *function; /* "cuMemAlloc_v2" */
    const void *params;
    void *result; /* CUresult * at the exit */
};
typedef void callback(void *user, int domain, uint32_t id, const struct callback_data *data);

enum { FIRST_OF_CAPTURE = 900, LAST_OF_CAPTURE = 908 };

static struct {
    pthread_mutex_t lock; /* guards the rest but for the functions, which the GIL does */
    char function[64];    /* the first refused; "" */
    int code;
    uint64_t allocations; /* calls that may have taken memory of the device */
    int (*subscribe)(void **subscriber, callback *function, void *user);
    int (*unsubscribe)(void *subscriber);
    int (*enable_domain)(uint32_t enable, void *subscriber, int domain);
    void *subscriber; /* NULL: nobody watches */
} refusals = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What calls that take memory of the device begin with; modules, graphs and streams have some. */
static const char *const takers[] = {
    "cuMemAlloc",   "cuMemCreate",   "cuArrayCreate",      "cuArray3DCreate", "cuMipmappedArrayCr",
    "cuModuleLoad", "cuLibraryLoad", "cuGraphInstantiate", "cuStreamCreate",  "cuGraphExecUpdate"};

static bool takes_memory(const char *function)
{
    if (strncmp(function, "cuMemAllocHost", strlen("cuMemAllocHost")) == 0)
        return false;
    for (size_t i = 0; i < sizeof takers / sizeof takers[0]; i++)
        if (strncmp(function, takers[i], strlen(takers[i])) == 0)
            return true;
    return false;
}

/* On the thread that calls the driver, without the GIL. */
static void look(void *user, int domain, uint32_t id, const struct callback_data *data)
{
    (void)user, (void)id;
    if (domain != DOMAIN_DRIVER || data->site != SITE_EXIT || !data->result || !data->function)
        return;
    int code = *(const int *)data->result;
    if (code == 0 && takes_memory(data->function)) {
        pthread_mutex_lock(&refusals.lock);
        refusals.allocations++;
        pthread_mutex_unlock(&refusals.lock);
    }
    if (code < FIRST_OF_CAPTURE || code > LAST_OF_CAPTURE)
        return;
    pthread_mutex_lock(&refusals.lock);
    if (!refusals.function[0]) {
        snprintf(refusals.function, sizeof refusals.function, "%s", data->function);
        refusals.code = code;
    }
    pthread_mutex_unlock(&refusals.lock);
}

static bool find_functions(const char *path)
{
    void *cupti = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!cupti)
        return false;
    *(void **)&refusals.subscribe = dlsym(cupti, "cuptiSubscribe");
    *(void **)&refusals.unsubscribe = dlsym(cupti, "cuptiUnsubscribe");
    *(void **)&refusals.enable_domain = dlsym(cupti, "cuptiEnableDomain");
    dlclose(cupti); /* whoever loaded it keeps it */
    return refusals.subscribe && refusals.unsubscribe && refusals.enable_domain;
}

PyObject *rpp_watch_refusals(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    const char *path;
    if (!PyArg_ParseTuple(args, "s", &path))
        return NULL;
    if (refusals.subscriber || !find_functions(path))
        return Py_NewRef(Py_False);
    refusals.function[0] = '\0';
    refusals.allocations = 0;
    void *subscriber = NULL;
    if (refusals.subscribe(&subscriber, look, NULL) != 0 || !subscriber)
        return Py_NewRef(Py_False);
    if (refusals.enable_domain(1, subscriber, DOMAIN_DRIVER) != 0) {
        refusals.unsubscribe(subscriber);
        return Py_NewRef(Py_False);
    }
    refusals.subscriber = subscriber;
    return Py_NewRef(Py_True);
}

/* What is made for Python is made without the lock: it may let other threads run, which ask for it.
 */
PyObject *rpp_end_refusals(PyObject *module, PyObject *unused)
{
    rpp_assert_gil();
    (void)module, (void)unused;
    char function[sizeof refusals.function];
    if (refusals.subscriber)
        refusals.unsubscribe(refusals.subscriber);
    refusals.subscriber = NULL;
    pthread_mutex_lock(&refusals.lock);
    memcpy(function, refusals.function, sizeof function);
    int code = refusals.code;
    refusals.function[0] = '\0';
    pthread_mutex_unlock(&refusals.lock);
    return function[0] ? Py_BuildValue("(si)", function, code) : Py_NewRef(Py_None);
}

PyObject *rpp_driver_allocations(PyObject *module, PyObject *unused)
{
    rpp_assert_gil();
    (void)module, (void)unused;
    pthread_mutex_lock(&refusals.lock);
    uint64_t count = refusals.allocations;
    pthread_mutex_unlock(&refusals.lock);
    return PyLong_FromUnsignedLongLong(count);
}
