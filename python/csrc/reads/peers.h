/* SPDX-License-Identifier: MIT
 *
 * Scopes that are alike: of objects of one type, whose dicts have the same names in the same order,
 * and which were looked up by the same names. What one of them is looked up by next, the others are:
 * it is found once for all modules of a class. Everything that the answer hangs on is compared each
 * time. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_PEERS_H
#define REPRISE_PYTHON_PEERS_H

#include "reads/scope.h"

#include <stddef.h>

struct rpp_peer;
struct rpp_peers {
    size_t count, oldest;
    struct rpp_peer *list;
};

/* In which turn of its walk a scope is looked at, and for what. */
struct rpp_peer_turn {
    long turn;
    bool present, missing;
};

/* The scope as it is before a look; owns nothing. */
struct rpp_peer_state {
    PyObject *own, *done;
    const PyObject *own_seen;
    Py_ssize_t listed, possible;
};

/* May it have such? Not classes, of which each has its own names, nor where values matter. */
bool rpp_has_peers(const struct rpp_scope *scope);
struct rpp_peer_state rpp_peer_state(const struct rpp_scope *scope);
/* The names that a peer of the scope was looked up by in this turn, a new reference to a tuple; the
 * scope is then as behind the look. NULL, without an exception: there is none. */
PyObject *rpp_peers_find(const struct rpp_peers *peers, struct rpp_scope *scope,
                         struct rpp_peer_turn turn);
/* Keeps what a scope was looked up by, whose dict is as it was then. False with an exception set. */
bool rpp_peers_keep(struct rpp_peers *peers, const struct rpp_scope *scope,
                    struct rpp_peer_turn turn, struct rpp_peer_state before, PyObject *names);
int rpp_peers_visit(const struct rpp_peers *peers, visitproc visit, void *arg);
void rpp_peers_clear(struct rpp_peers *peers);

#endif
