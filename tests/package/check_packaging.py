#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""packaging/ without a network. fetch_sources.py takes only files of the right sum, from the first
place that has them, and names what is missing; what states the version states the header's."""

import contextlib
import hashlib
import io
import os
import re
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "packaging"))
import fetch_sources  # noqa: E402

DATA = b"the sources"
SUM = hashlib.sha256(DATA).hexdigest()
PATH = "main/x/x/x_1.orig.tar.gz"


class Fetch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in ("given", "archive/pool/main/x/x", "out"):
            (self.root / name).mkdir(parents=True)
        self.given = self.root / "given/x_1.orig.tar.gz"
        self.archived = self.root / "archive/pool" / PATH
        self.out = self.root / "out/x_1.orig.tar.gz"

    def fetch(self):
        """Whether it was fetched, and what was said."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), \
                unittest.mock.patch.object(fetch_sources, "apt_archives", return_value=[]), \
                unittest.mock.patch.object(fetch_sources, "ARCHIVE",
                                           (self.root / "archive").as_uri()), \
                unittest.mock.patch.dict(os.environ, REPRISE_SOURCES=str(self.root / "given")):
            return fetch_sources.fetch(SUM, PATH, self.root / "out"), said.getvalue()

    def test_the_folder_comes_first(self):
        self.given.write_bytes(DATA)
        fetched, said = self.fetch()
        self.assertTrue(fetched)
        self.assertIn(f"x_1.orig.tar.gz from {self.root / 'given'}", said)
        self.assertEqual(self.out.read_bytes(), DATA)

    def test_what_is_there_stays(self):
        self.out.write_bytes(DATA)
        self.assertEqual(self.fetch(), (True, ""))

    def test_a_wrong_file_is_passed_over(self):
        self.given.write_bytes(DATA + b"!")
        self.out.write_bytes(b"half of it")
        self.archived.write_bytes(DATA)
        fetched, said = self.fetch()
        self.assertTrue(fetched)
        self.assertIn(f"from {(self.root / 'archive').as_uri()}", said)
        self.assertEqual(self.out.read_bytes(), DATA)

    def test_what_cannot_be_had_is_named(self):
        self.given.write_bytes(b"another file")
        fetched, said = self.fetch()
        self.assertFalse(fetched)
        self.assertIn(f"another SHA-256 than {SUM}", said)
        self.assertIn("REPRISE_SOURCES", said)
        self.assertEqual(os.listdir(self.root / "out"), [])

    def test_the_list_has_sums_and_paths(self):
        for total, path in fetch_sources.wanted():
            self.assertRegex(total, "^[0-9a-f]{64}$")
            self.assertRegex(path, r"^main/\w+/(\w+)/\1_\S+\.orig\.tar\.\w+$")
        self.assertEqual(len(fetch_sources.wanted()), 3)


class Version(unittest.TestCase):
    def test_the_conda_recipe_has_the_headers(self):
        header = (ROOT / "include/reprise.h").read_text(encoding="utf-8")
        version = ".".join(re.search(rf"#define RP_VERSION_{part} (\d+)", header)[1]
                           for part in ("MAJOR", "MINOR", "PATCH"))
        recipe = (ROOT / "packaging/conda/recipe.yaml").read_text(encoding="utf-8")
        self.assertIn(f'  version: "{version}"\n', recipe)


if __name__ == "__main__":
    unittest.main()
