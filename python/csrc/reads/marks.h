/* SPDX-License-Identifier: MIT
 *
 * Marks on dicts: has a dict been written to since somebody last looked? So that what a call reads
 * (reads.h) costs nothing while nobody writes. There are two ways, and neither is promised:
 *
 *     RPP_BY_WATCHER   the interpreter calls back before it changes a dict (CPython 3.12). A mark
 *                      knows by hash which keys matter: a loop variable in a module's globals moves
 *                      nothing. All marks that moved are counted, so that one comparison does for
 *                      all dicts, and which ones did last is known, so that a dict that others read
 *                      costs a search. From CPython 3.13 on what is stored to an instance is told where
 *                      its dict has a table of its own: a dict is given one as it is marked
 *     RPP_BY_TAG       a word in the dict is another one after each change (until CPython 3.11)
 *
 * Where neither was proved (_reads/marks.py does, for each kind of owner) values are compared. The
 * order of an OrderedDict has a tag of its own, RPP_BY_ORDER (order.h). Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_MARKS_H
#define REPRISE_PYTHON_MARKS_H

#include "base/python.h"

enum rpp_way_to_look {
    RPP_BY_VALUE = 0,
    RPP_BY_WATCHER = 1,
    RPP_BY_TAG = 2,
    RPP_BY_ORDER = 3,
    RPP_BY_DESCRIPTOR = 4 /* of a cell that no code sets any more (descriptors.h) */
};
enum { RPP_FILTER_WORDS = 8, RPP_MARKS_KEPT = 64 };

struct rpp_mark {
    struct rpp_mark *next; /* in its bucket */
    PyObject *dict;        /* not owned: its end is told */
    size_t users;
    uint64_t version; /* moves before a key that matters changes */
    bool all_matter;  /* any key does */
    uint64_t
        filter[RPP_FILTER_WORDS]; /* a bit that hashes share: without it a key does not matter */
    size_t count;
    Py_hash_t *hashes; /* of the keys that matter, `count` of them, in their order */
};

/* How often any mark has moved. */
extern uint64_t rpp_mark_changes;

/* Those that moved since there were so many changes, in their order, one after the other twice at
 * times: addresses to compare, as the marks may be gone. SIZE_MAX: more than are kept. */
size_t rpp_marks_moved(uint64_t since, const struct rpp_mark *out_moved[RPP_MARKS_KEPT]);

/* Which owners have a mark, by their numbers. Zeroed: none has. */
struct rpp_marked {
    size_t count;
    struct rpp_marked_one {
        const struct rpp_mark *mark;
        size_t owner;
    } * list; /* by the marks' addresses once they are settled */
};

bool rpp_marked_reserve(struct rpp_marked *marked, size_t most); /* false without memory */
void rpp_marked_add(struct rpp_marked *marked, const struct rpp_mark *mark, size_t owner);
void rpp_marked_settle(struct rpp_marked *marked);
/* Where the first is that has this mark, with all others that do behind it; or the count. */
size_t rpp_marked_find(const struct rpp_marked *marked, const struct rpp_mark *mark);
void rpp_marked_drop(struct rpp_marked *marked);

/* The dict's mark, for these keys (a tuple; NULL: all), which the caller drops. NULL, without an
 * exception, where the interpreter has no watchers or no memory. */
struct rpp_mark *rpp_mark_take(PyObject *dict, PyObject *keys);
void rpp_mark_keep(struct rpp_mark *mark); /* for one user more, who drops it; NULL is allowed */
void rpp_mark_drop(struct rpp_mark *mark); /* likewise */

enum { RPP_TAG_WORD = 3 }; /* of a dict, behind the object's head and the count of items */

/* What changes with a dict of an interpreter for which _reads/marks.py proved it. */
static inline const uint64_t *rpp_dict_tag_at(const void *dict)
{
    return (const uint64_t *)dict + RPP_TAG_WORD;
}

static inline PyObject *rpp_dict_of_tag(const uint64_t *tag)
{
    return (PyObject *)(uintptr_t)(tag - RPP_TAG_WORD);
}

static inline uint64_t rpp_dict_tag(const void *dict)
{
    return *rpp_dict_tag_at(dict);
}

/* Asks the interpreter for a watcher. */
void rpp_marks_prepare(void);

PyObject *rpp_give_tables(PyObject *module, PyObject *object);
/* Was RPP_BY_TAG proved for dicts of instances? trust_tags() says so. */
bool rpp_instances_have_tags(void);
PyObject *rpp_trust_tags(PyObject *module, PyObject *unused);
/* The word that _reads/marks.py proves to change with a dict. */
PyObject *rpp_dict_tag_of(PyObject *module, PyObject *dict);

#endif
