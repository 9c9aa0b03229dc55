/* SPDX-License-Identifier: MIT
 *
 * Judge and Choice: rp_way_judge of a callable and rp_way_choice of a shape, for Python and for the
 * fast path. Guarded by the GIL; a call may let other threads run between its begin and its end, so what
 * a call was told is kept with the call, and where two calls of a shape are under way at once the
 * library measures neither.
 */
#include "call/choice.h"

static PyTypeObject *judge_type;
PyTypeObject *rpp_choice_type;

struct judge {
    PyObject_HEAD struct rp_way_judge *judge;
};

struct rpp_choice {
    PyObject_HEAD struct rp_way_choice *choice;
    struct judge *judge;
    struct rp_way_turn turn; /* of the latest call */
};

/* ---- Judge --------------------------------------------------------------------------------- */

/* Judge(ordinal) */
static PyObject *judge_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    struct rp_way_judge *made;
    struct rp_error err = {0};
    struct rp_device *device = rpp_parse_device(args);
    if (!device)
        return NULL;
    rp_status status = rp_way_judge_create(device, &made, &err);
    if (status != RP_OK)
        return rpp_set_error(status, &err);
    struct judge *self = (struct judge *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self) {
        rp_way_judge_destroy(made);
        return NULL;
    }
    self->judge = made;
    return (PyObject *)self;
}

static void judge_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    if (!atomic_load(&rpp_state.leaving))
        rp_way_judge_destroy(((struct judge *)object)->judge);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* ---- Choice -------------------------------------------------------------------------------- */

/* Choice(judge) */
static PyObject *choice_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    PyObject *judge;
    struct rp_way_choice *made;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "O!", judge_type, &judge))
        return NULL;
    rp_status status = rp_way_choice_create(((struct judge *)judge)->judge, &made, &err);
    if (status != RP_OK)
        return rpp_set_error(status, &err);
    struct rpp_choice *self =
        (struct rpp_choice *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self) {
        rp_way_choice_destroy(made);
        return NULL;
    }
    self->choice = made;
    self->judge = (struct judge *)Py_NewRef(judge);
    return (PyObject *)self;
}

