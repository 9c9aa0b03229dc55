/* SPDX-License-Identifier: MIT */
#include "reads/descriptors.h"

#include "reads/layouts.h"

#include <string.h>

/* Until the next version of CPython has been looked at. */
enum { NEWEST = 0x030f0000 };

uint64_t rpp_told_changes[RPP_TOLD];

/* A descriptor of CPython's, whose fields the stable interface hides. */
struct descriptor {
    PyObject object;
    PyObject *type, *name, *qualified_name;
    PyGetSetDef *functions;
};

/* What a descriptor called, and what it calls now, for ever. */
struct told {
    PyGetSetDef before, now;
    bool is_proved;
};

static struct told class_of, dict_of;

/* Attributes of objects of some types of Python's own, and the probe's method that sets each. What a
 * descriptor of one calls is given its entry. */
enum of { OF_TYPES, OF_FUNCTIONS, OF_CELLS, OF };
static struct named {
    enum of of;
    const char *name, *method;
    struct told told;
} named[] = {
    {OF_TYPES, "__name__", "type_named", {{0}}},
    {OF_TYPES, "__qualname__", "type_qualified", {{0}}},
    {OF_TYPES, "__bases__", "type_moved", {{0}}},
    {OF_FUNCTIONS, "__name__", "function_named", {{0}}},
    {OF_FUNCTIONS, "__qualname__", "function_qualified", {{0}}},
    {OF_FUNCTIONS, "__dict__", "function_dict_moved", {{0}}},
    {OF_FUNCTIONS, "__module__", "function_module_moved", {{0}}},
    {OF_FUNCTIONS, "__code__", "function_coded", {{0}}},
    {OF_FUNCTIONS, "__defaults__", "function_defaulted", {{0}}},
    {OF_FUNCTIONS, "__kwdefaults__", "function_defaulted_by_name", {{0}}},
    {OF_CELLS, "cell_contents", "cell_filled", {{0}}},
};
enum { NAMED = sizeof named / sizeof *named };
static PyTypeObject *type_of[OF]; /* whose objects they are of; NULL: not known */

/* Code that runs in the midst, of an audit hook or as the old dict goes, may look too: at what was
 * there ahead of it, and at what is there behind. */
static int set_told(enum rpp_told what, const struct told *told, PyObject *object, PyObject *value)
{
    rpp_told_changes[what]++;
    int result = told->before.set(object, value, told->before.closure);
    rpp_told_changes[what]++;
    return result;
}

static int set_class(PyObject *object, PyObject *value, void *closure)
{
    (void)closure;
    return set_told(RPP_INSTANCES, &class_of, object, value);
}

static int set_dict(PyObject *object, PyObject *value, void *closure)
{
    (void)closure;
    return set_told(RPP_INSTANCES, &dict_of, object, value);
}

static int set_named(PyObject *object, PyObject *value, void *told)
{
    return set_told(RPP_NAMES, told, object, value);
}

static PyObject *get_named(PyObject *object, void *told)
{
    const PyGetSetDef *before = &((const struct told *)told)->before;
    return before->get(object, before->closure);
}

/* What a class has by this name itself, new; NULL, without an exception, where it has nothing. */
static PyObject *own_attribute(PyObject *type, const char *name)
{
    PyObject *names = PyObject_GetAttrString(type, "__dict__");
    PyObject *found = names ? PyMapping_GetItemString(names, name) : NULL;
    Py_XDECREF(names);
    PyErr_Clear();
    return found;
}

static struct descriptor *descriptor_of(PyObject *object)
{
    return object && Py_TYPE(object) == &PyGetSetDescr_Type ? (struct descriptor *)object : NULL;
}

/* Notes what the descriptor calls and replaces it. */
static bool replace(PyObject *object, const char *name, setter set, struct told *told)
{
    struct descriptor *descriptor = descriptor_of(object);
    if (!descriptor || !descriptor->functions || !descriptor->functions->set ||
        strcmp(descriptor->functions->name, name) != 0)
        return false;
    told->before = told->now = *descriptor->functions;
    told->now.set = set;
    descriptor->functions = &told->now;
    return true;
}

/* ---- Members -------------------------------------------------------------------------------- */

/* A descriptor of a member, which names a place in the object, calls nothing. Another one takes its
 * place in the type, whose functions ask it. */
static int set_member(PyObject *object, PyObject *value, void *member)
{
    descrsetfunc set = (descrsetfunc)PyType_GetSlot(Py_TYPE((PyObject *)member), Py_tp_descr_set);
    return set(member, object, value);
}

static PyObject *get_member(PyObject *object, void *member)
{
    descrgetfunc get = (descrgetfunc)PyType_GetSlot(Py_TYPE((PyObject *)member), Py_tp_descr_get);
    return get(member, object, (PyObject *)Py_TYPE(object));
}

/* The dict of a type of the interpreter's, which it shows behind a proxy; borrowed; NULL: it is not
 * where this file looks for it. */
