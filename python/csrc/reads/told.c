/* SPDX-License-Identifier: MIT */
#include "reads/told.h"

#include "base/members.h"
#include "reads/same.h"

#include <stddef.h>

struct told {
    PyObject_HEAD PyObject *ask; /* what Python does about an event that is not done with here */
    PyObject *words;             /* a frozenset: names that functions with effects have */
    PyObject *answer;            /* to an event of code that no more is to be told of */
    PyObject *begins;            /* likewise about code that begins */
    PyObject *is_quiet, *is_idle, *makes_names; /* functions: of a code object */
    PyObject *is_harmless;                      /* of a type, and as what */
    PyTypeObject *function, *method, *builtin, *descriptor, *wrapper;
    PyObject *get, *has;   /* getattr, hasattr */
    struct rpp_seen quiet; /* code objects of which a profile was told all that there is */
    /* Types without effects by other names: of methods of their objects; of calls of these. */
    struct rpp_seen owners, called;
};

/* Names of attributes, and events of sys.setprofile. */
static struct {
    PyObject *name, *self, *call, *c_call;
} says;

/* What was said of code, which never changes: of all runs. */
enum { MOST_CODE = 8192 };

static struct answers {
    struct rpp_seen yes, no; /* code objects, which they keep */
} calls_are_quiet, is_told_of_no_more, asks_by_names_it_makes;

/* 1 or 0, as a function of Python's says of code; it is asked once. -1 with an exception set. */
static int told_of_code(struct answers *answers, PyObject *function, PyObject *code)
{
    if (rpp_seen_has(&answers->yes, code))
        return 1;
    if (rpp_seen_has(&answers->no, code))
        return 0;
    PyObject *said = PyObject_CallFunctionObjArgs(function, code, NULL);
    int answer = said ? PyObject_IsTrue(said) : -1;
    Py_XDECREF(said);
    if (answers->yes.count + answers->no.count >= MOST_CODE) {
        rpp_seen_clear(&answers->yes);
        rpp_seen_clear(&answers->no);
    }
    size_t number;
    if (answer >= 0 && !rpp_seen_add(answer ? &answers->yes : &answers->no, code, &number) &&
        PyErr_Occurred())
        return -1;
    return answer;
}

/* ---- Calls --------------------------------------------------------------------------------- */

/* Has it a name that says nothing of effects? An exception is none of the caller's. */
static bool has_other_name(const struct told *told, PyObject *function)
{
    PyObject *name = PyObject_GetAttr(function, says.name);
    bool is_other = name && PyUnicode_CheckExact(name) && PySet_Contains(told->words, name) == 0;
    Py_XDECREF(name);
    PyErr_Clear();
    return is_other;
}

/* Is it known that a type has effects by those names alone? Asks until it is. */
static int is_harmless_type(struct told *told, struct rpp_seen *known, PyObject *type)
{
    if (rpp_seen_has(known, type))
        return 1;
    PyObject *as_called = known == &told->called ? Py_True : Py_False;
    PyObject *said = PyObject_CallFunctionObjArgs(told->is_harmless, type, as_called, NULL);
    int harmless = said ? PyObject_IsTrue(said) : -1;
    Py_XDECREF(said);
    size_t number;
    if (harmless == 1 && !rpp_seen_add(known, type, &number) && PyErr_Occurred())
        return -1;
    return harmless;
}

/* Of a class that class, of another object its type. */
static PyObject *type_of(PyObject *owner)
{
    return PyType_Check(owner) ? owner : (PyObject *)Py_TYPE(owner);
}

/* The same of what a method is bound to. */
static int is_harmless_method(struct told *told, PyObject *method)
{
    PyObject *owner = PyObject_GetAttr(method, says.self);
    int harmless = owner ? is_harmless_type(told, &told->owners, type_of(owner)) : -1;
    Py_XDECREF(owner);
    return harmless;
}

/* 1: the call of this is of no interest; 0: Python has to say; -1 with an exception set. first: its
 * first argument, or NULL. */
static int is_done_with(struct told *told, PyObject *function, PyObject *first)
{
    PyTypeObject *type = Py_TYPE(function);
    if (type == told->function || type == told->method)
        return has_other_name(told, function);
    if (type == told->builtin || type == told->wrapper)
        return has_other_name(told, function) ? is_harmless_method(told, function) : 0;
    if (type == told->descriptor)
        return first && has_other_name(told, function)
                   ? is_harmless_type(told, &told->owners, type_of(first))
                   : 0;
    return is_harmless_type(told, &told->called, type_of(function));
}

