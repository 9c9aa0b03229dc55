/* SPDX-License-Identifier: MIT */
#include "reads/peers.h"

enum { MOST_PEERS = 128 };

/* The latest look of those of one type with the same names. */
struct rpp_peer {
    PyObject *type, *own, *skips;
    PyObject *keys, *names, *done_before, *done; /* keys: of their dicts, a tuple */
    struct rpp_peer_turn turn;
    const PyObject *own_seen_before, *own_seen;
    Py_ssize_t listed_before, listed, possible_before, possible;
    bool inherits;
};

bool rpp_has_peers(const struct rpp_scope *scope)
{
    return scope->names != Py_None && !scope->shallow && !PyType_Check(scope->object);
}

struct rpp_peer_state rpp_peer_state(const struct rpp_scope *scope)
{
    return (struct rpp_peer_state){.own = scope->own,
                                   .done = scope->done,
                                   .own_seen = scope->own_seen,
                                   .listed = scope->listed,
                                   .possible = scope->possible};
}

static bool are_keys(PyObject *keys, PyObject *names)
{
    PyObject *key;
    Py_ssize_t at = 0, count = PyTuple_Size(keys);
    if (PyDict_Size(names) != count)
        return false;
    for (Py_ssize_t i = 0; PyDict_Next(names, &at, &key, NULL); i++)
        if (i == count || PyTuple_GetItem(keys, i) != key)
            return false;
    return true;
}

/* Of one type, with the same names; NULL: there is none. */
static struct rpp_peer *peer_of(const struct rpp_peers *peers, const struct rpp_scope *scope)
{
    for (size_t i = 0; i < peers->count; i++) {
        struct rpp_peer *peer = &peers->list[i];
        if (peer->type == (PyObject *)Py_TYPE(scope->object) && peer->own == scope->own &&
            peer->skips == scope->skips && peer->inherits == (scope->inherits != 0) &&
            are_keys(peer->keys, scope->names))
            return peer;
    }
    return NULL;
}

/* Was it looked up by the same names until then? */
static bool is_alike(const struct rpp_peer *peer, const struct rpp_scope *scope,
                     struct rpp_peer_turn turn)
{
    return peer->turn.turn == turn.turn && peer->turn.present == turn.present &&
           peer->turn.missing == turn.missing && peer->done_before == scope->done &&
           peer->own_seen_before == scope->own_seen && peer->listed_before == scope->listed &&
           peer->possible_before == scope->possible;
}

PyObject *rpp_peers_find(const struct rpp_peers *peers, struct rpp_scope *scope,
                         struct rpp_peer_turn turn)
{
    rpp_assert_gil();
    const struct rpp_peer *peer = peer_of(peers, scope);
    if (!peer || !is_alike(peer, scope, turn))
        return NULL;
    PyObject *gone = scope->done;
    scope->done = Py_NewRef(peer->done);
    scope->done_is_shared = true;
    scope->own_seen = peer->own_seen;
    scope->listed = peer->listed;
    scope->possible = peer->possible;
    Py_DECREF(gone);
    return Py_NewRef(peer->names);
}

static void release(const struct rpp_peer *peer)
{
    Py_XDECREF(peer->type);
    Py_XDECREF(peer->own);
    Py_XDECREF(peer->skips);
    Py_XDECREF(peer->keys);
    Py_XDECREF(peer->names);
    Py_XDECREF(peer->done_before);
    Py_XDECREF(peer->done);
}

/* A place for one more, where another one may have been; NULL with an exception set. */
static struct rpp_peer *place_for_one(struct rpp_peers *peers)
{
    if (!peers->list && !(peers->list = PyMem_Calloc(MOST_PEERS, sizeof *peers->list))) {
        PyErr_NoMemory();
        return NULL;
    }
    if (peers->count < MOST_PEERS)
        return &peers->list[peers->count++];
    peers->oldest = (peers->oldest + 1) % MOST_PEERS;
    return &peers->list[peers->oldest];
}

bool rpp_peers_keep(struct rpp_peers *peers, const struct rpp_scope *scope,
                    struct rpp_peer_turn turn, struct rpp_peer_state before, PyObject *names)
{
    rpp_assert_gil();
    PyObject *keys = PySequence_Tuple(scope->names);
    struct rpp_peer *place = keys ? peer_of(peers, scope) : NULL;
    if (keys && !place)
        place = place_for_one(peers);
    if (!place) {
        Py_XDECREF(keys);
        return false;
    }
    struct rpp_peer gone = *place;
    *place = (struct rpp_peer){.type = Py_NewRef((PyObject *)Py_TYPE(scope->object)),
                               .own = Py_NewRef(scope->own),
                               .skips = Py_NewRef(scope->skips),
                               .keys = keys,
                               .names = Py_NewRef(names),
                               .done_before = Py_NewRef(before.done),
                               .done = Py_NewRef(scope->done),
                               .turn = turn,
                               .own_seen_before = before.own_seen,
                               .own_seen = scope->own_seen,
                               .listed_before = before.listed,
                               .listed = scope->listed,
                               .possible_before = before.possible,
                               .possible = scope->possible,
                               .inherits = scope->inherits != 0};
    release(&gone);
    return true;
}

int rpp_peers_visit(const struct rpp_peers *peers, visitproc visit, void *arg)
{
    for (size_t i = 0; i < peers->count; i++) {
        const struct rpp_peer *peer = &peers->list[i];
        Py_VISIT(peer->type);
        Py_VISIT(peer->own);
        Py_VISIT(peer->skips);
        Py_VISIT(peer->keys);
        Py_VISIT(peer->names);
        Py_VISIT(peer->done_before);
        Py_VISIT(peer->done);
    }
    return 0;
}

void rpp_peers_clear(struct rpp_peers *peers)
{
    struct rpp_peers gone = *peers;
    *peers = (struct rpp_peers){0};
    for (size_t i = 0; i < gone.count; i++)
        release(&gone.list[i]);
    PyMem_Free(gone.list);
}
