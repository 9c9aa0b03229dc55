/* SPDX-License-Identifier: MIT
 *
 * Has an object got another class, or another dict for its attributes, since somebody last looked?
 * Has a class or a function got another name, a function another dict, module, code or defaults, a
 * class other bases? Was a cell filled that no code fills any more? Nothing of the interpreter's tells. All are
 * set through descriptors: what these call is replaced by functions that count and then do the
 * same. One comparison does so for all objects that a callable reads. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_DESCRIPTORS_H
#define REPRISE_PYTHON_DESCRIPTORS_H

#include "base/python.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rpp_told {
    RPP_INSTANCES, /* classes and dicts of objects */
    RPP_NAMES,     /* of classes and functions what their attributes say; contents of cells */
    RPP_TOLD
};

/* Each moves before and behind each such setting, of any object. */
extern uint64_t rpp_told_changes[RPP_TOLD];

/* Classes that were asked about, while objects of them live. Zeroed: none was. */
struct rpp_told_types {
    size_t count;
    struct {
        PyTypeObject *type;
        bool is_told;
    } list[64];
};

/* Replaces the descriptors' functions and proves, with objects of its own, that all are told of
 * and still set; no exception is set. Once, as the package is imported. */
void rpp_descriptors_prepare(void);
/* Are all settings of classes told? */
bool rpp_classes_are_told(void);
/* Are those of this object's dict? */
bool rpp_dict_is_told(PyObject *object, struct rpp_told_types *types);
/* Are those of this attribute of a function, a class or a cell? Code that has a cell's variable
 * sets it otherwise. A NULL name: no. */
bool rpp_attribute_is_told(PyObject *object, const char *name);

#endif
