/* SPDX-License-Identifier: MIT
 *
 * The fast path of a call: from the arguments' tuple to the launch without Python in between. It
 * takes calls of plain tensors and values (inputs.h) in a shape that was added, while nothing
 * changed of what the shapes were captured under; for all others it returns `miss`, and Python
 * decides.
 *
 *     shape   how its inputs look, on which device, its graph, how to make its results (shape.h);
 *             which gradients it is for, and which it leaves (gradients.h)
 *     guard   parameters, modules and hooks as they were when the shapes were added (guard.h)
 *     modes   gradients, inference mode; never under autocast
 *
 * Everything is guarded by the GIL; only PyTorch's allocation of results, and the gradients that
 * parameters have, may let other threads run in the midst of a call.
 */
#include "call/fast_call.h"
#include "call/builder.h"
#include "call/choice.h"
#include "call/guard.h"
#include "call/shape.h"
#include "capture/graph.h"
#include "reads/reads.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct fast_call {
    PyObject_HEAD const struct dl_exchange *exchange;
    struct rpp_tensor_types types;
    struct rpp_maker maker;
    PyObject *grad_enabled, *inference, *autocast, *current_device, *transforms;
    PyObject
        *hooks_of_saved; /* of (False): None where no hooks take what autograd saves; or NULL */
    PyObject *requires_grad, *is_neg; /* names */
    bool is_grad, is_inference;
    /* What the callable's code asks of its arguments: whether they want gradients, where none are
     * computed too; attributes that the program gave them; and what are_like looks at, or NULL. */
    bool asks_wishes, asks_attributes;
    PyObject *are_like;
    /* The tensors that the callable reads beside its arguments, by their addresses, sorted. They are
     * alive while the guard holds. */
    uintptr_t *own;
    size_t own_count;
    struct rpp_guard guard;
    struct rpp_shape_table shapes;
    struct rpp_object_table objects; /* looked through under the guard */
    PyObject *held; /* what is let go of behind the next call that it takes, or NULL */
};

static PyObject *miss, *eager;

/* ---- Guard --------------------------------------------------------------------------------- */

static void drop_own(struct fast_call *fast)
{
    PyMem_Free(fast->own);
    fast->own = NULL;
    fast->own_count = 0;
}

static void drop_all(struct fast_call *fast)
{
    rpp_assert_gil();
    drop_own(fast);
    rpp_shapes_clear(&fast->shapes);
    rpp_objects_clear(&fast->objects);
    rpp_guard_drop(&fast->guard);
    Py_CLEAR(fast->are_like);
}

static PyObject *fast_call_clear(PyObject *self, PyObject *unused)
{
    (void)unused;
    drop_all((struct fast_call *)self);
    Py_CLEAR(((struct fast_call *)self)->held);
    return Py_NewRef(Py_None);
}

/* hold(object): lets go of it behind the next call that it takes, and now of what it had. */
static PyObject *fast_call_hold(PyObject *self, PyObject *object)
{
    struct fast_call *fast = (struct fast_call *)self;
    PyObject *before = fast->held;
    fast->held = object == Py_None ? NULL : Py_NewRef(object);
    Py_XDECREF(before);
    return Py_NewRef(Py_None);
}

/* Does the function, of a mode, say so? One that raises says neither. */
static bool says(PyObject *function, bool expected)
{
    assert(!PyErr_Occurred());
    PyObject *value = PyObject_CallObject(function, NULL);
    bool does = value == (expected ? Py_True : Py_False);
    Py_XDECREF(value);
    if (!value)
        PyErr_Clear();
    return does;
}

/* Is an argument a plain tensor, and does it want a gradient? Its dispatch keys tell most of it, and
 * are part of the signature where they are known. */
static bool is_plain(const struct fast_call *fast, PyObject *tensor, bool *out_wants)
{
    PyObject *negated =
        rpp_tensor_layout.known ? NULL : PyObject_CallMethodObjArgs(tensor, fast->is_neg, NULL);
    bool asks = fast->is_grad || fast->asks_wishes;
    PyObject *wants = asks ? PyObject_GetAttr(tensor, fast->requires_grad) : NULL;
    bool plain = (rpp_tensor_layout.known || negated == Py_False) && (!asks || wants);
    *out_wants = wants == Py_True;
    Py_XDECREF(negated);
    Py_XDECREF(wants);
    if (!plain)
        PyErr_Clear();
    return plain;
}

/* Does a tensor on the CPU want no gradient? Others are refused, with gradients on and off. */
static bool wants_none(const struct fast_call *fast, PyObject *tensor)
{
    PyObject *wants = PyObject_GetAttr(tensor, fast->requires_grad);
    bool none = wants == Py_False;
    Py_XDECREF(wants);
    if (!wants)
        PyErr_Clear();
    return none;
}

