/* SPDX-License-Identifier: MIT
 *
 * Where objects of CPython and PyTorch have what looks compare, as words of memory: an object's
 * class and dict, what is in a cell, a function's code and defaults, its name and a class's, a
 * tensor's hooks, the number of registrations with abstract classes. The stable interface hides
 * these places. Each is learned from an object made for it, in which one word alone holds what the
 * attribute gives; where it is not learned there is no word, and whoever asks compares values.
 *
 * A word may be read for as long as its object lives. Nothing here keeps objects of the caller's
 * but what is learned, for ever. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_LAYOUTS_H
#define REPRISE_PYTHON_LAYOUTS_H

#include "base/python.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RPP_FUNCTION_PARTS = 3 }; /* code, defaults, defaults by name */

/* The value of a name that is not there. */
extern PyObject *rpp_absent;

/* Makes that, and finds what the interpreter has beside the stable interface. False with an
 * exception set. */
bool rpp_layouts_prepare(void);

/* ---- Values --------------------------------------------------------------------------------- */

/* What a cell holds, new; absent: it is empty. NULL with an exception set. */
PyObject *rpp_cell_value(PyObject *cell);
/* What a context variable has now, new; absent: nothing, and no default. NULL with an exception
 * set. */
PyObject *rpp_variable_value(PyObject *variable);
/* A part of a function, new; None: it has none. NULL with an exception set. */
PyObject *rpp_function_part(PyObject *function, size_t part);
/* parts_of(function): these, as its attributes would say, which Python's audit hooks hear of. */
PyObject *rpp_parts_of(PyObject *module, PyObject *function);

/* ---- Words ---------------------------------------------------------------------------------- */

/* Each NULL, without an exception, where it is not known or the object has none. A word has the
 * address of what it refers to; 0: nothing. */
const uint64_t *rpp_word_of_type(PyObject *object);
const uint64_t *rpp_word_of_cell(PyObject *cell);
const uint64_t *rpp_word_of_part(PyObject *function, size_t part);
/* Of the dict with an object's attributes. */
const uint64_t *rpp_word_of_dict(PyObject *object);
/* Of an attribute by its name, an interned string: of functions, classes and tensors' hooks. */
const uint64_t *rpp_word_of_attribute(PyObject *object, PyObject *name);
/* Of the number that a function gives, as a number. */
const uint64_t *rpp_word_of_number(const PyObject *ask);

/* ---- Learning, called once as the package is imported ---------------------------------------- */

/* Where a function has its code and defaults. */
PyObject *rpp_learn_function(PyObject *module, PyObject *args);
/* Where functions and classes have what attributes of theirs give. */
PyObject *rpp_learn_words(PyObject *module, PyObject *args);
/* Where a module of C's has a number that one of its functions gives. */
PyObject *rpp_learn_count(PyObject *module, PyObject *args);
/* Where a tensor has its hooks. */
PyObject *rpp_learn_hooks(PyObject *module, PyObject *args);

#endif
