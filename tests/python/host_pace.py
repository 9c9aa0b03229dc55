# SPDX-License-Identifier: MIT
"""Restoring the pace of graphs through the extension, on the host driver: under the name of NVIDIA's it
is given kernels that it cannot load."""

import unittest

from reprise import _C
from no_memory import MOST, needs_it, without_memory
from on_host import OnHost, Trace


class Pace(OnHost):
    def test_without_kernels_no_context_is_made(self):
        trace = Trace()
        with self.assertRaisesRegex(_C.Error, "restoring the pace of graphs") as raised:
            _C.restore_pace(0)
        self.assertEqual(raised.exception.driver_code, 801)
        calls = trace.calls()
        self.assertGreater(calls["cuStreamBeginCapture"], 0)
        self.assertEqual(calls["cuCtxCreate"], 0)

    def test_a_device_that_is_not_there(self):
        self.assertRaises(_C.Error, _C.restore_pace, 7)

    @needs_it
    def test_an_error_that_memory_runs_out_for_is_told(self):
        for n in range(MOST):
            _, error = without_memory(_C.restore_pace, 0, first=n, count=1)
            if isinstance(error, _C.Error):
                return
            self.assertIsInstance(error, MemoryError)
        self.fail("it never had enough")


if __name__ == "__main__":
    unittest.main()