static PyObject *dict_behind(PyObject *proxy)
{
    if (Py_TYPE(proxy) != &PyDictProxy_Type)
        return NULL;
    PyObject *dict = ((PyObject **)proxy)[sizeof(PyObject) / sizeof(PyObject *)];
    return dict && PyDict_Check(dict) ? dict : NULL;
}

static bool replace_member(PyTypeObject *type, PyObject *member, const char *name,
                           struct told *told)
{
    told->before = (PyGetSetDef){name, get_member, set_member, NULL, member};
    told->now = (PyGetSetDef){name, get_member, set_named, NULL, NULL};
    PyObject *names = PyObject_GetAttrString((PyObject *)type, "__dict__");
    PyObject *dict = names ? dict_behind(names) : NULL; /* borrowed */
    PyObject *made = dict ? PyDescr_NewGetSet(type, &told->now) : NULL;
    bool worked = made && PyDict_GetItemString(dict, name) == member &&
                  PyDict_SetItemString(dict, name, made) == 0;
    if (worked) {
        Py_INCREF(member); /* for ever */
        PyType_Modified(type);
    }
    Py_XDECREF(made);
    Py_XDECREF(names);
    PyErr_Clear();
    return worked;
}

/* ---- The proof ------------------------------------------------------------------------------ */

/* Calls this method of the probe: may it, and does the count move? */
static bool moves(enum rpp_told what, PyObject *probe, const char *method)
{
    uint64_t before = rpp_told_changes[what];
    PyObject *done = PyObject_CallMethod(probe, method, NULL);
    bool is_true = done == Py_True;
    Py_XDECREF(done);
    PyErr_Clear();
    return is_true && rpp_told_changes[what] == before + 2;
}

static const char text_of_probe[] =
    "class Other:\n"
    "    def back(self):\n"
    "        self.__class__ = Probe\n"
    "        return type(self) is Probe\n"
    "class Probe:\n"
    "    def renamed(self):\n"
    "        self.__class__ = Other\n"
    "        return type(self) is Other\n"
    "    def moved(self):\n"
    "        old, new = self.__dict__, {'a': 1}\n"
    "        self.__dict__ = new\n"
    "        return self.__dict__ is new and self.a == 1 and old is not new\n"
    "    def emptied(self):\n"
    "        del self.__dict__\n"
    "        return not self.__dict__\n"
    "    def type_named(self):\n"
    "        Below.__name__ = 'named'\n"
    "        return Below.__name__ == 'named'\n"
    "    def type_qualified(self):\n"
    "        Below.__qualname__ = 'a.named'\n"
    "        return Below.__qualname__ == 'a.named'\n"
    "    def type_moved(self):\n"
    "        Below.__bases__ = (Other,)\n"
    "        return Below.__bases__ == (Other,) == Below.__mro__[1:2]\n"
    "    def function_named(self):\n"
    "        function.__name__ = 'named'\n"
    "        return function.__name__ == 'named'\n"
    "    def function_qualified(self):\n"
    "        function.__qualname__ = 'a.named'\n"
    "        return function.__qualname__ == 'a.named'\n"
    "    def function_dict_moved(self):\n"
    "        new = {'a': 1}\n"
    "        function.__dict__ = new\n"
    "        return function.__dict__ is new and function.a == 1\n"
    "    def function_module_moved(self):\n"
    "        function.__module__ = 'a.module'\n"
    "        return function.__module__ == 'a.module'\n"
    "    def function_coded(self):\n"
    "        plain.__code__ = other.__code__\n"
    "        return plain.__code__ is other.__code__ and plain() == 2\n"
    "    def function_defaulted(self):\n"
    "        plain.__defaults__ = 3,\n"
    "        return plain.__defaults__ == (3,)\n"
    "    def function_defaulted_by_name(self):\n"
    "        plain.__kwdefaults__ = {'a': 4}\n"
    "        return plain.__kwdefaults__ == {'a': 4}\n"
    "    def cell_filled(self):\n"
    "        cell.cell_contents = self\n"
    "        return cell.cell_contents is self is function()\n"
    "class Below(Probe):\n"
    "    pass\n"
    "def make(held=None):\n"
    "    return lambda: held\n"
    "def plain(held=None):\n"
    "    return 1\n"
    "def other(held=None):\n"
    "    return 2\n"
    "function = make()\n"
    "cell = function.__closure__[0]\n"
    "probe = Probe()\n";

/* Names of a new module in which that ran; NULL, without an exception. */
static PyObject *run_probe(void)
{
    PyObject *names = PyDict_New(), *builtins = PyImport_ImportModule("builtins");
    PyObject *code = Py_CompileString(text_of_probe, "<reprise>", Py_file_input), *done = NULL;
    if (names && builtins && code && PyDict_SetItemString(names, "__builtins__", builtins) == 0)
        done = PyEval_EvalCode(code, names, names);
    if (!done)
        Py_CLEAR(names);
    Py_XDECREF(done);
    Py_XDECREF(code);
    Py_XDECREF(builtins);
    PyErr_Clear();
    return names;
}