static bool is_asker(const struct told *told, const PyObject *object)
{
    return object == told->get || object == told->has;
}

/* Does code ask for an attribute by a name that it has as it is? The walk knows of those. */
static int asks_by_its_names(const struct told *told, PyObject *const *args)
{
    if (!is_asker(told, args[2]) || is_asker(told, args[3]))
        return 0;
    int makes = told_of_code(&asks_by_names_it_makes, told->makes_names, args[0]);
    return makes < 0 ? -1 : !makes;
}

static PyObject *ask(PyObject *function, PyObject *const *args, Py_ssize_t count)
{
    PyObject *given = PyTuple_New(count);
    for (Py_ssize_t i = 0; given && i < count; i++)
        PyTuple_SetItem(given, i, Py_NewRef(args[i]));
    PyObject *answer = given ? PyObject_CallObject(function, given) : NULL;
    Py_XDECREF(given);
    return answer;
}

static PyObject *tell_call(struct told *told, PyObject *const *args, Py_ssize_t count)
{
    if (count != 4)
        return PyErr_Format(PyExc_TypeError, "call takes what sys.monitoring gives");
    int done = told_of_code(&calls_are_quiet, told->is_quiet, args[0]);
    if (done > 0)
        return Py_NewRef(told->answer);
    if (done == 0)
        done = asks_by_its_names(told, args);
    if (done == 0 && !is_asker(told, args[2]) && !is_asker(told, args[3]))
        done = is_done_with(told, args[2], args[3]);
    if (done != 0)
        return done < 0 ? NULL : Py_NewRef(Py_None);
    return ask(told->ask, args, count);
}

static PyObject *tell_start(struct told *told, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "start takes what sys.monitoring gives");
    int idle = told_of_code(&is_told_of_no_more, told->is_idle, args[0]);
    if (idle != 0)
        return idle < 0 ? NULL : Py_NewRef(told->answer);
    return ask(told->begins, args, count);
}

/* ---- Profiles ------------------------------------------------------------------------------ */

static bool is_word(PyObject *text, PyObject *word)
{
    return text == word || (PyUnicode_Check(text) && PyUnicode_Compare(text, word) == 0);
}

/* A function begins: code is asked about until nothing more is to be told of it. */
static PyObject *begins(struct told *told, PyObject *const *args)
{
    PyObject *code = PyObject_GetAttrString(args[0], "f_code");
    PyObject *said = NULL;
    if (code && rpp_seen_has(&told->quiet, code))
        said = Py_NewRef(Py_None);
    else if (code)
        said = ask(told->ask, args, 3);
    size_t number;
    if (said == Py_True && !rpp_seen_add(&told->quiet, code, &number) && PyErr_Occurred())
        Py_CLEAR(said);
    Py_XDECREF(code);
    return said;
}

static PyObject *tell_profile(struct told *told, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "profile takes what sys.setprofile gives");
    if (is_word(args[1], says.call))
        return begins(told, args);
    if (!is_word(args[1], says.c_call))
        return Py_NewRef(Py_None);
    int done = Py_TYPE(args[2]) == told->builtin ? is_done_with(told, args[2], NULL) : 0;
    if (done != 0)
        return done < 0 ? NULL : Py_NewRef(Py_None);
    return ask(told->ask, args, count);
}

/* ---- What the interpreter calls -------------------------------------------------------------- */

typedef PyObject *entry(struct told *told, PyObject *const *args, Py_ssize_t count);

static bool is_main_thread(void)
{
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *main = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
    PyObject *ident = main ? PyObject_GetAttrString(main, "ident") : NULL;
    bool is_here = ident && PyLong_AsUnsignedLong(ident) == PyThread_get_thread_ident();
    Py_XDECREF(ident);
    Py_XDECREF(main);
    Py_XDECREF(threading);
    PyErr_Clear();
    return is_here;
}

static int raise_kept(void *exception)
{
    PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)exception), exception);
    Py_DECREF((PyObject *)exception);
    return -1;
}

/* Where Python was asked and raised: an effect is refused in place of the call. Anything else is most
 * likely of a signal's handler, and is raised behind the call: in place of a lock's __exit__ it would
 * leave the lock held. Signals come to the main thread alone, which pending calls are of. */
static PyObject *refused_or_raised_behind(void)
{
    if (PyErr_ExceptionMatches(rpp_error_type))
        return NULL;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace)
        PyException_SetTraceback(value, trace);
    if (!is_main_thread() || Py_AddPendingCall(raise_kept, value) != 0) {
        PyErr_Restore(type, value, trace);
        return NULL;
    }
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return Py_NewRef(Py_None);
}

