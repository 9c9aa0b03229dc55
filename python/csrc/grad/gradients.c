/* SPDX-License-Identifier: MIT */
#include "grad/gradients.h"

#include "base/gradient_address.h"

struct gradient {
    PyObject *param;
    PyObject *given;               /* or None; NULL: left alone */
    struct rpp_tensor_place place; /* of one that is used; what DLPack says, offset 0 */
    struct rpp_tensor_place left;  /* of the given one, if that is a plain tensor */
    bool is_looked, is_missing;
    bool is_used, asks_dlpack;
    bool is_left, left_asks_dlpack;
    bool is_quick; /* looked up in memory, never by its attribute */
    bool is_there; /* is the given one, as the call that is under way found it by the attribute? */
};

struct rpp_gradients {
    const struct dl_exchange *exchange;
    PyObject *tensor_type; /* borrowed: of torch */
    size_t count;
    struct gradient list[];
};

static PyObject *name; /* "grad" */

/* 1 or 0; -1 with an exception set. */
static int has_gradient(PyObject *param)
{
    if (rpp_gradient_is_known(param))
        return rpp_gradient_of(param) != NULL;
    PyObject *grad = PyObject_GetAttr(param, name);
    int has = grad ? grad != Py_None : -1;
    Py_XDECREF(grad);
    return has;
}

static bool add_number(PyObject *list, Py_ssize_t i)
{
    PyObject *number = PyLong_FromSsize_t(i);
    bool added = number && PyList_Append(list, number) == 0;
    Py_XDECREF(number);
    return added;
}

PyObject *rpp_with_gradients(PyObject *module, PyObject *params)
{
    rpp_assert_gil();
    (void)module;
    PyObject *all = PySequence_Tuple(params), *found = all ? PyList_New(0) : NULL;
    for (Py_ssize_t i = 0; found && i < PyTuple_Size(all); i++) {
        int has = has_gradient(PyTuple_GetItem(all, i));
        if (has < 0 || (has && !add_number(found, i)))
            Py_CLEAR(found);
    }
    Py_XDECREF(all);
    return found;
}

int rpp_gradients_prepare(void)
{
    name = PyUnicode_InternFromString("grad");
    return name ? 0 : -1;
}

static bool is_plain(const struct rpp_gradients *gradients, const PyObject *tensor)
{
    return (PyObject *)Py_TYPE(tensor) == gradients->tensor_type;
}

/* ---- Places -------------------------------------------------------------------------------- */

/* As exchange->look, of what may be no plain tensor, and without an exception. */
static bool look(const struct rpp_gradients *gradients, PyObject *grad, struct dl_tensor *out_seen)
{
    if (is_plain(gradients, grad) && gradients->exchange->look(grad, out_seen) == 0)
        return true;
    PyErr_Clear();
    return false;
}

/* Where a gradient lies now, in the way that was chosen for it; false where that is not known. */
static bool find_place(const struct rpp_gradients *gradients, bool asks_dlpack, PyObject *grad,
                       struct rpp_tensor_place *out_place)
{
    struct dl_tensor seen;
    if (asks_dlpack) {
        if (!look(gradients, grad, &seen))
            return false;
        *out_place = (struct rpp_tensor_place){rpp_tensor_seen(&seen), 0};
        return true;
    }
    if (!is_plain(gradients, grad))
        return false;
    *out_place = rpp_tensor_place(grad);
    return true;
}

/* Does DLPack have to be asked for the place of a gradient that it saw? */
static bool must_ask(PyObject *grad, const struct dl_tensor *seen)
{
    return !rpp_tensor_layout.known || !rpp_tensor_is_placed(grad, seen);
}

/* Notes where the gradient lies, in the quick way if that agrees with DLPack; false, perhaps with
 * an exception, if not at the address. */
static bool note_place(const struct rpp_gradients *gradients, struct gradient *of, PyObject *grad,
                       PyObject *address)
{
    struct dl_tensor seen;
    unsigned long long wanted = PyLong_AsUnsignedLongLong(address);
    if (PyErr_Occurred() || !look(gradients, grad, &seen) || rpp_tensor_seen(&seen) != wanted)
        return false;
    of->asks_dlpack = must_ask(grad, &seen);
    return find_place(gradients, of->asks_dlpack, grad, &of->place);
}

/* Notes where the given one lies, if it is a plain tensor: a program may point it at other memory,
 * which the graph does not write. */
static void note_left(const struct rpp_gradients *gradients, struct gradient *of)
{
    struct dl_tensor seen;
    if (!of->given || of->given == Py_None || !look(gradients, of->given, &seen))
        return;
    of->left_asks_dlpack = must_ask(of->given, &seen);
    of->is_left = find_place(gradients, of->left_asks_dlpack, of->given, &of->left);
}

/* ---- Making -------------------------------------------------------------------------------- */

/* May the parameter's gradient be looked up in its memory? There is what its attribute says. */
static bool may_be_quick(const struct rpp_gradients *gradients, const struct gradient *of,
                         const PyObject *grad)
{
    if (!rpp_gradient_is_known(of->param) || of->asks_dlpack ||
        (of->given && of->given != Py_None && !is_plain(gradients, of->given)))
        return false;
    const uint64_t *impl = rpp_gradient_of(of->param);
    return grad == Py_None ? !impl : is_plain(gradients, grad) && rpp_tensor_impl(grad) == impl;
}