/* The object, where it is among those that the callable reads; else 0. */
static uintptr_t own_one(const struct fast_call *fast, const PyObject *tensor)
{
    size_t first = 0, end = fast->own_count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (fast->own[middle] == (uintptr_t)tensor)
            return fast->own[middle];
        if (fast->own[middle] < (uintptr_t)tensor)
            first = middle + 1;
        else
            end = middle;
    }
    return 0;
}

static void find_own(const struct fast_call *fast, struct rpp_inputs *inputs)
{
    for (size_t i = 0; i < inputs->tensor_count; i++)
        inputs->own[i] = own_one(fast, inputs->objects[i]);
    for (size_t i = 0; i < inputs->cpu_count; i++)
        inputs->cpu_own[i] = own_one(fast, inputs->on_cpu[i]);
}

/* Fills in which tensors want gradients, and which the callable reads besides; false where one is for
 * Python to look at. */
static bool are_plain(const struct fast_call *fast, struct rpp_inputs *inputs)
{
    find_own(fast, inputs);
    for (size_t i = 0; i < inputs->tensor_count; i++)
        if (!is_plain(fast, inputs->objects[i], &inputs->wants[i]))
            return false;
    for (size_t i = 0; i < inputs->cpu_count; i++)
        if (!wants_none(fast, inputs->on_cpu[i]))
            return false;
    return true;
}

static bool has_attributes(PyObject *tensor)
{
    PyObject *given = PyObject_GenericGetDict(tensor, NULL);
    bool has = !given || PyDict_Size(given) != 0;
    Py_XDECREF(given);
    PyErr_Clear();
    return has;
}

static bool have_attributes(PyObject *const *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (has_attributes(tensors[i]))
            return true;
    return false;
}

/* A tuple of all tensors, those on the CPU behind the others; NULL with an exception set. */
static PyObject *all_tensors(const struct rpp_inputs *inputs)
{
    size_t count = inputs->tensor_count, all = count + inputs->cpu_count;
    PyObject *tensors = PyTuple_New((Py_ssize_t)all);
    for (size_t i = 0; tensors && i < all; i++)
        PyTuple_SetItem(tensors, (Py_ssize_t)i,
                        Py_NewRef(i < count ? inputs->objects[i] : inputs->on_cpu[i - count]));
    return tensors;
}

/* Do the tensors answer what the callable's code asks of them as those of a capture do? */
static bool answer_alike(const struct fast_call *fast, const struct rpp_inputs *inputs)
{
    if (fast->asks_attributes && (have_attributes(inputs->objects, inputs->tensor_count) ||
                                  have_attributes(inputs->on_cpu, inputs->cpu_count)))
        return false;
    if (!fast->are_like)
        return true;
    PyObject *tensors = all_tensors(inputs);
    PyObject *are_like = Py_NewRef(fast->are_like); /* the call may let others set the guard anew */
    PyObject *said = tensors ? PyObject_CallFunctionObjArgs(are_like, tensors, NULL) : NULL;
    bool alike = said == Py_True;
    Py_XDECREF(said);
    Py_DECREF(are_like);
    Py_XDECREF(tensors);
    PyErr_Clear();
    return alike;
}

/* Does autograd save by itself, where it saves anything? */
static bool saves_plainly(const struct fast_call *fast)
{
    if (!fast->is_grad || !fast->hooks_of_saved)
        return true;
    PyObject *hooks = PyObject_CallFunctionObjArgs(fast->hooks_of_saved, Py_False, NULL);
    bool plainly = hooks == Py_None;
    Py_XDECREF(hooks);
    PyErr_Clear();
    return plainly;
}

/* Within torch.func's transformations calls with arguments on the CPU are refused. */
static bool is_refused(const struct fast_call *fast, const struct rpp_inputs *inputs)
{
    return inputs->cpu_count && fast->transforms && !says(fast->transforms, false);
}

static bool modes_fit(const struct fast_call *fast, struct rpp_inputs *inputs)
{
    return says(fast->grad_enabled, fast->is_grad) && says(fast->inference, fast->is_inference) &&
           says(fast->autocast, false) && !is_refused(fast, inputs) && saves_plainly(fast) &&
           are_plain(fast, inputs) && answer_alike(fast, inputs);
}

static bool is_reads_or_none(PyObject *object)
{
    return object == Py_None || rpp_is_reads(object);
}

/* Notes what the callable's code asks of its arguments: None, or (wishes, attributes, are_like or
 * None). False with an exception set. */
static bool set_asks(struct fast_call *fast, PyObject *asks)
{
    PyObject *are_like = Py_None;
    int wishes = 0, attributes = 0;
    if (asks != Py_None && !PyArg_ParseTuple(asks, "ppO", &wishes, &attributes, &are_like))
        return false;
    fast->asks_wishes = wishes;
    fast->asks_attributes = attributes;
    fast->are_like = are_like == Py_None ? NULL : Py_NewRef(are_like);
    return true;
}