/* The interpreter holds no reference to what it calls, and while Python is asked another thread may end
 * the run. */
static PyObject *held(PyObject *self, entry *tell, PyObject *const *args, Py_ssize_t count)
{
    PyObject *kept = Py_NewRef(self);
    PyObject *answer = tell((struct told *)kept, args, count);
    Py_DECREF(kept);
    return answer ? answer : refused_or_raised_behind();
}

static PyObject *told_call(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    return held(self, tell_call, args, count);
}

static PyObject *told_start(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    return held(self, tell_start, args, count);
}

static PyObject *told_profile(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    return held(self, tell_profile, args, count);
}

/* ---- The type ------------------------------------------------------------------------------ */

static const size_t objects[] = {
    offsetof(struct told, ask),         offsetof(struct told, words),
    offsetof(struct told, answer),      offsetof(struct told, begins),
    offsetof(struct told, is_quiet),    offsetof(struct told, is_idle),
    offsetof(struct told, makes_names), offsetof(struct told, is_harmless),
    offsetof(struct told, function),    offsetof(struct told, method),
    offsetof(struct told, builtin),     offsetof(struct told, descriptor),
    offsetof(struct told, wrapper),     offsetof(struct told, get),
    offsetof(struct told, has),
};
enum { OBJECTS = sizeof objects / sizeof *objects };
static const struct rpp_members members = {objects, OBJECTS};

static int told_traverse(PyObject *self, visitproc visit, void *arg)
{
    const struct told *told = (struct told *)self;
    int found = rpp_members_visit(self, &members, visit, arg);
    if (!found)
        found = rpp_seen_visit(&told->quiet, visit, arg);
    if (!found)
        found = rpp_seen_visit(&told->owners, visit, arg);
    return found ? found : rpp_seen_visit(&told->called, visit, arg);
}

static int told_clear(PyObject *self)
{
    struct told *told = (struct told *)self;
    rpp_members_clear(self, &members);
    rpp_seen_clear(&told->quiet);
    rpp_seen_clear(&told->owners);
    rpp_seen_clear(&told->called);
    return 0;
}

static void told_dealloc(PyObject *self)
{
    rpp_deallocate(self, told_clear);
}

/* Told(ask, words, answer, begins, (is_quiet, is_idle, makes_names), is_harmless, (function, method,
 * builtin, descriptor, wrapper), (getattr, hasattr)) */
static PyObject *told_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    PyObject *given[OBJECTS];
    if (!PyArg_ParseTuple(args, "OO!OO(OOO)O(O!O!O!O!O!)(OO)", &given[0], &PyFrozenSet_Type,
                          &given[1], &given[2], &given[3], &given[4], &given[5], &given[6],
                          &given[7], &PyType_Type, &given[8], &PyType_Type, &given[9], &PyType_Type,
                          &given[10], &PyType_Type, &given[11], &PyType_Type, &given[12],
                          &given[13], &given[14]))
        return NULL;
    struct told *told = (struct told *)rpp_allocate(type);
    if (!told)
        return NULL;
    for (size_t i = 0; i < OBJECTS; i++)
        *rpp_member((PyObject *)told, objects[i]) = Py_NewRef(given[i]);
    return (PyObject *)told;
}

int rpp_add_told_type(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"call", (PyCFunction)(void (*)(void))told_call, METH_FASTCALL,
         "call(code, offset, function, first): as sys.monitoring calls it."},
        {"start", (PyCFunction)(void (*)(void))told_start, METH_FASTCALL,
         "start(code, offset): as sys.monitoring calls it."},
        {"profile", (PyCFunction)(void (*)(void))told_profile, METH_FASTCALL,
         "profile(frame, event, argument): as sys.setprofile calls it."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)told_new},
        {Py_tp_dealloc, (void *)told_dealloc},
        {Py_tp_traverse, (void *)told_traverse},
        {Py_tp_clear, (void *)told_clear},
        {Py_tp_methods, methods},
        {Py_tp_doc, "What the interpreter tells of a run, but for what is of no interest."},
        {0, NULL},
    };
    static PyType_Spec spec = {"reprise._C.Told", sizeof(struct told), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
    static const struct rpp_text_at words[] = {{&says.name, "__name__"},
                                               {&says.self, "__self__"},
                                               {&says.call, "call"},
                                               {&says.c_call, "c_call"}};
    if (!rpp_intern(words, sizeof words / sizeof *words))
        return -1;
    PyObject *type = PyType_FromSpec(&spec);
    int added = type ? PyModule_AddType(module, (PyTypeObject *)type) : -1;
    Py_XDECREF(type);
    return added;
}
