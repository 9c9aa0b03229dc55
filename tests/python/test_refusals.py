# SPDX-License-Identifier: MIT
"""What the driver refuses in a capture, as CUPTI tells it: a stand-in tells the same here."""

import ctypes
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from reprise import _C
from reprise._check.platform import _loaded

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
CUPTI = r"""
struct data { int site; const char *function; const void *params; void *result; };
typedef void callback(void *user, int domain, unsigned id, const struct data *data);
static callback *told;
static void *told_user;
static int enabled;
int refuse_subscribers, refuse_domain;

int cuptiSubscribe(void **subscriber, callback *function, void *user)
{
    if (refuse_subscribers || told)
        return 39;
    told = function;
    told_user = user;
    *subscriber = &told;
    return 0;
}
int cuptiUnsubscribe(void *subscriber)
{
    told = 0;
    enabled = 0;
    return subscriber == &told ? 0 : 1;
}
int cuptiEnableDomain(unsigned enable, void *subscriber, int domain)
{
    enabled = enable && domain == 1;
    return refuse_domain || subscriber != &told;
}
int is_watched(void) { return told && enabled; }
void call(const char *function, int code, int domain)
{
    struct data data = {0, function, 0, 0};
    if (!told)
        return;
    told(told_user, domain, 1, &data);
    data.site = 1;
    told(told_user, domain, 1, &data); /* without a result */
    data.result = &code;
    told(told_user, domain, 1, &data);
}
"""


@unittest.skipUnless(COMPILER, "needs a C compiler")
class Refusals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        source = pathlib.Path(cls.folder.name, "cupti.c")
        source.write_text(CUPTI, encoding="utf-8")
        cls.path = str(source.with_name("libcuptimade.so.13"))
        subprocess.run([COMPILER, "-shared", "-fPIC", "-o", cls.path, str(source)], check=True)
        cls.absent = _C.watch_refusals(cls.path)  # it is not loaded yet
        cls.cupti = ctypes.CDLL(cls.path)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def call(self, function, code, domain=1):
        self.cupti.call(function.encode(), code, domain)

    def set(self, name, value):
        ctypes.c_int.in_dll(self.cupti, name).value = value

    def test_the_first_that_is_refused(self):
        self.assertTrue(_C.watch_refusals(self.path))
        self.call("cuLaunchKernel", 0)
        self.call("cuStreamQuery", 600)
        self.call("cudaMalloc", 900, domain=2)
        self.call("cuMemAlloc_v2", 900)
        self.call("cuStreamEndCapture", 901)
        self.assertEqual(_C.end_refusals(), ("cuMemAlloc_v2", 900))
        self.assertFalse(self.cupti.is_watched())
        self.assertIsNone(_C.end_refusals())

    def test_each_watch_begins_anew(self):
        for code in (904, 0):
            self.assertTrue(_C.watch_refusals(self.path))
            self.assertFalse(_C.watch_refusals(self.path))  # one at a time
            self.assertTrue(self.cupti.is_watched())
            self.call("cuStreamEndCapture", code)
            self.assertEqual(_C.end_refusals(), ("cuStreamEndCapture", 904) if code else None)

    def test_calls_that_take_memory_are_counted(self):
        self.assertTrue(_C.watch_refusals(self.path))
        for function, code in (("cuMemAlloc_v2", 0), ("cuMemAllocAsync_ptsz", 0), ("cuMemCreate", 0),
                               ("cuModuleLoadData", 0),
                               ("cuMemAlloc_v2", 2), ("cuMemAllocHost_v2", 0), ("cuLaunchKernel", 0)):
            self.call(function, code)
        self.assertEqual(_C.driver_allocations(), 4)
        _C.end_refusals()
        self.call("cuMemCreate", 0)
        self.assertEqual(_C.driver_allocations(), 4)
        self.assertTrue(_C.watch_refusals(self.path))
        self.assertEqual(_C.driver_allocations(), 0)
        _C.end_refusals()

    def test_where_nobody_tells(self):
        self.assertFalse(self.absent)
        for obstacle in ("refuse_subscribers", "refuse_domain"):
            self.set(obstacle, 1)
            self.assertFalse(_C.watch_refusals(self.path))
            self.set(obstacle, 0)
            self.assertFalse(self.cupti.is_watched())
            self.assertIsNone(_C.end_refusals())
        self.assertFalse(_C.watch_refusals("/nowhere/libcupti.so.13"))

    def test_loaded_libraries_are_found(self):
        self.assertEqual(_loaded("libcuptimade.so"), self.path)
        self.assertIsNone(_loaded("libnobodyhasthis.so"))


if __name__ == "__main__":
    unittest.main()