/* set_guard(tensors, dicts, handle class, grad, inference, params, reads, members, origins, asks):
 * what holds from now on. params: those whose requires_grad matters; reads, members, origins: a
 * Reads or None each; asks: as of set_asks. */
static PyObject *fast_call_set_guard(PyObject *object, PyObject *arguments)
{
    struct fast_call *fast = (struct fast_call *)object;
    PyObject *tensors, *dicts, *handles, *params;
    PyObject *reads = Py_None, *members = Py_None, *origins = Py_None, *asks = Py_None;
    int grad, inference;
    if (!PyArg_ParseTuple(arguments, "O!O!OppO!|OOOO", &PyTuple_Type, &tensors, &PyTuple_Type,
                          &dicts, &handles, &grad, &inference, &PyTuple_Type, &params, &reads,
                          &members, &origins, &asks))
        return NULL;
    if (!is_reads_or_none(reads) || !is_reads_or_none(members) || !is_reads_or_none(origins))
        return PyErr_Format(PyExc_TypeError, "set_guard takes a Reads or None");
    drop_all(fast);
    if (!set_asks(fast, asks))
        return NULL;
    if (rpp_guard_set(&fast->guard, fast->exchange, tensors, dicts, handles, params,
                      reads == Py_None ? NULL : reads, members == Py_None ? NULL : members,
                      origins == Py_None ? NULL : origins) != 0)
        return NULL;
    fast->is_grad = grad;
    fast->is_inference = inference;
    return Py_NewRef(Py_None);
}

static int compare_words(const void *a, const void *b)
{
    uintptr_t one = *(const uintptr_t *)a, other = *(const uintptr_t *)b;
    return one < other ? -1 : one > other;
}

/* set_own(ids): of the tensors that the callable reads beside its arguments, from now on. */
static PyObject *fast_call_set_own(PyObject *object, PyObject *ids)
{
    struct fast_call *fast = (struct fast_call *)object;
    rpp_assert_gil();
    if (!PyTuple_Check(ids))
        return PyErr_Format(PyExc_TypeError, "set_own takes a tuple");
    size_t count = (size_t)PyTuple_Size(ids);
    uintptr_t *own = PyMem_Calloc(count + 1, sizeof *own);
    if (!own)
        return PyErr_NoMemory();
    for (size_t i = 0; i < count; i++)
        own[i] = (uintptr_t)PyLong_AsVoidPtr(PyTuple_GetItem(ids, (Py_ssize_t)i));
    if (PyErr_Occurred()) {
        PyMem_Free(own);
        return NULL;
    }
    qsort(own, count, sizeof *own, compare_words);
    drop_own(fast);
    fast->own = own;
    fast->own_count = count;
    return Py_NewRef(Py_None);
}

static PyObject *fast_call_is_guarded(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(rpp_guard_holds(&((struct fast_call *)object)->guard));
}

/* accept_reads(): what is read has the values that it had when the guard was set, perhaps by other
 * objects. */
static PyObject *fast_call_accept_reads(PyObject *object, PyObject *unused)
{
    (void)unused;
    rpp_guard_accept_reads(&((struct fast_call *)object)->guard);
    return Py_NewRef(Py_None);
}

/* renew(next id of handles, registrations): is_guarded() where hooks or members were registered
 * elsewhere, by a look that began at these counts. */
static PyObject *fast_call_renew(PyObject *object, PyObject *arguments)
{
    PyObject *handle_count;
    long registrations;
    if (!PyArg_ParseTuple(arguments, "Ol", &handle_count, &registrations))
        return NULL;
    struct rpp_guard *guard = &((struct fast_call *)object)->guard;
    return PyBool_FromLong(rpp_guard_renew(guard, handle_count, registrations));
}

/* know(weak reference, reads, token, tensors): an object that may be an argument. */
static PyObject *fast_call_know(PyObject *object, PyObject *arguments)
{
    PyObject *weak, *reads, *token, *tensors;
    if (!PyArg_ParseTuple(arguments, "OOOO", &weak, &reads, &token, &tensors) ||
        rpp_objects_know(&((struct fast_call *)object)->objects, weak, reads, token, tensors) != 0)
        return NULL;
    return Py_NewRef(Py_None);
}

/* ---- Calls --------------------------------------------------------------------------------- */

static bool read_inputs(const struct fast_call *fast, PyObject *args, PyObject *kwargs,
                        struct rpp_inputs *inputs)
{
    rpp_assert_gil();
    return rpp_inputs_read(inputs, fast->exchange, &fast->types, &fast->objects, args, kwargs);
}

/* Is there a shape for such calls? One that has no graph makes room for one that has. */
static bool is_known(struct fast_call *fast, const struct rpp_inputs *inputs, bool graph)
{
    struct rpp_shape *known = rpp_shapes_take(&fast->shapes, inputs);
    if (!known)
        return false;
    bool stays = known->graph || !graph;
    if (!stays)
        rpp_shapes_remove(&fast->shapes, known);
    rpp_shape_release(known);
    return stays;
}