/* Does a descriptor look as this file has it? */
static bool is_known(void)
{
    const PyObject *version = PySys_GetObject("hexversion");
    PyObject *size = PyObject_GetAttrString((PyObject *)&PyGetSetDescr_Type, "__basicsize__");
    bool known = version && size && PyLong_AsUnsignedLongMask((PyObject *)version) < NEWEST &&
                 PyLong_AsSize_t(size) == sizeof(struct descriptor);
    Py_XDECREF(size);
    PyErr_Clear();
    return known;
}

static void prepare_instances(PyObject *probe)
{
    PyObject *class = own_attribute((PyObject *)&PyBaseObject_Type, "__class__");
    PyObject *dict = own_attribute((PyObject *)Py_TYPE(probe), "__dict__");
    dict_of.is_proved = replace(dict, "__dict__", set_dict, &dict_of) &&
                        moves(RPP_INSTANCES, probe, "moved") &&
                        moves(RPP_INSTANCES, probe, "emptied");
    class_of.is_proved = replace(class, "__class__", set_class, &class_of) &&
                         moves(RPP_INSTANCES, probe, "renamed") &&
                         moves(RPP_INSTANCES, probe, "back");
    Py_XDECREF(class);
    Py_XDECREF(dict);
}

static void prepare_named(PyObject *probe, struct named *attribute)
{
    PyTypeObject *type = type_of[attribute->of];
    struct told *told = &attribute->told;
    PyObject *descriptor = own_attribute((PyObject *)type, attribute->name);
    bool is_member = descriptor && Py_TYPE(descriptor) == &PyMemberDescr_Type;
    if (is_member ? replace_member(type, descriptor, attribute->name, told)
                  : replace(descriptor, attribute->name, set_named, told)) {
        told->now.get = get_named;
        told->now.closure = told;
        told->is_proved = moves(RPP_NAMES, probe, attribute->method);
    }
    Py_XDECREF(descriptor);
}

void rpp_descriptors_prepare(void)
{
    rpp_assert_gil();
    if (class_of.before.set || dict_of.before.set) /* imported in another interpreter too */
        return;
    PyObject *names = is_known() ? run_probe() : NULL;
    PyObject *probe = names ? PyDict_GetItemString(names, "probe") : NULL; /* borrowed */
    PyObject *function = names ? PyDict_GetItemString(names, "function") : NULL;
    PyObject *cell = names ? PyDict_GetItemString(names, "cell") : NULL;
    if (probe && function && cell) {
        type_of[OF_TYPES] = &PyType_Type;
        type_of[OF_FUNCTIONS] = Py_TYPE(function);
        type_of[OF_CELLS] = Py_TYPE(cell);
        for (size_t i = 0; i < NAMED; i++)
            prepare_named(probe, &named[i]);
        prepare_instances(probe);
    }
    Py_XDECREF(names);
}

bool rpp_attribute_is_told(PyObject *object, const char *name)
{
    rpp_assert_gil();
    for (size_t i = 0; name && i < NAMED; i++)
        if (strcmp(name, named[i].name) == 0 &&
            (named[i].of == OF_TYPES ? PyType_Check(object)
                                     : Py_TYPE(object) == type_of[named[i].of]))
            return named[i].told.is_proved;
    return false;
}

bool rpp_classes_are_told(void)
{
    rpp_assert_gil();
    return class_of.is_proved;
}

/* ---- Dicts --------------------------------------------------------------------------------- */

/* Is this descriptor of a dict one of those that tell, or made one of them now? */
static bool is_told(PyObject *object)
{
    struct descriptor *descriptor = descriptor_of(object);
    if (!descriptor || !descriptor->functions)
        return false;
    if (descriptor->functions->set == dict_of.before.set &&
        descriptor->functions->get == dict_of.before.get)
        descriptor->functions = &dict_of.now;
    return descriptor->functions == &dict_of.now;
}

/* Has each class that an object's class comes from, and that has such a descriptor, one that tells? */
static bool type_is_told(PyTypeObject *type)
{
    PyObject *order = PyObject_GetAttrString((PyObject *)type, "__mro__");
    bool told = order && PyTuple_Check(order);
    size_t found = 0;
    for (Py_ssize_t i = 0; told && i < PyTuple_Size(order); i++) {
        PyObject *dict = own_attribute(PyTuple_GetItem(order, i), "__dict__");
        told = !dict || is_told(dict);
        found += dict != NULL;
        Py_XDECREF(dict);
    }
    Py_XDECREF(order);
    PyErr_Clear();
    return told && found > 0;
}

bool rpp_dict_is_told(PyObject *object, struct rpp_told_types *types)
{
    rpp_assert_gil();
    enum { MOST = sizeof types->list / sizeof *types->list };
    PyTypeObject *type = Py_TYPE(object);
    if (!dict_of.is_proved)
        return false;
    for (size_t i = 0; i < types->count; i++)
        if (types->list[i].type == type)
            return types->list[i].is_told;
    bool told = type_is_told(type);
    if (types->count < MOST) {
        types->list[types->count].type = type;
        types->list[types->count++].is_told = told;
    }
    return told;
}
