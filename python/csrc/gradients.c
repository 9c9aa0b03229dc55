/* SPDX-License-Identifier: MIT */
#include "gradients.h"

#include "tensor_address.h"

struct gradient {
    PyObject *param;
    PyObject *given;               /* or None; NULL: left alone */
    struct rpp_tensor_place place; /* of one that is used; what DLPack says, offset 0 */
    bool is_looked, is_missing;
    bool is_used, asks_dlpack;
    bool is_there; /* is the given one, as the call that is under way found it? */
};

struct rpp_gradients {
    const struct dl_exchange *exchange;
    PyObject *tensor_type; /* borrowed: of torch */
    size_t count;
    struct gradient list[];
};

static PyObject *name; /* "grad" */

int rpp_gradients_prepare(void)
{
    name = PyUnicode_InternFromString("grad");
    return name ? 0 : -1;
}

/* ---- Places -------------------------------------------------------------------------------- */

/* Where a gradient lies now, in the way that was chosen for it. False, without an exception, where
 * that is not known of it. */
static bool find_place(const struct rpp_gradients *gradients, const struct gradient *of,
                       PyObject *grad, struct rpp_tensor_place *out_place)
{
    struct dl_tensor seen;
    if ((PyObject *)Py_TYPE(grad) != gradients->tensor_type)
        return false;
    if (!of->asks_dlpack) {
        *out_place = rpp_tensor_place(grad);
        return true;
    }
    if (gradients->exchange->look(grad, &seen) == 0) {
        *out_place = (struct rpp_tensor_place){rpp_tensor_seen(&seen), 0};
        return true;
    }
    PyErr_Clear();
    return false;
}

/* Notes where the parameter's gradient lies, in the quick way if that agrees with DLPack; false,
 * perhaps with an exception, if not at the address. */
static bool note_place(const struct rpp_gradients *gradients, struct gradient *of,
                       PyObject *address)
{
    struct dl_tensor seen;
    unsigned long long wanted = PyLong_AsUnsignedLongLong(address);
    PyObject *grad = PyErr_Occurred() ? NULL : PyObject_GetAttr(of->param, name);
    bool there = grad && (PyObject *)Py_TYPE(grad) == gradients->tensor_type &&
                 gradients->exchange->look(grad, &seen) == 0 && rpp_tensor_seen(&seen) == wanted;
    if (there) {
        of->asks_dlpack = !rpp_tensor_layout.known || !rpp_tensor_is_placed(grad, &seen);
        there = find_place(gradients, of, grad, &of->place);
    }
    Py_XDECREF(grad);
    return there;
}

/* ---- Making -------------------------------------------------------------------------------- */

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
    return !of->is_used || note_place(gradients, of, address);
}

struct rpp_gradients *rpp_gradients_create(PyObject *list, const struct dl_exchange *exchange,
                                           PyObject *tensor_type)
{
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
               (!of->is_used || (!missing && find_place(gradients, of, grad, &place) &&
                                 rpp_tensor_same_place(place, of->place)));
    of->is_there = grad == of->given;
    Py_DECREF(grad);
    return fit;
}

bool rpp_gradients_fit(struct rpp_gradients *gradients)
{
    for (size_t i = 0; i < gradients->count; i++)
        if (decides(&gradients->list[i]) && !fits(gradients, &gradients->list[i]))
            return false;
    return true;
}

static bool give(const struct gradient *of)
{
    bool there = of->is_there;
    if (!decides(of)) {
        PyObject *grad = PyObject_GetAttr(of->param, name);
        if (!grad)
            return false;
        there = grad == of->given;
        Py_DECREF(grad);
    }
    return there || PyObject_SetAttr(of->param, name, of->given) == 0;
}

bool rpp_gradients_give(struct rpp_gradients *gradients)
{
    for (size_t i = 0; i < gradients->count; i++)
        if (gradients->list[i].given && !give(&gradients->list[i]))
            return false;
    return true;
}