/* Has the shape look at gradients, if it is to; false, perhaps with an exception, where the short
 * way is not for them. */
static bool set_gradients(const struct fast_call *fast, struct rpp_shape *shape,
                          PyObject *gradients)
{
    assert(!shape->gradients);
    if (PyTuple_Size(gradients) == 0)
        return true;
    shape->gradients = rpp_gradients_create(gradients, fast->exchange, fast->types.tensor);
    return shape->gradients;
}

/* What add or add_split was called with; back: of the latter, else NULL. */
struct addition {
    PyObject *args, *kwargs, *graph, *results, *build, *choice, *gradients, *back, *on_cpu, *sets;
    int ordinal;
};

/* Does no argument want a gradient? Of two graphs some may. */
static bool wants_nothing(const struct addition *given, const struct rpp_inputs *inputs)
{
    if (given->back)
        return true;
    for (size_t i = 0; i < inputs->tensor_count; i++)
        if (inputs->wants[i])
            return false;
    return true;
}

/* Are the extents of the inputs all that its graph takes, but for the results? Where Python replays, it adds the
 * rest. */
static bool takes_extents(const struct addition *given, const struct rpp_shape *shape)
{
    return !shape->graph || given->back ||
           shape->graph->arg_count == shape->signature.extent_count + shape->result_count;
}

/* The shape that is added, for a call that was read: True or False, NULL with an exception set. */
static PyObject *add_shape(struct fast_call *fast, const struct addition *given,
                           const struct rpp_inputs *inputs)
{
    size_t result_count = (size_t)PyTuple_Size(given->results);
    const struct rpp_graph *captured =
        given->graph == Py_None ? NULL : (struct rpp_graph *)given->graph;
    if (result_count > RPP_MOST_RESULTS || !wants_nothing(given, inputs) ||
        is_known(fast, inputs, captured))
        return Py_NewRef(Py_False);
    struct rpp_shape *shape = rpp_shape_create(inputs, given->ordinal, given->graph, given->results,
                                               given->build, given->choice, given->on_cpu);
    if (!shape)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    shape->is_split = given->back;
    shape->sets = given->sets && PyTuple_Size(given->sets) ? Py_NewRef(given->sets) : NULL;
    if (given->back && given->back != Py_None)
        shape->back = (struct rpp_graph *)Py_NewRef(given->back);
    PyObject *added = NULL;
    if (!takes_extents(given, shape))
        added = Py_NewRef(Py_False);
    else if (given->gradients && !set_gradients(fast, shape, given->gradients))
        added = PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    else if (rpp_shapes_add(&fast->shapes, shape))
        return Py_NewRef(Py_True);
    else
        PyErr_NoMemory();
    rpp_shape_release(shape);
    return added;
}

static PyObject *add_given(struct fast_call *fast, const struct addition *given)
{
    struct rpp_inputs inputs;
    PyObject *added =
        read_inputs(fast, given->args, given->kwargs, &inputs) && are_plain(fast, &inputs)
            ? add_shape(fast, given, &inputs)
            : Py_NewRef(Py_False);
    rpp_inputs_let_go(&inputs);
    return added;
}

/* Are these what calls set, as a shape has it, of which all or nothing is made beside the result? */
static bool are_sets(PyObject *sets)
{
    Py_ssize_t count = PyTuple_Size(sets), made = 0, whole = count / RPP_SET_PARTS;
    for (Py_ssize_t i = 0; i < whole; i++) {
        PyObject *how = PyTuple_GetItem(sets, i * RPP_SET_PARTS + 3);
        if (!PyDict_CheckExact(PyTuple_GetItem(sets, i * RPP_SET_PARTS)) || !PyLong_CheckExact(how))
            return false;
        made += PyLong_AsLong(how) == RPP_SET_MADE;
    }
    return count % RPP_SET_PARTS == 0 && (made == 0 || made == whole);
}

/* add(ordinal, args, kwargs, graph, results, build, choice, gradients, on_cpu, sets): a shape of a
 * device. results: of each (shape, strides, dtype), and perhaps the shape to cut it to. build: a
 * Builder, or what makes the result of the list of these; None: the only one is it. graph and
 * choice may be None; where both are, the shape's calls are eager. gradients: as for
 * rpp_gradients_create; on_cpu: as told of rpp_signature_make; sets: what calls set, as a shape has
 * it. */
