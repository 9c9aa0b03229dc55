# SPDX-License-Identifier: MIT
"""The other distribution called reprise: its traces next to the package give one clear warning."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import reprise
from reprise._base.namesake import FIX, find_namesake


class Namesake(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.site = Path(folder.name)

    def install(self, *others, without=()):
        """Lays the package next to what other distributions leave."""
        shutil.copytree(Path(reprise.__file__).parent, self.site / "reprise",
                        ignore=shutil.ignore_patterns("__pycache__", *without))
        for name in ("numpy-2.0.0.dist-info", "reprise_cuda-0.1.0.dist-info", *others):
            (self.site / name).mkdir()

    def import_it(self, *options):
        if "-c" not in options:
            options += ("-c", "import reprise; print(reprise.__version__)")
        return subprocess.run(
            [sys.executable, *options],
            capture_output=True, text=True, check=False, cwd="/",
            env={**os.environ, "PYTHONPATH": str(self.site), "PYTHONDONTWRITEBYTECODE": "1"})

    def test_alone_it_says_nothing(self):
        self.install("reprise_other-1.0.dist-info", "reprise.egg-info")
        done = self.import_it("-W", "error")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_other_is_named_with_the_command_that_helps(self):
        for name in ("reprise-1.0.0.dist-info", "reprise-1.0.0-py3.11.egg-info"):
            with self.subTest(name):
                self.setUp()
                self.install(name)
                done = self.import_it()
                self.assertEqual(done.stdout, f"{reprise.__version__}\n")
                self.assertEqual(done.stderr.count("RuntimeWarning: "), 1)
                self.assertIn(f"another distribution named 'reprise' is installed in {self.site}",
                              done.stderr)
                self.assertIn(f"run `{FIX}`", done.stderr)
                # Of the line that imports it, and an error where the user wants that.
                self.assertIn("<string>:1: ", done.stderr)
                self.assertNotEqual(self.import_it("-W", "error").returncode, 0)

    def test_the_warning_comes_before_what_is_broken(self):
        self.install("reprise-1.0.0.dist-info", without=("tree.py",))
        done = self.import_it()
        self.assertEqual(done.returncode, 1)
        self.assertLess(done.stderr.index(FIX), done.stderr.index("Traceback"))

    def test_the_program_tells_where_the_others_first_file_won(self):
        self.install("reprise-1.0.0.dist-info")
        (self.site / "reprise/__init__.py").write_text("__author__ = 'another'\n", encoding="utf-8")
        program = ("-c", "import sys; from reprise._namesake import command; "
                         "sys.argv[1:] = ['--version']; command()")
        done = self.import_it(*program)
        self.assertEqual(done.stdout, f"reprise {reprise.__version__}\n")
        self.assertEqual(done.stderr.count(FIX), 1)
        (self.site / "reprise-1.0.0.dist-info").rmdir()
        self.assertEqual(self.import_it(*program).stderr, "")

    def test_a_folder_that_cannot_be_read_is_no_fault(self):
        self.assertIsNone(find_namesake(str(self.site / "archive.zip")))


if __name__ == "__main__":
    unittest.main()
