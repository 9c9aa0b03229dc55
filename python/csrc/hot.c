/* SPDX-License-Identifier: MIT
 *
 * The short way of a call: from the arguments' tuple to the launch without Python in between. It
 * takes calls of plain tensors and values (inputs.h) in a shape that was added, while nothing
 * changed of what the shapes were captured under; for all others it returns `miss`, and Python
 * decides.
 *
 *     shape      how its inputs look, on which device; its graph; how to make its results
 * (shape.h); which gradients it is for, and which it leaves (gradients.h) guard      parameters,
 * modules and hooks as they were when the shapes were added (guard.h) modes      gradients,
 * inference mode; never under autocast
 *
 * Everything is guarded by the GIL; only PyTorch's allocation of results, and the gradients that
 * parameters have, may let other threads run in the midst of a call.
 */
#include "guard.h"
#include "reads.h"
#include "shape.h"

#include <string.h>

struct hot {
    PyObject_HEAD const struct dl_exchange *exchange;
    PyObject *tensor_type, *empty, *quick_empty; /* of torch; quick_empty may be None */
    PyObject *grad_enabled, *inference, *autocast, *current_device;
    PyObject *requires_grad, *is_neg, *resize; /* names */
    bool is_grad, is_inference;
    struct rpp_guard guard;
    struct rpp_shape_table shapes;
};

static PyObject *miss, *eager;

/* ---- Guard --------------------------------------------------------------------------------- */

static void drop_all(struct hot *hot)
{
    rpp_shapes_clear(&hot->shapes);
    rpp_guard_drop(&hot->guard);
}

static PyObject *hot_clear(PyObject *self, PyObject *unused)
{
    (void)unused;
    drop_all((struct hot *)self);
    return Py_NewRef(Py_None);
}

/* Does the function, of a mode, say so? One that raises says neither. */
static bool says(PyObject *function, bool expected)
{
    PyObject *value = PyObject_CallObject(function, NULL);
    bool does = value == (expected ? Py_True : Py_False);
    Py_XDECREF(value);
    if (!value)
        PyErr_Clear();
    return does;
}

/* Is an argument a plain tensor without a gradient? Its dispatch keys tell most of it, and are part
 * of the signature where they are known. */
static bool is_plain(const struct hot *hot, PyObject *tensor)
{
    PyObject *negated =
        rpp_tensor_layout.known ? NULL : PyObject_CallMethodObjArgs(tensor, hot->is_neg, NULL);
    PyObject *wants = hot->is_grad ? PyObject_GetAttr(tensor, hot->requires_grad) : NULL;
    bool plain =
        (rpp_tensor_layout.known || negated == Py_False) && (!hot->is_grad || wants == Py_False);
    Py_XDECREF(negated);
    Py_XDECREF(wants);
    if (!plain)
        PyErr_Clear();
    return plain;
}

static bool modes_fit(const struct hot *hot, const struct rpp_inputs *inputs)
{
    if (!says(hot->grad_enabled, hot->is_grad) || !says(hot->inference, hot->is_inference) ||
        !says(hot->autocast, false))
        return false;
    for (size_t i = 0; i < inputs->tensor_count; i++)
        if (!is_plain(hot, inputs->values[inputs->tensor_at[i]]))
            return false;
    return true;
}

/* set_guard(tensors, dicts, handle class, grad, inference, params, reads): what holds from now on.
 * params: those whose requires_grad matters; reads: a Reads or None. */
static PyObject *hot_set_guard(PyObject *object, PyObject *arguments)
{
    struct hot *hot = (struct hot *)object;
    PyObject *tensors, *dicts, *handles, *params, *reads = Py_None;
    int grad, inference;
    if (!PyArg_ParseTuple(arguments, "O!O!OppO!|O", &PyTuple_Type, &tensors, &PyTuple_Type, &dicts,
                          &handles, &grad, &inference, &PyTuple_Type, &params, &reads))
        return NULL;
    if (reads != Py_None && !rpp_is_reads(reads))
        return PyErr_Format(PyExc_TypeError, "set_guard takes a Reads or None");
    drop_all(hot);
    if (rpp_guard_set(&hot->guard, hot->exchange, tensors, dicts, handles, params,
                      reads == Py_None ? NULL : reads) != 0)
        return NULL;
    hot->is_grad = grad;
    hot->is_inference = inference;
    return Py_NewRef(Py_None);
}

