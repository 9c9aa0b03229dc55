/* SPDX-License-Identifier: MIT
 *
 * What is said of a device's executable graphs: how much memory they may take, what they took, and
 * at what pace they run. The budget may be set before the device is opened.
 */
#include "alloc/execs.h"

PyObject *rpp_exec_budget(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    int ordinal;
    unsigned long long bytes;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "iK", &ordinal, &bytes))
        return NULL;
    rp_status status = rpp_device_set_budget(ordinal, bytes, &err);
    return status == RP_OK ? Py_NewRef(Py_None) : rpp_set_error(status, &err);
}

PyObject *rpp_restore_pace(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    struct rp_device *device = rpp_parse_device(args);
    if (!device)
        return NULL;
    struct rp_pace pace = {.size = sizeof pace};
    struct rp_error err = {0};
    rp_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = rp_device_restore_pace(device, &pace, &err);
    Py_END_ALLOW_THREADS;
    if (status != RP_OK)
        return rpp_set_error(status, &err);
    return Py_BuildValue("{sdsdsOsd}", "before_us", pace.before_us, "after_us", pace.after_us,
                         "restored", pace.restored ? Py_True : Py_False, "ms", pace.ms);
}

PyObject *rpp_exec_info(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    struct rp_device *device = rpp_parse_device(args);
    if (!device)
        return NULL;
    struct rp_device_exec_info info = {.size = sizeof info};
    rp_device_exec_info(device, &info);
    return Py_BuildValue(
        "{sKsKsKsKsnsnsnsKsKsKsKsKsdsdsdsKsKsssz}", "budget_bytes", info.budget_bytes, "bytes",
        info.bytes, "most_bytes", info.most_bytes, "measured_bytes", info.measured_bytes, "execs",
        (Py_ssize_t)info.execs, "graphs", (Py_ssize_t)info.graphs, "topologies",
        (Py_ssize_t)info.topologies, "hits", info.hits, "updates", info.updates, "refused",
        info.refused, "instantiated", info.instantiated, "evicted", info.evicted,
        "make_us_per_node", info.make_us_per_node, "update_us_per_node", info.update_us_per_node,
        "slower_share", info.slower_share, "path_bytes", info.path_bytes, "node_bytes",
        info.node_bytes, "price_source", info.price_text, "price_reason", info.price_reason);
}
