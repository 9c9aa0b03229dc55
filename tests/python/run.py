#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds the package into a folder and runs the tests that need no GPU on it.

usage: run.py FOLDER [PATTERN]      of the tests' files; test_*.py unless told

Exits 77, with the reason, where the package cannot be built for this Python.
"""

import compileall
import os
import subprocess
import sys
import sysconfig
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def build(folder):
    """Builds the extension; returns the folder to import from."""
    if sys.version_info < (3, 10):
        skip("the package needs Python 3.10 or later")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        skip("Python.h was not found: the package needs the headers of Python (python3-dev)")
    done = subprocess.run([ROOT / "scripts/build_python.sh", folder],
                          env={**os.environ, "PYTHON": sys.executable},
                          capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout + done.stderr)
        sys.exit(1)
    # Compiled once, not by each process that a test starts.
    compileall.compile_dir(str(folder / "lib"), quiet=1)
    return folder / "lib"


def main():
    folder = Path(sys.argv[1]).resolve()
    pattern = sys.argv[2] if len(sys.argv) > 2 else "test_*.py"
    folder.mkdir(parents=True, exist_ok=True)
    lib = build(folder)
    sys.path.insert(0, str(lib))
    os.environ["PYTHONPATH"] = str(lib)
    suite = unittest.defaultTestLoader.discover(str(HERE), pattern=pattern)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    sys.exit(0 if result.wasSuccessful() else 1)


if __name__ == "__main__":
    main()