static PyObject *hot_is_guarded(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(rpp_guard_holds(&((struct hot *)object)->guard));
}

/* renew(next id of handles, registrations): is_guarded() where hooks or members were registered
 * elsewhere, by a look that began at these counts. */
static PyObject *hot_renew(PyObject *object, PyObject *arguments)
{
    PyObject *handle_count;
    long registrations;
    if (!PyArg_ParseTuple(arguments, "Ol", &handle_count, &registrations))
        return NULL;
    struct rpp_guard *guard = &((struct hot *)object)->guard;
    return PyBool_FromLong(rpp_guard_renew(guard, handle_count, registrations));
}

/* ---- Calls --------------------------------------------------------------------------------- */

static bool read_inputs(const struct hot *hot, PyObject *args, PyObject *kwargs,
                        struct rpp_inputs *inputs)
{
    return rpp_inputs_read(inputs, hot->exchange, hot->tensor_type, args, kwargs);
}

/* Is there a shape for such calls? One that has no graph makes room for one that has. */
static bool is_known(struct hot *hot, const struct rpp_inputs *inputs, bool graph)
{
    struct rpp_shape *known = rpp_shapes_take(&hot->shapes, inputs);
    if (!known)
        return false;
    bool stays = known->graph || !graph;
    if (!stays)
        rpp_shapes_remove(&hot->shapes, known);
    rpp_shape_release(known);
    return stays;
}

/* Has the shape look at gradients, if it is to; false, perhaps with an exception, where the short
 * way is not for them. */
static bool set_gradients(const struct hot *hot, struct rpp_shape *shape, PyObject *gradients)
{
    if (PyTuple_Size(gradients) == 0)
        return true;
    shape->gradients = rpp_gradients_create(gradients, hot->exchange, hot->tensor_type);
    return shape->gradients;
}

/* add(ordinal, args, kwargs, graph, results, build, choice, gradients): a shape of a device.
 * results: of each (shape, strides, dtype), and perhaps the shape to cut it to. graph and choice
 * may be None; where both are, the shape's calls are eager. gradients: as for rpp_gradients_create.
 */
static PyObject *hot_add(PyObject *object, PyObject *arguments)
{
    struct hot *hot = (struct hot *)object;
    PyObject *args, *kwargs, *graph, *results, *build, *choice = Py_None, *gradients = NULL;
    struct rpp_inputs inputs;
    int ordinal;
    if (!PyArg_ParseTuple(arguments, "iO!O!OO!O|OO!", &ordinal, &PyTuple_Type, &args, &PyDict_Type,
                          &kwargs, &graph, &PyTuple_Type, &results, &build, &choice, &PyTuple_Type,
                          &gradients))
        return NULL;
    if ((graph != Py_None && Py_TYPE(graph) != rpp_graph_type) ||
        (choice != Py_None && Py_TYPE(choice) != rpp_choice_type))
        return PyErr_Format(PyExc_TypeError, "add takes a Graph or None, and a Choice or None");
    size_t result_count = (size_t)PyTuple_Size(results);
    const struct rpp_graph *captured = graph == Py_None ? NULL : (struct rpp_graph *)graph;
    if (result_count > RPP_MOST_RESULTS || !read_inputs(hot, args, kwargs, &inputs) ||
        (captured && captured->arg_count != inputs.tensor_count + result_count) ||
        is_known(hot, &inputs, captured))
        return Py_NewRef(Py_False);
    struct rpp_shape *shape = rpp_shape_create(&inputs, ordinal, graph, results, build, choice);
    if (!shape)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    PyObject *added = NULL;
    if (gradients && !set_gradients(hot, shape, gradients))
        added = PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    else if (rpp_shapes_add(&hot->shapes, shape))
        return Py_NewRef(Py_True);
    else
        PyErr_NoMemory();
    rpp_shape_release(shape);
    return added;
}

/* New memory for a result. What torch.compile's programs allocate with skips PyTorch's parsing of
 * arguments and its dispatcher, a third to a half of a short call, and knows the current device
 * only. */
