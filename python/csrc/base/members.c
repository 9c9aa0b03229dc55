/* SPDX-License-Identifier: MIT */
#include "base/members.h"

PyObject **rpp_member(PyObject *object, size_t offset)
{
    return (PyObject **)(void *)((char *)object + offset);
}

int rpp_members_visit(PyObject *object, const struct rpp_members *members, visitproc visit,
                      void *arg)
{
    Py_VISIT(Py_TYPE(object));
    for (size_t i = 0; i < members->count; i++)
        Py_VISIT(*rpp_member(object, members->offsets[i]));
    return 0;
}

void rpp_members_clear(PyObject *object, const struct rpp_members *members)
{
    rpp_assert_gil();
    for (size_t i = 0; i < members->count; i++)
        Py_CLEAR(*rpp_member(object, members->offsets[i]));
}

bool rpp_intern(const struct rpp_text_at *words, size_t count)
{
    rpp_assert_gil();
    for (size_t i = 0; i < count; i++)
        if (!(*words[i].at = PyUnicode_InternFromString(words[i].text)))
            return false;
    return true;
}