static void choice_dealloc(PyObject *object)
{
    struct rpp_choice *self = (struct rpp_choice *)object;
    PyTypeObject *type = Py_TYPE(object);
    rp_way_choice_destroy(self->choice);
    Py_XDECREF((PyObject *)self->judge);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

void rpp_choice_begin(PyObject *choice, void *stream, double ahead_us, struct rp_way_turn *out_turn)
{
    rpp_assert_gil();
    struct rpp_choice *self = (struct rpp_choice *)choice;
    rp_way_choice_begin(self->choice, stream, ahead_us, &self->turn);
    *out_turn = self->turn;
}

void rpp_choice_end(PyObject *choice, const struct rp_way_turn *turn, bool worked)
{
    rpp_assert_gil();
    rp_way_choice_end(((struct rpp_choice *)choice)->choice, turn, worked);
}

/* begin(stream, ahead in us): the turn, whose way is the number of an enum rp_way. */
static PyObject *choice_begin(PyObject *object, PyObject *args)
{
    struct rp_way_turn turn;
    unsigned long long stream;
    double ahead_us;
    if (!PyArg_ParseTuple(args, "Kd", &stream, &ahead_us))
        return NULL;
    rpp_choice_begin(object, (void *)(uintptr_t)stream, ahead_us, &turn);
    return Py_BuildValue("(iII)", (int)turn.way, turn.step, turn.round);
}

/* turn(): of the call that the fast path began and left to Python. */
static PyObject *choice_turn(PyObject *object, PyObject *unused)
{
    (void)unused;
    const struct rp_way_turn *turn = &((struct rpp_choice *)object)->turn;
    return Py_BuildValue("(iII)", (int)turn->way, turn->step, turn->round);
}

/* end(turn, worked) */
static PyObject *choice_end(PyObject *object, PyObject *args)
{
    struct rp_way_turn turn = {.way = RP_WAY_EAGER};
    int way, worked;
    if (!PyArg_ParseTuple(args, "(iII)p", &way, &turn.step, &turn.round, &worked))
        return NULL;
    turn.way = (enum rp_way)way;
    rp_way_choice_end(((struct rpp_choice *)object)->choice, &turn, worked);
    return Py_NewRef(Py_None);
}

/* captured(worked, ms) */
static PyObject *choice_captured(PyObject *object, PyObject *args)
{
    int worked;
    double ms;
    if (!PyArg_ParseTuple(args, "pd", &worked, &ms))
        return NULL;
    rp_way_choice_captured(((struct rpp_choice *)object)->choice, worked, ms);
    return Py_NewRef(Py_None);
}

/* rest(most) */
static PyObject *choice_rest(PyObject *object, PyObject *args)
{
    unsigned most;
    if (!PyArg_ParseTuple(args, "I", &most))
        return NULL;
    return PyLong_FromUnsignedLong(rp_way_choice_rest(((struct rpp_choice *)object)->choice, most));
}

static PyObject *choice_info(PyObject *object, PyObject *unused)
{
    (void)unused;
    struct rp_way_choice_info info = {.size = sizeof info};
    rp_way_choice_info(((struct rpp_choice *)object)->choice, &info);
    return Py_BuildValue("{sssssdsdsKsKsKsKsdsdsO}", "choice", info.choice, "reason", info.reason,
                         "eager_us", info.eager_us, "graph_us", info.graph_us, "judged_calls",
                         info.calls, "measured_calls", info.measured_calls, "switches",
                         info.switches, "drifts", info.drifts, "capture_ms", info.capture_ms,
                         "trial_ms", info.trial_ms, "settled",
                         info.is_settled ? Py_True : Py_False);
}

static PyMethodDef choice_methods[] = {
    {"begin", choice_begin, METH_VARARGS,
     "begin(stream, ahead in us): the turn of the next call: (way, ..), for end()."},
    {"turn", choice_turn, METH_NOARGS, "The turn that was begun last."},
    {"end", choice_end, METH_VARARGS, "end(turn, worked): the call is enqueued."},
    {"captured", choice_captured, METH_VARARGS, "captured(worked, ms): what became of a capture."},
    {"rest", choice_rest, METH_VARARGS,
     "rest(most): how many next calls go the same way without begin and end; counts them."},
    {"info", choice_info, METH_NOARGS, "Facts, as struct rp_way_choice_info has them."},
    {NULL, NULL, 0, NULL},
};

/* ---- The types ----------------------------------------------------------------------------- */

int rpp_add_choice_types(PyObject *module)
{
    static PyType_Slot judge_slots[] = {
        {Py_tp_new, (void *)judge_new},
        {Py_tp_dealloc, (void *)judge_dealloc},
        {Py_tp_doc, "What the choices of one callable share: Judge(ordinal)."},
        {0, NULL},
    };
    static PyType_Slot choice_slots[] = {
        {Py_tp_new, (void *)choice_new},
        {Py_tp_dealloc, (void *)choice_dealloc},
        {Py_tp_methods, choice_methods},
        {Py_tp_doc, "Eager or graph, for the calls of one shape: Choice(judge)."},
        {0, NULL},
    };
    static PyType_Spec judge_spec = {"reprise._C.Judge", sizeof(struct judge), 0,
                                     Py_TPFLAGS_DEFAULT, judge_slots};
    static PyType_Spec choice_spec = {"reprise._C.Choice", sizeof(struct rpp_choice), 0,
                                      Py_TPFLAGS_DEFAULT, choice_slots};
    judge_type = (PyTypeObject *)PyType_FromSpec(&judge_spec);
    rpp_choice_type = (PyTypeObject *)PyType_FromSpec(&choice_spec);
    if (!judge_type || !rpp_choice_type || PyModule_AddType(module, judge_type) != 0)
        return -1;
    return PyModule_AddType(module, rpp_choice_type);
}
