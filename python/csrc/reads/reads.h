/* SPDX-License-Identifier: MIT
 *
 * What a graphed callable reads beside its arguments, as it was when it was last looked at: a list
 * of owners, each with the values that it had. Python finds them (_reads/walk.py); a call compares
 * them here, by identity first and numbers and strings by value, without running any Python but for
 * attributes and calls.
 *
 *     names       some keys of a dict: an instance's, a class's, a module's attributes
 *     items       all keys and values of a dict, in their order
 *     list        all elements
 *     cell        of a closure
 *     function    its code, defaults and defaults by name
 *     type        an object's class
 *     tensor      where a tensor lies
 *     data        the bytes of a tensor on the CPU
 *     attributes  by name, of objects that have no dict
 *     call        what a function returns
 *     set         a set of numbers and strings
 *     dict        which dict an object has its attributes in
 *     variable    of a context
 *
 * Owners that are dicts are looked at when their mark has moved (marks.h), or their tag (tags.h),
 * functions when one was changed (functions.h), types, cells and dicts of objects by their words
 * (words.h), lists and sets by words of theirs (containers.h), all others in each call.
 * Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_READS_H
#define REPRISE_PYTHON_READS_H

#include "base/dlpack.h"
#include "base/python.h"

/* Counts what was set and accepted: who noted it before knows other values. */
uint64_t rpp_reads_epoch(PyObject *reads);
/* Is all as it was? The object is a Reads. Python may run, and set others; no exception is set. */
bool rpp_reads_hold(PyObject *reads);
bool rpp_is_reads(PyObject *object);

/* Adds Reads and absent. */
int rpp_add_reads_type(PyObject *module);

#endif
