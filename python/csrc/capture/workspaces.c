/* SPDX-License-Identifier: MIT */
#include "capture/workspaces.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

/* libstdc++'s std::map<std::tuple<void *, void *>, c10::DataPtr>, in which PyTorch 2.9 to 2.11 keep them
 * (ATen/cuda/CUDAContextLight.h). libstdc++ stores a tuple's and a unique_ptr's last member first. */
struct link {
    int color;
    struct link *parent, *left, *right;
};

struct workspace {
    struct link link;
    const void *stream, *handle;
    void *data;
    void (*release)(void *context);
    void *context;
    uint64_t device;
};

struct workspaces {
    uint64_t compare; /* an object without members */
    struct link head; /* its parent is the root */
    size_t count;
    pthread_rwlock_t lock; /* from PyTorch 2.10 on */
};

_Static_assert(sizeof(struct workspace) == 80, "as libstdc++ lays it out");
_Static_assert(offsetof(struct workspaces, lock) == 48, "as libstdc++ lays it out");

enum { MOST_WORKSPACES = 1 << 20, MAPS = 2 };

static struct {
    /* PyTorch's own, from 2.12 on. */
    void (*drop_of_stream)(struct CUstream_st *stream);
    /* Of cuBLAS and of cuBLASLt; NULL: PyTorch keeps them otherwise. */
    struct workspaces *maps[MAPS];
    bool have_locks;
    struct link *(*next)(struct link *of);
    struct link *(*take_out)(struct link *which, struct link *head);
    void (*delete)(void *object);
} known;

/* Is this the map that is expected? The lock is held, where there is one. */
static bool is_sound(struct workspaces *map)
{
    struct link *head = &map->head, *at = head->left;
    if (map->count > MOST_WORKSPACES)
        return false;
    if (!map->count)
        return !head->parent && head->left == head && head->right == head;
    if (!head->parent || head->parent->parent != head)
        return false;
    for (size_t i = 0; i < map->count; i++, at = known.next(at)) {
        struct workspace *one = (struct workspace *)at;
        if (!at || at == head || !one->handle || one->data != one->context || !one->release)
            return false;
    }
    return at == head;
}

static void lock(struct workspaces *map, bool on)
{
    if (known.have_locks)
        on ? pthread_rwlock_wrlock(&map->lock) : pthread_rwlock_unlock(&map->lock);
}

/* Those of a stream, out of the map: linked by `right`. False, with the map as it was: it is none that
 * is known. */
static bool take_of(struct workspaces *map, const void *stream, struct link **taken)
{
    lock(map, true);
    bool is_known = is_sound(map);
    struct link *at = map->head.left;
    for (size_t left = is_known ? map->count : 0; left; left--) {
        struct link *here = at;
        at = known.next(at);
        if (((struct workspace *)here)->stream != stream)
            continue;
        here = known.take_out(here, &map->head);
        map->count--;
        here->right = *taken;
        *taken = here;
    }
    lock(map, false);
    return is_known;
}

/* Without the GIL: the allocator may want it. */
static bool drop_from_maps(const void *stream)
{
    struct link *taken = NULL;
    bool are_known = true;
    for (size_t i = 0; i < MAPS; i++)
        are_known = take_of(known.maps[i], stream, &taken) && are_known;
    while (taken) {
        struct workspace *one = (struct workspace *)taken;
        taken = one->link.right;
        one->release(one->context);
        known.delete(one);
    }
    return are_known;
}

/* A function of PyTorch or of libstdc++, by its mangled name; `into` is a pointer to a function. */
static bool find(void *library, const char *name, void *into)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found)
        found = dlsym(library, name);
    memcpy(into, &found, sizeof found);
    return found != NULL;
}

static bool learn_maps(void *library, bool have_locks)
{
    struct workspaces *(*of[MAPS])(void);
    known.have_locks = have_locks;
    if (!find(library, "_ZN2at4cuda33cublas_handle_stream_to_workspaceEv", &of[0]) ||
        !find(library, "_ZN2at4cuda35cublaslt_handle_stream_to_workspaceEv", &of[1]) ||
        !find(library, "_ZSt18_Rb_tree_incrementPSt18_Rb_tree_node_base", &known.next) ||
        !find(library, "_ZSt28_Rb_tree_rebalance_for_erasePSt18_Rb_tree_node_baseRS_",
              &known.take_out) ||
        !find(library, "_ZdlPv", &known.delete))
        return false;
    bool are_sound = true;
    for (size_t i = 0; i < MAPS; i++) {
        known.maps[i] = of[i]();
        lock(known.maps[i], true);
        are_sound = is_sound(known.maps[i]) && are_sound;
        lock(known.maps[i], false);
    }
    return are_sound;
}

PyObject *rpp_learn_workspaces(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    const char *path;
    int by_maps, have_locks;
    if (!PyArg_ParseTuple(args, "spp", &path, &by_maps, &have_locks))
        return NULL;
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        Py_RETURN_FALSE;
    if (!by_maps)
        return PyBool_FromLong(find(library,
                                    "_ZN2at4cuda30clearCublasWorkspacesForStreamEP11CUstream_st",
                                    &known.drop_of_stream));
    bool learned;
    Py_BEGIN_ALLOW_THREADS;
    learned = learn_maps(library, have_locks);
    Py_END_ALLOW_THREADS;
    if (!learned)
        memset(known.maps, 0, sizeof known.maps);
    return PyBool_FromLong(learned);
}

PyObject *rpp_drop_workspaces(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    unsigned long long handle;
    if (!PyArg_ParseTuple(args, "K", &handle))
        return NULL;
    struct CUstream_st *stream = (struct CUstream_st *)(uintptr_t)handle;
    bool dropped = false;
    Py_BEGIN_ALLOW_THREADS;
    if (known.drop_of_stream) {
        known.drop_of_stream(stream);
        dropped = true;
    } else if (known.maps[0]) {
        dropped = drop_from_maps(stream);
    }
    Py_END_ALLOW_THREADS;
    return PyBool_FromLong(dropped);
}