static PyObject *make_whole(const struct hot *hot, const struct rpp_shape *shape, size_t i,
                            struct dl_tensor *out_tensor)
{
    PyObject *made = hot->quick_empty == Py_None
                         ? NULL
                         : PyObject_CallObject(hot->quick_empty, shape->results[i].whole);
    if (made && hot->exchange->look(made, out_tensor) == 0 &&
        out_tensor->device.ordinal == shape->ordinal)
        return made;
    Py_XDECREF(made);
    if (PyErr_Occurred())
        return NULL;
    made = PyObject_Call(hot->empty, shape->results[i].place, shape->results[i].options);
    if (made && hot->exchange->look(made, out_tensor) == 0)
        return made;
    Py_XDECREF(made);
    return NULL;
}

static PyObject *make_result(const struct hot *hot, const struct rpp_shape *shape, size_t i,
                             struct dl_tensor *out_tensor)
{
    PyObject *made = make_whole(hot, shape, i, out_tensor), *cut = shape->results[i].cut;
    if (!made || !cut)
        return made;
    PyObject *same = PyObject_CallMethodObjArgs(made, hot->resize, cut, NULL);
    Py_DECREF(made);
    return same; /* resize_ returns the tensor; its memory stays where it is */
}

/* Makes the results, and notes where they lie; false with an exception set. PyTorch lets other
 * threads run meanwhile. */
static bool make_results(const struct hot *hot, const struct rpp_shape *shape, PyObject **results,
                         uint64_t *addresses)
{
    for (size_t i = 0; i < shape->result_count; i++) {
        struct dl_tensor tensor = {0};
        results[i] = make_result(hot, shape, i, &tensor);
        if (!results[i])
            return false;
        addresses[i] = (uintptr_t)tensor.data;
    }
    return true;
}

/* From here to the launch no other thread runs: the arguments are the graph's. */
static rp_status launch(const struct rpp_shape *shape, const struct rpp_inputs *inputs,
                        const uint64_t *results, void *stream, struct rp_error *err)
{
    struct rp_arg *args = shape->graph->args;
    for (size_t i = 0; i < inputs->tensor_count; i++)
        args[i].address = (uintptr_t)inputs->tensors[i].data;
    for (size_t i = 0; i < shape->result_count; i++)
        args[inputs->tensor_count + i].address = results[i];
    const struct rpp_draws *draws = &shape->graph->draws;
    return rp_graph_replay_values(shape->graph->graph, args, shape->graph->arg_count, draws->values,
                                  2 * draws->count, stream, err);
}

/* The results as the callable gives them; NULL with an exception set. */
static PyObject *built(const struct rpp_shape *shape, PyObject *const *results)
{
    if (!shape->build)
        return Py_NewRef(results[0]);
    PyObject *made = NULL, *list = PyList_New((Py_ssize_t)shape->result_count);
    for (size_t i = 0; list && i < shape->result_count; i++)
        PyList_SetItem(list, (Py_ssize_t)i, Py_NewRef(results[i]));
    if (list)
        made = PyObject_CallFunctionObjArgs(shape->build, list, NULL);
    Py_XDECREF(list);
    return made;
}

/* Behind the launch: what Python's own way does then, in its order. NULL with an exception set. */
static PyObject *finished(const struct rpp_shape *shape, PyObject *const *results)
{
    if (!rpp_draws_advance(&shape->graph->draws))
        return NULL;
    if (shape->gradients && !rpp_gradients_give(shape->gradients))
        return NULL;
    return built(shape, results);
}

/* Was nothing enqueued, as the stream captures, or memory was freed that the graph uses? */
static bool is_for_python(const struct rpp_shape *shape, rp_status status)
{
    return status == RP_ERROR_UNSUPPORTED ||
           (status == RP_ERROR_CONTRACT && rp_graph_is_stale(shape->graph->graph));
}

