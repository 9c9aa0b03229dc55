# SPDX-License-Identifier: MIT
"""What is said of versions of PyTorch, and what `reprise doctor` is told of this package."""

import contextlib
import os
import subprocess
import sys
import types
import unittest
import unittest.mock

import reprise
from reprise._base import versions
from reprise._base.versions import NOT_RUN, SOME, TABLE, WHOLE, judge, numbers


class Table(unittest.TestCase):
    def test_is_in_order_and_says_where_results_are(self):
        found = [numbers(row.version) for row in TABLE]
        self.assertEqual(found, sorted(set(found)))
        for row in TABLE:
            self.assertIn(row.state, (WHOLE, SOME, NOT_RUN))
            self.assertEqual((bool(row.gpu), bool(row.results)), (row.state != NOT_RUN,) * 2, row)
        self.assertEqual(versions.OLDEST, found[0])

    def test_versions_are_read(self):
        for text, read in (("2.11.0+cu130", (2, 11)), ("2.9.0a0+git1.2", (2, 9)), ("2.10", (2, 10)),
                           ("3", ()), ("unknown", ()), ("", ()), ("2.x", ())):
            self.assertEqual(numbers(text), read, text)


class Judgement(unittest.TestCase):
    def setUp(self):
        for name, value in (("OLDEST", (2, 9)), ("NEWEST", (2, 15)),
                            ("TESTED", frozenset(((2, 9), (2, 13), (2, 15)))),
                            ("FAILING", frozenset(((2, 13),)))):
            patch = unittest.mock.patch.object(versions, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def test_what_was_tested_needs_no_word(self):
        for version in ("2.9.0", "2.9.1+cu128", "2.15.0", "2.15.3+cpu"):
            self.assertIsNone(judge(version))

    def test_the_rest_does(self):
        for version, says in (("2.8.1", "PyTorch 2.8.1 is too old: Reprise needs 2.9 or later"),
                              ("1.13.0", "1.13.0 is too old"),
                              ("2.16.0", "2.16.0 is newer than 2.15, which is the newest that was tested"),
                              ("3.0.0a0", "3.0.0a0 is newer than 2.15"),
                              ("2.13.0", "not all tests of Reprise passed with PyTorch 2.13.0: docs/status.md"),
                              ("2.12.1", "2.12.1 was not tested: what can be proved at import"),
                              ("main", "version 'main' cannot be read")):
            self.assertIn(says, judge(version))
            self.assertEqual(versions.is_too_old(version), "too old" in says)


class Lines(unittest.TestCase):
    """With the real package and a made torch."""

    def lines(self, command=None, **environment):
        cuda = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False,
                                     get_allocator_backend=lambda: "native")
        torch = types.ModuleType("torch")
        torch.__version__, torch.cuda = "2.11.0", cuda
        torch.version = types.SimpleNamespace(cuda="13.0")
        torch.__spec__ = types.SimpleNamespace(origin="made")
        with unittest.mock.patch.dict(sys.modules, torch=torch), \
                unittest.mock.patch.dict(os.environ, environment):
            return list(versions.lines(command))

    def told(self, key, *args, **environment):
        return [text for found, text in self.lines(*args, **environment) if found == key]

    def test_this_package_is_the_right_one(self):
        self.assertEqual(self.told("reprise", reprise.__version__), [reprise.__version__])
        self.assertEqual(self.told("problem", reprise.__version__), [])

    def test_a_command_of_another_version_is_named(self):
        self.assertIn(f"reprise is version {reprise.__version__}, and this command is 0.0.1",
                      self.told("problem", "0.0.1")[0])

    def test_settings_that_install_refuses_are_named(self):
        [problem] = self.told("problem", PYTORCH_ALLOC_CONF="max_split_size_mb:5")
        self.assertIn("reprise.install() refuses a setting of PYTORCH_ALLOC_CONF: max_split_size_mb",
                      problem)
        self.assertEqual(self.told("problem", PYTORCH_ALLOC_CONF="max_split_size_mb:64,other:1"), [])

    def test_are_printed(self):
        done = subprocess.run([sys.executable, "-m", "reprise._base.versions"], capture_output=True,
                              text=True, check=True)
        self.assertEqual(done.stdout.splitlines()[0], f"python {sys.executable}")
        self.assertEqual(done.stdout.splitlines()[-1], "end")
        with contextlib.suppress(ImportError):
            import torch
            self.assertIn(f"torch {torch.__version__}", done.stdout)


if __name__ == "__main__":
    unittest.main()
