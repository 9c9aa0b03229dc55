/* SPDX-License-Identifier: MIT
 *
 * What captured graphs rely on outside their arguments, as it was when the guard was set: where
 * parameters and buffers lie, whether modules train, which parameters want gradients, which
 * modules, parameters and hooks there are. Looked at in every call, so:
 *
 *     registrations   a count that PyTorch's own registration hooks move, and that of handles of
 *                     hooks. Where they moved the members are looked at: all programs move them
 *     modes           a count that the interpreter moves when "training" changes in the dict of a
 *                     module, where it lets dicts be watched (CPython 3.12); the tag of each dict
 *                     before, and a look-up where that moved, or after each such event
 *     places          four loads a tensor (tensor_address.h), or DLPack's look
 *     wants           three loads a parameter, where gradients are enabled (gradient_address.h), or
 *                     an attribute
 *     reads           Python values that the callable reads beside its arguments (reads.h)
 *     origins         versions of tensors whose values the callable reads on the host
 *     switches        PyTorch's, which all operators go by (switches.h)
 *
 * Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_GUARD_H
#define REPRISE_PYTHON_GUARD_H

#include "base/dlpack.h"
#include "base/python.h"
#include "base/tensor_address.h"
#include "reads/switches.h"

struct rpp_guard {
    const struct dl_exchange *exchange;
    size_t tensor_count, dict_count;
    PyObject *tensors, *dicts; /* tuples; NULL: the guard holds nothing and never holds */
    struct rpp_tensor_place *places;
    struct rpp_path { /* from a tensor to its data */
        const uint64_t *tensor, *impl, *storage;
        uint64_t form; /* sizes and strides, as rpp_impl_form has them */
    } * paths;
    struct rpp_mode {
        PyObject *mode;     /* borrowed: True or False */
        const uint64_t *at; /* the dict's tag; NULL: it has none */
        uint64_t tag;
    } * modes;
    PyObject *handles, *handle_count;
    long registrations;
    unsigned long mode_changes;
    PyObject *params, *wants; /* tuples: of some tensors their requires_grad */
    PyObject *reads;          /* a Reads; NULL: nothing is known to be read */
    PyObject *members;        /* a Reads of modules' members and hooks; NULL: nobody knows them */
    PyObject *origins;        /* a Reads of what answers on the host come from; NULL: of nothing */
    uint64_t reads_epoch, members_epoch, origins_epoch;
    struct rpp_switches switches;
    bool asks_dlpack; /* places are what it says, offset 0 */
    bool watches;     /* all dicts */
};

/* tensors: torch.Tensor objects; dicts: modules' __dict__; handles: torch's RemovableHandle;
 * params: a tuple of those whose requires_grad is to stay; reads, members, origins: a Reads each, or
 * NULL.
 * The guard is zeroed or dropped before. -1 with an exception set, and the guard as it was. */
int rpp_guard_set(struct rpp_guard *guard, const struct dl_exchange *exchange, PyObject *tensors,
                  PyObject *dicts, PyObject *handles, PyObject *params, PyObject *reads,
                  PyObject *members, PyObject *origins);
void rpp_guard_drop(struct rpp_guard *guard);

/* Is all as it was? No exception is set. */
bool rpp_guard_holds(struct rpp_guard *guard);

/* The caller has looked at what is read: other objects have the values that it had when the guard
 * was set. */
void rpp_guard_accept_reads(struct rpp_guard *guard);

/* Where hooks or members were registered since: the caller has looked, and none is of what is
 * guarded. handle_count and registrations are from before that look. Does the guard hold now? No
 * exception is set. */
bool rpp_guard_renew(struct rpp_guard *guard, PyObject *handle_count, long registrations);

/* Interns names, and asks the interpreter for a dict watcher. */
int rpp_guard_prepare(void);

/* Something was registered in a module: the guards of all Hot objects hold no more. */
PyObject *rpp_count_registration(PyObject *module, PyObject *unused);
PyObject *rpp_watches_dicts(PyObject *module, PyObject *unused);

#endif