static PyObject *replay(const struct hot *hot, const struct rpp_shape *shape,
                        const struct rpp_inputs *inputs)
{
    PyObject *results[RPP_MOST_RESULTS] = {NULL}, *made = NULL;
    uint64_t addresses[RPP_MOST_RESULTS];
    struct rp_error err = {0};
    void *stream = NULL;
    if (!rpp_draws_read(&shape->graph->draws)) { /* the stream captures: Python decides */
        PyErr_Clear();
        return Py_NewRef(miss);
    }
    if (make_results(hot, shape, results, addresses) &&
        hot->exchange->stream(DL_CUDA, shape->ordinal, &stream) == 0) {
        rp_status status = launch(shape, inputs, addresses, stream, &err);
        if (status == RP_OK)
            made = finished(shape, results);
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

/* By the graph, if it is that of the call; `miss` if not. */
static PyObject *try_replay(struct hot *hot, const struct rpp_shape *shape,
                            const struct rpp_inputs *inputs)
{
    if (!shape->graph || rp_graph_is_stale(shape->graph->graph) ||
        rpp_inputs_overlap(inputs, &shape->signature) || !rpp_guard_holds(&hot->guard))
        return Py_NewRef(miss);
    return replay(hot, shape, inputs);
}

/* As the shape's choice says. An eager call needs no guard, but for one at the beginning of a
 * block: what changed is noticed in the end. */
static PyObject *call_judged(struct hot *hot, const struct rpp_shape *shape,
                             const struct rpp_inputs *inputs)
{
    struct rp_turn turn;
    void *stream = NULL;
    if (hot->exchange->stream(DL_CUDA, shape->ordinal, &stream) != 0)
        return PyErr_Occurred() ? NULL : Py_NewRef(miss);
    rpp_choice_begin(shape->choice, stream, 0, &turn);
    if (turn.way == RP_WAY_EAGER && (turn.step != 1 || rpp_guard_holds(&hot->guard)))
        return Py_NewRef(turn.step ? shape->choice : eager);
    PyObject *result = turn.way == RP_WAY_GRAPH ? try_replay(hot, shape, inputs) : Py_NewRef(miss);
    rpp_choice_end(shape->choice, &turn, result && result != miss);
    return result;
}

static PyObject *call_shape(struct hot *hot, const struct rpp_shape *shape,
                            const struct rpp_inputs *inputs)
{
    if (shape->choice)
        return call_judged(hot, shape, inputs);
    if (shape->graph)
        return try_replay(hot, shape, inputs);
    return Py_NewRef(rpp_guard_holds(&hot->guard) ? eager : miss);
}

/* A call without tensors is one of the current device. */
static bool is_of_device(const struct hot *hot, const struct rpp_shape *shape)
{
    if (shape->signature.tensor_count)
        return true;
    PyObject *index = PyObject_CallObject(hot->current_device, NULL);
    bool same = index && PyLong_AsLong(index) == shape->ordinal;
    Py_XDECREF(index);
    PyErr_Clear();
    return same;
}

/* call(args, kwargs): the result, or `miss`; `eager` or the choice where the call is to be made
 * eagerly, by the choice measured. */
static PyObject *hot_call(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    struct hot *hot = (struct hot *)object;
    struct rpp_inputs inputs;
    if (count != 2 || !PyTuple_Check(arguments[0]) || !PyDict_Check(arguments[1]))
        return PyErr_Format(PyExc_TypeError, "call takes a tuple and a dict");
    if (!hot->shapes.count || !read_inputs(hot, arguments[0], arguments[1], &inputs) ||
        !modes_fit(hot, &inputs))
        return Py_NewRef(miss);
    struct rpp_shape *shape = rpp_shapes_take(&hot->shapes, &inputs);
    if (!shape)
        return Py_NewRef(miss);
    PyObject *result = is_of_device(hot, shape) ? call_shape(hot, shape, &inputs) : Py_NewRef(miss);
    rpp_shape_release(shape);
    return result;
}

/* ---- The type ------------------------------------------------------------------------------ */

/* Hot(Tensor, empty_strided, _empty_strided_cuda or None, is_grad_enabled,
 *     is_inference_mode_enabled, is_autocast_enabled, current_device) */
static PyObject *hot_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    PyObject *functions[7];
    if (!PyArg_ParseTuple(args, "OOOOOOO", &functions[0], &functions[1], &functions[2],
                          &functions[3], &functions[4], &functions[5], &functions[6]))
        return NULL;
    PyObject *capsule = PyObject_GetAttrString(functions[0], "__dlpack_c_exchange_api__");
    const struct dl_exchange *exchange =
        capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    Py_XDECREF(capsule);
    if (!exchange)
        return NULL;
    if (exchange->header.major != 1)
        return PyErr_Format(PyExc_NotImplementedError, "DLPack %u is not known",
                            exchange->header.major);
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct hot *hot = (struct hot *)alloc(type, 0);
    if (!hot)
        return NULL;
    hot->exchange = exchange;
    hot->tensor_type = Py_NewRef(functions[0]);
    hot->empty = Py_NewRef(functions[1]);
    hot->quick_empty = Py_NewRef(functions[2]);
    hot->grad_enabled = Py_NewRef(functions[3]);
    hot->inference = Py_NewRef(functions[4]);
    hot->autocast = Py_NewRef(functions[5]);
    hot->current_device = Py_NewRef(functions[6]);
    hot->requires_grad = PyUnicode_InternFromString("requires_grad");
    hot->is_neg = PyUnicode_InternFromString("is_neg");
    hot->resize = PyUnicode_InternFromString("resize_");
    if (hot->requires_grad && hot->is_neg && hot->resize)
        return (PyObject *)hot;
    Py_DECREF(hot);
    return NULL;
}

/* What may refer to the Hot again: a module may have its own graphed callable for an attribute, and
 * the guard has the module's dict. */
static int hot_traverse(PyObject *object, visitproc visit, void *arg)
{
    const struct hot *hot = (struct hot *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(hot->tensor_type);
    Py_VISIT(hot->empty);
    Py_VISIT(hot->quick_empty);
    Py_VISIT(hot->grad_enabled);
    Py_VISIT(hot->inference);
    Py_VISIT(hot->autocast);
    Py_VISIT(hot->current_device);
    Py_VISIT(hot->guard.tensors);
    Py_VISIT(hot->guard.dicts);
    Py_VISIT(hot->guard.handles);
    Py_VISIT(hot->guard.params);
    Py_VISIT(hot->guard.reads);
    return rpp_shapes_traverse(&hot->shapes, visit, arg);
}

static int hot_collect(PyObject *object)
{
    drop_all((struct hot *)object);
    return 0;
}

static void hot_dealloc(PyObject *object)
{
    struct hot *hot = (struct hot *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    drop_all(hot);
    PyObject *held[] = {hot->tensor_type,   hot->empty,     hot->quick_empty,
                        hot->grad_enabled,  hot->inference, hot->autocast,
                        hot->requires_grad, hot->is_neg,    hot->current_device};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        Py_XDECREF(held[i]);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"add", hot_add, METH_VARARGS,
     "add(ordinal, args, kwargs, graph, results, build, choice=None, gradients=()): takes calls of "
     "this shape."},
    {"call", (PyCFunction)(void (*)(void))hot_call, METH_FASTCALL,
     "call(args, kwargs): the result of such a call; miss; or eager, or a Choice that measures it, "
     "where the call is to be made eagerly."},
    {"clear", hot_clear, METH_NOARGS, "Takes no calls from now on."},
    {"is_guarded", hot_is_guarded, METH_NOARGS, "Is all as when the guard was set?"},
    {"renew", hot_renew, METH_VARARGS,
     "renew(next_id, registrations): the same, where others than those that are guarded were "
     "registered until these counts."},
    {"set_guard", hot_set_guard, METH_VARARGS,
     "set_guard(tensors, dicts, handle class, grad, inference, params, reads=None): what must not "
     "change; of params, whether they want gradients."},
    {NULL, NULL, 0, NULL},
};

int rpp_add_hot_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)hot_new},
        {Py_tp_dealloc, (void *)hot_dealloc},
        {Py_tp_traverse, (void *)hot_traverse},
        {Py_tp_clear, (void *)hot_collect},
        {Py_tp_methods, methods},
        {Py_tp_doc, "The short way of calls."},
        {0, NULL},
    };
    static PyType_Spec spec = {"reprise._C.Hot", sizeof(struct hot), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
    PyObject *type = PyType_FromSpec(&spec);
    miss = PyObject_CallObject((PyObject *)&PyBaseObject_Type, NULL);
    eager = PyObject_CallObject((PyObject *)&PyBaseObject_Type, NULL);
    if (!type || !miss || PyModule_AddObjectRef(module, "miss", miss) != 0 || !eager ||
        PyModule_AddObjectRef(module, "eager", eager) != 0)
        return -1;
    return PyModule_AddType(module, (PyTypeObject *)type);
}