static PyObject *fast_call_add(PyObject *object, PyObject *arguments)
{
    struct fast_call *fast = (struct fast_call *)object;
    struct addition given = {.choice = Py_None};
    if (!PyArg_ParseTuple(arguments, "iO!O!OO!O|OO!O!O!", &given.ordinal, &PyTuple_Type,
                          &given.args, &PyDict_Type, &given.kwargs, &given.graph, &PyTuple_Type,
                          &given.results, &given.build, &given.choice, &PyTuple_Type,
                          &given.gradients, &PyTuple_Type, &given.on_cpu, &PyTuple_Type,
                          &given.sets))
        return NULL;
    if (given.sets && !are_sets(given.sets))
        return PyErr_Format(PyExc_TypeError,
                            "add takes what calls set in parts of four, the first a dict");
    PyObject *graph = given.graph, *choice = given.choice;
    if ((graph != Py_None && Py_TYPE(graph) != rpp_graph_type) ||
        (choice != Py_None && Py_TYPE(choice) != rpp_choice_type))
        return PyErr_Format(PyExc_TypeError, "add takes a Graph or None, and a Choice or None");
    return add_given(fast, &given);
}

/* add_split(ordinal, args, kwargs, forward, backward, replay, on_cpu, choice): a shape whose forward and
 * backward passes are a graph each, and of whose arguments some may want gradients. backward: None
 * where nothing has gradients. replay: called with a tuple of the tensors of a call, in the order of its
 * arguments, and where there are any with one of those on the CPU; it makes the result, or returns
 * `miss`. on_cpu: as for add. choice: likewise, where there is no backward: a call is measured until
 * replay returns. */
static PyObject *fast_call_add_split(PyObject *object, PyObject *arguments)
{
    struct addition given = {.choice = Py_None, .results = PyTuple_New(0)};
    if (!given.results)
        return NULL;
    PyObject *added = NULL;
    if (!PyArg_ParseTuple(arguments, "iO!O!O!OO|O!O", &given.ordinal, &PyTuple_Type, &given.args,
                          &PyDict_Type, &given.kwargs, rpp_graph_type, &given.graph, &given.back,
                          &given.build, &PyTuple_Type, &given.on_cpu, &given.choice))
        added = NULL;
    else if (given.back != Py_None && Py_TYPE(given.back) != rpp_graph_type)
        PyErr_SetString(PyExc_TypeError, "add_split takes two graphs, the second one or None");
    else if (given.choice != Py_None &&
             (Py_TYPE(given.choice) != rpp_choice_type || given.back != Py_None))
        PyErr_SetString(PyExc_TypeError,
                        "add_split takes a Choice or None, and none with two graphs");
    else
        added = add_given((struct fast_call *)object, &given);
    Py_DECREF(given.results);
    return added;
}

/* Makes the results, and notes where they lie; false with an exception set. PyTorch lets other
 * threads run meanwhile. */
static bool make_results(const struct fast_call *fast, const struct rpp_shape *shape,
                         PyObject **results, uint64_t *addresses)
{
    assert(shape->result_count <= RPP_MOST_RESULTS);
    for (size_t i = 0; i < shape->result_count; i++) {
        struct dl_tensor tensor = {0};
        results[i] = rpp_result_make(&shape->results[i], &fast->maker, shape->ordinal, &tensor);
        if (!results[i])
            return false;
        addresses[i] = (uintptr_t)tensor.data;
    }
    return true;
}

/* From here to the launch no other thread runs: the arguments are the graph's. extents: where they
 * start. */
static rp_status launch(const struct rpp_shape *shape, const uint64_t *extents,
                        const uint64_t *results, void *stream, struct rp_error *err)
{
    rpp_assert_gil();
    size_t count = shape->signature.extent_count;
    assert(shape->graph && shape->graph->arg_count == count + shape->result_count);
    struct rp_arg *args = shape->graph->args;
    for (size_t i = 0; i < count; i++)
        args[i].address = extents[i];
    for (size_t i = 0; i < shape->result_count; i++)
        args[count + i].address = results[i];
    return rpp_graph_enqueue(shape->graph, stream, err);
}

/* The results as the callable gives them; NULL with an exception set. */
static PyObject *built(const struct rpp_shape *shape, const struct rpp_inputs *inputs,
                       PyObject *const *results)
{
    assert(shape->build || shape->result_count == 1);
    if (!shape->build)
        return Py_NewRef(results[0]);
    if (rpp_is_builder(shape->build))
        return rpp_builder_make(shape->build, results, inputs->args, inputs->kwargs);
    PyObject *made = NULL, *list = PyList_New((Py_ssize_t)shape->result_count);
    for (size_t i = 0; list && i < shape->result_count; i++)
        PyList_SetItem(list, (Py_ssize_t)i, Py_NewRef(results[i]));
    if (list)
        made = PyObject_CallFunctionObjArgs(shape->build, list, NULL);
    Py_XDECREF(list);
    return made;
}

/* What the call returns of what was made, whose reference this takes, once the rest is set. */
static PyObject *handed_out(const struct rpp_shape *shape, PyObject *made)
{
    bool has_sets = rpp_shape_makes_sets(shape);
    PyObject *result = has_sets ? PyTuple_GetItem(made, 0) : made;
    if (result && !rpp_shape_set(shape, has_sets ? PyTuple_GetItem(made, 1) : NULL))
        result = NULL;
    Py_XINCREF(result);
    Py_DECREF(made);
    return result;
}

