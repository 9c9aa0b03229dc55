# SPDX-License-Identifier: MIT
"""Times without Python's garbage collector: nested, on several threads, and where the program has it off."""

import gc
import threading
import unittest

from reprise._base.collector import uncollected


class Uncollected(unittest.TestCase):
    def setUp(self):
        gc.enable()
        self.addCleanup(gc.enable)

    def test_nested(self):
        with uncollected():
            with uncollected():
                self.assertFalse(gc.isenabled())
            self.assertFalse(gc.isenabled())
        self.assertTrue(gc.isenabled())

    def test_on_two_threads(self):
        inside, ends = threading.Event(), threading.Event()

        def wait():
            with uncollected():
                inside.set()
                ends.wait()
        thread = threading.Thread(target=wait)
        thread.start()
        inside.wait()
        with uncollected():
            pass
        self.assertFalse(gc.isenabled())
        ends.set()
        thread.join()
        self.assertTrue(gc.isenabled())

    def test_where_it_is_off(self):
        gc.disable()
        with uncollected():
            pass
        self.assertFalse(gc.isenabled())

    def test_one_that_is_never_left(self):
        """As where Ctrl-C came between its end and its exit: it ends with the object."""
        held = uncollected()
        held.__enter__()
        with uncollected():
            pass
        self.assertFalse(gc.isenabled())
        del held
        self.assertTrue(gc.isenabled())

    def test_one_that_is_left_too_often(self):
        with self.assertRaisesRegex(RuntimeError, "was not entered"):
            uncollected().__exit__(None, None, None)
        self.assertTrue(gc.isenabled())

    def test_behind_an_exception(self):
        with self.assertRaises(KeyError), uncollected():
            raise KeyError
        self.assertTrue(gc.isenabled())


if __name__ == "__main__":
    unittest.main()
