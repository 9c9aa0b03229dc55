# SPDX-License-Identifier: MIT
"""What the tests on the host driver share, which is there in the place of NVIDIA's: its functions, what
was called of it, and the allocator's hooks, called as PyTorch calls them."""

import ctypes
import gc
import os
import re
import unittest
from collections import Counter

from reprise import _C

LIBRARY = os.environ["REPRISE_LIBCUDA"]  # tests/libcuda/host_libcuda.c
TRACE = os.environ["HOST_LIBCUDA_TRACE"]  # what it writes each driver call to
BYTES = 4096


class Driver:
    """The driver's functions, by name. Those that the package finds are these too."""

    def __init__(self):
        self.library = ctypes.CDLL(LIBRARY)
        context = ctypes.c_void_p()
        self.cuInit(ctypes.c_uint(0))
        self.cuDevicePrimaryCtxRetain(ctypes.byref(context), ctypes.c_int(0))
        self.cuCtxSetCurrent(context)

    def __getattr__(self, name):
        address, status = ctypes.c_void_p(), ctypes.c_int()
        self.library.cuGetProcAddress_v2(name.encode(), ctypes.byref(address), 13000,
                                         ctypes.c_uint64(0), ctypes.byref(status))
        inner = ctypes.CFUNCTYPE(ctypes.c_int)(address.value)

        def call(*args):
            result = inner(*args)
            if result:
                raise RuntimeError(f"{name}: {result}")

        setattr(self, name, call)
        return call

    def memory(self, text):
        """Memory of BYTES bytes that begins with the text."""
        made = ctypes.c_uint64()
        self.cuMemAlloc(ctypes.byref(made), ctypes.c_size_t(BYTES))
        data = ctypes.create_string_buffer(text, BYTES)
        self.cuMemcpyHtoD(made, data, ctypes.c_size_t(BYTES))
        return made.value

    def text(self, address):
        data = ctypes.create_string_buffer(BYTES)
        self.cuCtxSynchronize()
        self.cuMemcpyDtoH(data, ctypes.c_uint64(address), ctypes.c_size_t(BYTES))
        return data.value

    def copy(self, to, of, stream):
        self.cuMemcpyDtoDAsync(ctypes.c_uint64(to), ctypes.c_uint64(of), ctypes.c_size_t(BYTES),
                               ctypes.c_void_p(stream))


class Trace:
    """How often each function of the driver was called since this was made."""

    def __init__(self):
        self.start = self.size()

    @staticmethod
    def size():
        ctypes.CDLL(None).fflush(None)
        return os.stat(TRACE).st_size

    def calls(self):
        self.size()
        with open(TRACE, encoding="utf-8") as file:
            file.seek(self.start)
            return Counter(re.findall(r"\b(cu[A-Z]\w*)\(", file.read()))


class Allocator:
    """The hooks, as PyTorch's pluggable allocator calls them."""

    def __init__(self, hooks):
        word, size = ctypes.c_void_p, ctypes.c_size_t
        self.alloc_hook = ctypes.CFUNCTYPE(word, size, ctypes.c_int, word)(hooks["alloc"])
        self.free_hook = ctypes.CFUNCTYPE(None, word, size, ctypes.c_int, word)(hooks["free"])

    def alloc(self, stream):
        return self.alloc_hook(BYTES, 0, stream)

    def free(self, address, stream):
        self.free_hook(address, BYTES, 0, stream)


class OnHost(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = Driver()
        cls.allocator = Allocator(_C.hooks())

    def setUp(self):
        gc.collect()  # each pool has much of the process's addresses reserved: none may be left over
        _C.sweep()
        self.pool = _C.Pool(0, "tested")