/* Behind the launch: what Python's own way does then, in its order. NULL with an exception set. */
static PyObject *finished(const struct rpp_shape *shape, const struct rpp_inputs *inputs,
                          PyObject *const *results)
{
    assert(shape->graph && !PyErr_Occurred());
    if (!rpp_draws_advance(&shape->graph->draws, 0))
        return NULL;
    if (shape->gradients && !rpp_gradients_give(shape->gradients))
        return NULL;
    PyObject *made = built(shape, inputs, results);
    return made ? handed_out(shape, made) : NULL;
}

/* Was nothing enqueued, as the stream captures, memory was freed that the graph uses, or its
 * scalars are others by now? */
static bool is_for_python(const struct rpp_shape *shape, rp_status status)
{
    assert(status != RP_OK);
    return status == RP_ERROR_UNSUPPORTED ||
           (status == RP_ERROR_CONTRACT &&
            (rpp_graph_is_stale(shape->graph) || !rpp_shape_has_its_scalars(shape)));
}

static PyObject *replay(const struct fast_call *fast, const struct rpp_shape *shape,
                        const struct rpp_inputs *inputs, const uint64_t *extents)
{
    assert(shape->graph && !PyErr_Occurred());
    PyObject *results[RPP_MOST_RESULTS], *made = NULL;
    uint64_t addresses[RPP_MOST_RESULTS];
    struct rp_error err = {0};
    void *stream = NULL;
    memset(results, 0, shape->result_count * sizeof(PyObject *));
    if (!rpp_draws_read(&shape->graph->draws, 0)) { /* the stream captures: Python decides */
        PyErr_Clear();
        return Py_NewRef(miss);
    }
    if (make_results(fast, shape, results, addresses) &&
        fast->exchange->stream(DL_CUDA, shape->ordinal, &stream) == 0) {
        rp_status status = launch(shape, extents, addresses, stream, &err);
        if (status == RP_OK)
            made = finished(shape, inputs, results);
        else if (is_for_python(shape, status))
            made = Py_NewRef(miss);
        else
            rpp_set_error(status, &err);
    }
    if (!made && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "PyTorch did not tell its current stream");
    for (size_t i = 0; i < shape->result_count; i++)
        Py_XDECREF(results[i]);
    return made;
}

/* The legacy stream never captures, and asking it while another captures breaks the capture. */
static bool is_captured(const struct fast_call *fast, int32_t ordinal)
{
    void *stream = NULL;
    int status = 0;
    if (fast->exchange->stream(DL_CUDA, ordinal, &stream) != 0) {
        PyErr_Clear();
        return true;
    }
    const struct rpp_device *device = &rpp_state.devices[ordinal];
    return stream && (device->is_capturing(stream, &status) != 0 || status);
}

static PyObject *tuple_of(PyObject *const *objects, size_t count)
{
    PyObject *made = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; made && i < count; i++)
        PyTuple_SetItem(made, (Py_ssize_t)i, Py_NewRef(objects[i]));
    return made;
}

/* Through autograd, whose function is Python's, or behind what the call does on the CPU. */
static PyObject *go_forward(const struct fast_call *fast, const struct rpp_shape *shape,
                            const struct rpp_inputs *inputs)
{
    if ((shape->back && rpp_graph_is_stale(shape->back)) || is_captured(fast, shape->ordinal))
        return Py_NewRef(miss);
    PyObject *tensors = tuple_of(inputs->objects, inputs->tensor_count), *made = NULL;
    PyObject *on_cpu = inputs->cpu_count ? tuple_of(inputs->on_cpu, inputs->cpu_count) : NULL;
    if (tensors && (on_cpu || !inputs->cpu_count))
        made = PyObject_CallFunctionObjArgs(shape->build, tensors, on_cpu, NULL);
    Py_XDECREF(tensors);
    Py_XDECREF(on_cpu);
    return made;
}

/* By the graph, if it is that of the call; `miss` if not. */
static PyObject *try_replay(struct fast_call *fast, const struct rpp_shape *shape,
                            const struct rpp_inputs *inputs)
{
    uint64_t extents[RPP_MOST_TENSORS];
    if (!shape->graph || rpp_graph_is_stale(shape->graph) || !rpp_shape_can_set(shape) ||
        !rpp_inputs_lie(inputs, &shape->signature, extents) || !rpp_guard_holds(&fast->guard))
        return Py_NewRef(miss);
    return shape->is_split ? go_forward(fast, shape, inputs) : replay(fast, shape, inputs, extents);
}

/* As the shape's choice says. An eager call needs no guard, but for one at the beginning of a
 * block: what changed is noticed in the end. */
