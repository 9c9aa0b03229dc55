/* SPDX-License-Identifier: MIT
 *
 * What Python asks of the memory pools (mempool.h), and of the blocks of graphs that PyTorch
 * replays.
 */
#ifndef REPRISE_PYTHON_ALLOC_MEMPOOLS_H
#define REPRISE_PYTHON_ALLOC_MEMPOOLS_H

#include "base/python.h"

/* mempool_make(id, id, flags, allocator or None) -> number; mempool_drop(number); mempool_find(id,
 * id) -> number or 0. The allocator (source.h) has to live for good. */
PyObject *rpp_py_mempool_make(PyObject *module, PyObject *args);
PyObject *rpp_py_mempool_drop(PyObject *module, PyObject *args);
PyObject *rpp_py_mempool_find(PyObject *module, PyObject *args);
/* mempool_begin(ordinal, number), mempool_end(ordinal, number), mempool_release(number),
 * mempool_count(number) -> count. */
PyObject *rpp_py_mempool_begin(PyObject *module, PyObject *args);
PyObject *rpp_py_mempool_end(PyObject *module, PyObject *args);
PyObject *rpp_py_mempool_release(PyObject *module, PyObject *args);
PyObject *rpp_py_mempool_count(PyObject *module, PyObject *args);
/* lease_blocks(ordinal, id, id): (address, bytes, stream) of the blocks that tensors lie in. */
PyObject *rpp_lease_blocks(PyObject *module, PyObject *args);
/* lease_pools(ordinal): ((id, id), address, bytes) of each. */
PyObject *rpp_lease_pools(PyObject *module, PyObject *args);
/* lease_want(id, id, address, stream): the thread's next allocation is this block again, which was
 * the stream's; address 0: no more. */
PyObject *rpp_lease_want(PyObject *module, PyObject *args);
/* swap_owners(storage, storage, address): who frees the one frees the other. Both, StorageImpl*,
 * lie at the address, and the first is a tensor's own. */
PyObject *rpp_swap_owners(PyObject *module, PyObject *args);

#endif