static bool read_one(const struct rpp_gradients *gradients, struct gradient *of, PyObject *from)
{
    PyObject *param, *missing, *address, *given = NULL;
    if (!PyTuple_Check(from)) {
        PyErr_SetString(PyExc_TypeError, "gradients are tuples, one a parameter");
        return false;
    }
    if (!PyArg_ParseTuple(from, "OOO|O", &param, &missing, &address, &given))
        return false;
    *of = (struct gradient){.param = Py_NewRef(param),
                            .given = Py_XNewRef(given),
                            .is_looked = missing != Py_None,
                            .is_missing = missing == Py_True,
                            .is_used = address != Py_None};
    PyObject *grad = PyObject_GetAttr(param, name);
    if (!grad)
        return false;
    note_left(gradients, of);
    bool known = !of->is_used || note_place(gradients, of, grad, address);
    of->is_quick = known && may_be_quick(gradients, of, grad);
    Py_DECREF(grad);
    return known;
}

struct rpp_gradients *rpp_gradients_create(PyObject *list, const struct dl_exchange *exchange,
                                           PyObject *tensor_type)
{
    rpp_assert_gil();
    size_t count = (size_t)PyTuple_Size(list);
    struct rpp_gradients *made = PyMem_Malloc(sizeof *made + count * sizeof *made->list);
    if (!made) {
        PyErr_NoMemory();
        return NULL;
    }
    *made = (struct rpp_gradients){.exchange = exchange, .tensor_type = tensor_type};
    for (size_t i = 0; i < count; i++) {
        made->list[i] = (struct gradient){0};
        made->count++;
        if (!read_one(made, &made->list[i], PyTuple_GetItem(list, (Py_ssize_t)i))) {
            rpp_gradients_destroy(made);
            return NULL;
        }
    }
    return made;
}

void rpp_gradients_destroy(struct rpp_gradients *gradients)
{
    rpp_assert_gil();
    for (size_t i = 0; gradients && i < gradients->count; i++) {
        Py_XDECREF(gradients->list[i].param);
        Py_XDECREF(gradients->list[i].given);
    }
    PyMem_Free(gradients);
}

int rpp_gradients_traverse(const struct rpp_gradients *gradients, visitproc visit, void *arg)
{
    for (size_t i = 0; gradients && i < gradients->count; i++) {
        Py_VISIT(gradients->list[i].param);
        Py_VISIT(gradients->list[i].given);
    }
    return 0;
}

/* ---- Calls --------------------------------------------------------------------------------- */

static bool decides(const struct gradient *of)
{
    return of->is_looked || of->is_used;
}

static bool fits_quickly(const struct gradient *of)
{
    const uint64_t *grad = rpp_gradient_of(of->param);
    return (!of->is_looked || !grad == of->is_missing) &&
           (!of->is_used || (grad && rpp_tensor_same_place(rpp_impl_place(grad), of->place)));
}

static bool fits(const struct rpp_gradients *gradients, struct gradient *of)
{
    struct rpp_tensor_place place;
    PyObject *grad = PyObject_GetAttr(of->param, name);
    if (!grad) {
        PyErr_Clear();
        return false;
    }
    bool missing = grad == Py_None;
    bool fit = (!of->is_looked || missing == of->is_missing) &&
               (!of->is_used || (!missing && find_place(gradients, of->asks_dlpack, grad, &place) &&
                                 rpp_tensor_same_place(place, of->place)));
    of->is_there = grad == of->given;
    Py_DECREF(grad);
    return fit;
}

/* Does the given one lie where the graph leaves it? */
static bool is_at_hand(const struct rpp_gradients *gradients, const struct gradient *of)
{
    struct rpp_tensor_place place;
    return !of->is_left || (find_place(gradients, of->left_asks_dlpack, of->given, &place) &&
                            rpp_tensor_same_place(place, of->left));
}

bool rpp_gradients_fit(struct rpp_gradients *gradients)
{
    rpp_assert_gil();
    for (size_t i = 0; i < gradients->count; i++) {
        struct gradient *of = &gradients->list[i];
        if (!is_at_hand(gradients, of) ||
            (decides(of) && !(of->is_quick ? fits_quickly(of) : fits(gradients, of))))
            return false;
    }
    return true;
}

/* Has the parameter the given one? -1 with an exception set. */
static int is_there(const struct gradient *of)
{
    if (of->is_quick)
        return rpp_gradient_of(of->param) ==
               (of->given == Py_None ? NULL : rpp_tensor_impl(of->given));
    if (decides(of))
        return of->is_there;
    PyObject *grad = PyObject_GetAttr(of->param, name);
    Py_XDECREF(grad);
    return grad ? grad == of->given : -1;
}

bool rpp_gradients_give(struct rpp_gradients *gradients)
{
    rpp_assert_gil();
    for (size_t i = 0; i < gradients->count; i++) {
        const struct gradient *of = &gradients->list[i];
        int there = of->given ? is_there(of) : 1;
        if (there < 0 || (!there && PyObject_SetAttr(of->param, name, of->given) != 0))
            return false;
    }
    return true;
}