static PyObject *call_judged(struct fast_call *fast, const struct rpp_shape *shape,
                             const struct rpp_inputs *inputs)
{
    assert(shape->choice);
    struct rp_way_turn turn;
    void *stream = NULL;
    if (fast->exchange->stream(DL_CUDA, shape->ordinal, &stream) != 0)
        return PyErr_Occurred() ? NULL : Py_NewRef(miss);
    rpp_choice_begin(shape->choice, stream, 0, &turn);
    if (turn.way == RP_WAY_EAGER && (turn.step != 1 || rpp_guard_holds(&fast->guard)))
        return Py_NewRef(turn.step ? shape->choice : eager);
    PyObject *result = turn.way == RP_WAY_GRAPH ? try_replay(fast, shape, inputs) : Py_NewRef(miss);
    rpp_choice_end(shape->choice, &turn, result && result != miss);
    return result;
}

static PyObject *call_shape(struct fast_call *fast, const struct rpp_shape *shape,
                            const struct rpp_inputs *inputs)
{
    if (shape->choice)
        return call_judged(fast, shape, inputs);
    if (shape->graph)
        return try_replay(fast, shape, inputs);
    return Py_NewRef(rpp_guard_holds(&fast->guard) ? eager : miss);
}

/* A call without tensors is one of the current device. */
static bool is_of_device(const struct fast_call *fast, const struct rpp_shape *shape)
{
    if (shape->signature.tensor_count)
        return true;
    PyObject *index = PyObject_CallObject(fast->current_device, NULL);
    bool same = index && PyLong_AsLong(index) == shape->ordinal;
    Py_XDECREF(index);
    PyErr_Clear();
    return same;
}

static PyObject *call_inputs(struct fast_call *fast, struct rpp_inputs *inputs)
{
    assert(!PyErr_Occurred());
    struct rpp_shape *shape =
        modes_fit(fast, inputs) ? rpp_shapes_take(&fast->shapes, inputs) : NULL;
    if (!shape)
        return Py_NewRef(miss);
    PyObject *result =
        is_of_device(fast, shape) ? call_shape(fast, shape, inputs) : Py_NewRef(miss);
    rpp_shape_release(shape);
    return result;
}

/* call(args, kwargs): the result, or `miss`; `eager` or the choice where the call is to be made
 * eagerly, by the choice measured. */
static PyObject *fast_call_call(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    struct fast_call *fast = (struct fast_call *)object;
    struct rpp_inputs inputs;
    if (count != 2 || !PyTuple_Check(arguments[0]) || !PyDict_Check(arguments[1]))
        return PyErr_Format(PyExc_TypeError, "call takes a tuple and a dict");
    if (!fast->shapes.count)
        return Py_NewRef(miss);
    PyObject *result = read_inputs(fast, arguments[0], arguments[1], &inputs)
                           ? call_inputs(fast, &inputs)
                           : Py_NewRef(miss);
    rpp_inputs_let_go(&inputs);
    if (fast->held && result && result != miss)
        Py_CLEAR(fast->held);
    return result;
}

/* ---- The type ------------------------------------------------------------------------------ */

/* Hot(Tensor, empty_strided, _empty_strided_cuda or None, is_grad_enabled,
 *     is_inference_mode_enabled, is_autocast_enabled, current_device, Parameter, hooks of saved
 *     tensors, and what says whether torch.func transforms) */
static PyObject *fast_call_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    PyObject *functions[10] = {NULL};
    if (!PyArg_ParseTuple(args, "OOOOOOO|OOO", &functions[0], &functions[1], &functions[2],
                          &functions[3], &functions[4], &functions[5], &functions[6], &functions[7],
                          &functions[8], &functions[9]))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct fast_call *fast = (struct fast_call *)alloc(type, 0);
    if (!fast)
        return NULL;
    bool made = rpp_maker_set(&fast->maker, functions[0], functions[1], functions[2]);
    fast->exchange = fast->maker.exchange;
    fast->types.tensor = Py_NewRef(functions[0]);
    fast->types.parameter = functions[7] ? Py_NewRef(functions[7]) : NULL;
    fast->grad_enabled = Py_NewRef(functions[3]);
    fast->inference = Py_NewRef(functions[4]);
    fast->autocast = Py_NewRef(functions[5]);
    fast->current_device = Py_NewRef(functions[6]);
    fast->hooks_of_saved = Py_XNewRef(functions[8]);
    fast->transforms = Py_XNewRef(functions[9]);
    fast->requires_grad = PyUnicode_InternFromString("requires_grad");
    fast->is_neg = PyUnicode_InternFromString("is_neg");
    if (made && fast->requires_grad && fast->is_neg)
        return (PyObject *)fast;
    Py_DECREF(fast);
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
}

/* What may refer to the Hot again: a module may have its own graphed callable for an attribute, and
 * the guard has the module's dict. */
