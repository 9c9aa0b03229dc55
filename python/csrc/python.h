/* SPDX-License-Identifier: MIT
 *
 * Python's stable interface, and what the files of the extension share of it.
 */
#ifndef REPRISE_PYTHON_PYTHON_H
#define REPRISE_PYTHON_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "state.h"

/* reprise.Error, made by the module. */
extern PyObject *rpp_error_type;

/* Raises reprise.Error with the status, the driver's code and the operation as attributes; returns
 * NULL. */
PyObject *rpp_set_error(rp_status status, const struct rp_error *err);

/* The device whose ordinal is the only argument, opened; NULL with an exception set. */
struct rp_device *rpp_parse_device(PyObject *args);

/* A pool: struct rp_pool, and the pool it lies in. */
struct rpp_pool {
    PyObject_HEAD struct rp_pool *pool;
    PyObject *parent; /* or NULL */
    int ordinal;
};

/* A generator that a graph draws from: two values of each replay are its seed and its offset. */
struct rpp_draw {
    PyObject *generator;
    uint64_t increment; /* by which a replay moves its offset on */
};

struct rpp_draws {
    struct rpp_draw *list;
    uint64_t *values; /* of the replay under way: seed and offset of each */
    size_t count;
};

/* Reads what the next replay draws from; false with an exception set. */
bool rpp_draws_read(const struct rpp_draws *draws);
/* Behind a replay: moves the generators on. False with an exception set. */
bool rpp_draws_advance(const struct rpp_draws *draws);
/* A tuple of (generator, increment); false with an exception set. */
bool rpp_draws_set(struct rpp_draws *draws, PyObject *pairs);
void rpp_draws_finish(struct rpp_draws *draws);
/* probe_words(ordinal, stream, marker), call_value(address), call_take_over(), call_begun() and
 * call_ended(graph, nodes) (draws.c, capture.c) */
PyObject *rpp_probe_words(PyObject *module, PyObject *args);
PyObject *rpp_last_node(PyObject *module, PyObject *args);
PyObject *rpp_words_of(PyObject *module, PyObject *args);
PyObject *rpp_call_value(PyObject *module, PyObject *args);
PyObject *rpp_call_take_over(PyObject *module, PyObject *unused);
PyObject *rpp_call_begun(PyObject *module, PyObject *unused);
PyObject *rpp_call_ended(PyObject *module, PyObject *args);

/* A captured graph, and the pool it lies in. */
struct rpp_graph {
    PyObject_HEAD struct rp_graph *graph;
    PyObject *pool;
    size_t arg_count;
    struct rp_arg *args; /* sizes and roles of the capture; addresses of the last replay */
    bool lends;          /* tensors of PyTorch's lie in memory that goes with the graph */
    struct rpp_draws draws;
};

extern PyTypeObject *rpp_pool_type, *rpp_graph_type;
/* Makes both types and adds them to the module; -1 with an exception set. */
int rpp_add_pool_type(PyObject *module);
int rpp_add_graph_type(PyObject *module);
/* Adds Hot, miss and eager. */
int rpp_add_hot_type(PyObject *module);

/* Eager or graph, for the calls of one shape (choice.c). */
extern PyTypeObject *rpp_choice_type;
/* Adds Judge and Choice. */
int rpp_add_choice_types(PyObject *module);
/* As rp_choice_begin and _end, of a Choice. */
void rpp_choice_begin(PyObject *choice, void *stream, double ahead_us, struct rp_turn *out_turn);
void rpp_choice_end(PyObject *choice, const struct rp_turn *turn, bool worked);
/* Something was registered in a module: the guards of all Hot objects hold no more. */
PyObject *rpp_count_registration(PyObject *module, PyObject *unused);
PyObject *rpp_watches_dicts(PyObject *module, PyObject *unused);
/* How tensor_address.h learns. */
PyObject *rpp_see_tensor(PyObject *module, PyObject *args);
PyObject *rpp_settle_layout(PyObject *module, PyObject *unused);
/* How gradient_address.h does. */
PyObject *rpp_see_gradient(PyObject *module, PyObject *args);
PyObject *rpp_settle_gradients(PyObject *module, PyObject *unused);

/* The word that _marks.py proves to change with a dict (marks.c). */
PyObject *rpp_dict_tag_of(PyObject *module, PyObject *dict);
/* Where a function has its code and defaults (reads.c). */
PyObject *rpp_learn_function(PyObject *module, PyObject *args);
/* How switches.h learns. */
PyObject *rpp_learn_context(PyObject *module, PyObject *args);
PyObject *rpp_learn_switch(PyObject *module, PyObject *args);
PyObject *rpp_forget_switch(PyObject *module, PyObject *unused);
PyObject *rpp_learn_order(PyObject *module, PyObject *order);
PyObject *rpp_ask_switches(PyObject *module, PyObject *functions);

/* Destroys the graphs that were dropped while tensors were alive in their memory, and that are not
 * any more; returns how many are left. With the GIL. */
size_t rpp_sweep_graphs(void);

/* Estimate.add of estimate.c: (pool, callable, args, results, name) */
PyObject *rpp_estimate_add(struct rp_estimate *estimate, PyObject *args);
/* Adds Estimate. */
int rpp_add_estimate_type(PyObject *module);

/* exec_budget(ordinal, bytes), exec_info(ordinal) and restore_pace(ordinal) */
PyObject *rpp_restore_pace(PyObject *module, PyObject *args);
PyObject *rpp_exec_budget(PyObject *module, PyObject *args);
PyObject *rpp_exec_info(PyObject *module, PyObject *args);

/* Of graphs that PyTorch captures itself: bind_pool(id, id, pool), draw_lease(ordinal, id, id,
 * path) and leases(). */
PyObject *rpp_bind_pool(PyObject *module, PyObject *args);
PyObject *rpp_draw_lease(PyObject *module, PyObject *args);
PyObject *rpp_leases(PyObject *module, PyObject *unused);

/* watch_refusals(path of a loaded CUPTI) and end_refusals() (refusals.c) */
PyObject *rpp_watch_refusals(PyObject *module, PyObject *args);
PyObject *rpp_end_refusals(PyObject *module, PyObject *unused);

/* capture(pool, callable, args, results or places, name, copy_args[, verify, stream]) */
PyObject *rpp_capture(PyObject *module, PyObject *args);
/* call_result(bytes, block) */
PyObject *rpp_call_result(PyObject *module, PyObject *args);
PyObject *rpp_clean_stack(PyObject *module, PyObject *unused);

#endif
