/* SPDX-License-Identifier: MIT
 *
 * Has an object got another class, or another dict for its attributes, since somebody last looked?
 * Nothing of the interpreter's tells. Both are set through descriptors, `object.__class__` and the
 * `__dict__` that a class's instances have: what these call is replaced by functions that count and
 * then do the same. One comparison does so for all objects that a callable reads. Guarded by the
 * GIL.
 */
#ifndef REPRISE_PYTHON_INSTANCES_H
#define REPRISE_PYTHON_INSTANCES_H

#include "base/python.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Moves before and behind each setting of a class or a dict, of any object. */
extern uint64_t rpp_instance_changes;

/* Classes that were asked about, while objects of them live. Zeroed: none was. */
struct rpp_told_types {
    size_t count;
    struct {
        PyTypeObject *type;
        bool is_told;
    } list[64];
};

/* Replaces the descriptors' functions and proves, with an object of its own, that both are told of
 * and still set; no exception is set. Once, as the package is imported. */
void rpp_instances_prepare(void);
/* Are all settings of classes told? */
bool rpp_classes_are_told(void);
/* Are those of this object's dict? Of those whose dict lies ahead of them, as most have it. */
bool rpp_dict_is_told(PyObject *object, struct rpp_told_types *types);

#endif