static int fast_call_traverse(PyObject *object, visitproc visit, void *arg)
{
    const struct fast_call *fast = (struct fast_call *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(fast->types.tensor);
    Py_VISIT(fast->types.parameter);
    Py_VISIT(fast->maker.empty);
    Py_VISIT(fast->maker.quick_empty);
    Py_VISIT(fast->grad_enabled);
    Py_VISIT(fast->inference);
    Py_VISIT(fast->autocast);
    Py_VISIT(fast->current_device);
    Py_VISIT(fast->hooks_of_saved);
    Py_VISIT(fast->transforms);
    Py_VISIT(fast->guard.tensors);
    Py_VISIT(fast->guard.dicts);
    Py_VISIT(fast->guard.handles);
    Py_VISIT(fast->guard.params);
    Py_VISIT(fast->guard.reads);
    Py_VISIT(fast->guard.members);
    Py_VISIT(fast->are_like);
    Py_VISIT(fast->held);
    int found = rpp_objects_traverse(&fast->objects, visit, arg);
    return found ? found : rpp_shapes_traverse(&fast->shapes, visit, arg);
}

static int fast_call_collect(PyObject *object)
{
    drop_all((struct fast_call *)object);
    Py_CLEAR(((struct fast_call *)object)->held);
    return 0;
}

static void fast_call_dealloc(PyObject *object)
{
    struct fast_call *fast = (struct fast_call *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    drop_all(fast);
    Py_CLEAR(fast->held);
    rpp_maker_drop(&fast->maker);
    PyObject *held[] = {fast->types.tensor, fast->types.parameter, fast->grad_enabled,
                        fast->inference,    fast->autocast,        fast->requires_grad,
                        fast->is_neg,       fast->current_device,  fast->hooks_of_saved,
                        fast->transforms};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        Py_XDECREF(held[i]);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"accept_reads", fast_call_accept_reads, METH_NOARGS,
     "What is read has the values that it had when the guard was set."},
    {"add", fast_call_add, METH_VARARGS,
     "add(ordinal, args, kwargs, graph, results, build, choice=None, gradients=(), on_cpu=()): "
     "takes "
     "calls of this shape."},
    {"add_split", fast_call_add_split, METH_VARARGS,
     "add_split(ordinal, args, kwargs, forward, backward, replay, on_cpu=(), choice=None): takes "
     "calls of a shape whose passes are a graph each; replay(tensors) makes the result, or "
     "replay(tensors, those on the CPU)."},
    {"call", (PyCFunction)(void (*)(void))fast_call_call, METH_FASTCALL,
     "call(args, kwargs): the result of such a call; miss; or eager, or a Choice that measures it, "
     "where the call is to be made eagerly."},
    {"clear", fast_call_clear, METH_NOARGS, "Takes no calls from now on."},
    {"hold", fast_call_hold, METH_O,
     "hold(object or None): what is let go of behind the next call that it takes."},
    {"is_guarded", fast_call_is_guarded, METH_NOARGS, "Is all as when the guard was set?"},
    {"know", fast_call_know, METH_VARARGS,
     "know(weak reference, reads, token, tensors): an object that may be an argument, until "
     "something "
     "in it changes: bytes that tell its calls apart, and weak references to what it brings."},
    {"renew", fast_call_renew, METH_VARARGS,
     "renew(next_id, registrations): the same, where others than those that are guarded were "
     "registered until these counts."},
    {"set_guard", fast_call_set_guard, METH_VARARGS,
     "set_guard(tensors, dicts, handle class, grad, inference, params, reads=None, members=None, "
     "origins=None, asks=None): "
     "what must not change; of params, whether they want gradients; of arguments, what code asks."},
    {"set_own", fast_call_set_own, METH_O,
     "set_own(ids): of the tensors that the callable reads beside its arguments. Calls that are "
     "given one have shapes of their own."},
    {NULL, NULL, 0, NULL},
};

int rpp_add_fast_call_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)fast_call_new},
        {Py_tp_dealloc, (void *)fast_call_dealloc},
        {Py_tp_traverse, (void *)fast_call_traverse},
        {Py_tp_clear, (void *)fast_call_collect},
        {Py_tp_methods, methods},
        {Py_tp_doc, "The fast path of calls."},
        {0, NULL},
    };
    static PyType_Spec spec = {"reprise._C.FastCall", sizeof(struct fast_call), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
    PyObject *type = PyType_FromSpec(&spec);
    miss = PyObject_CallObject((PyObject *)&PyBaseObject_Type, NULL);
    eager = PyObject_CallObject((PyObject *)&PyBaseObject_Type, NULL);
    if (!type || !miss || PyModule_AddObjectRef(module, "miss", miss) != 0 || !eager ||
        PyModule_AddObjectRef(module, "eager", eager) != 0)
        return -1;
    return PyModule_AddType(module, (PyTypeObject *)type);
}
