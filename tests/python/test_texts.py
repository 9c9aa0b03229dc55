# SPDX-License-Identifier: MIT
"""Names of others on their way to terminals, pages and the library."""

import tempfile
import unittest
import unittest.mock
import warnings
from pathlib import Path

from reprise._base.texts import plain
from reprise._base.warn import warn
from reprise._call import graphed
from reprise._report import report

HOSTILE = ["\x1b]0;title\x07", "\x00", "\t", "\x7f", "\x9b31m", "\u202e", "\u2066", "\u200f", "\u061c",
           "\u2028", "\ufffe", "\uffff", "\ufdd0", "\U0001fffe", "\U0010ffff", "\udcff"]
FRIENDLY = "größe 行列 😀\n"


class Texts(unittest.TestCase):
    def test_what_steers_is_masked(self):
        for text in HOSTILE:
            self.assertEqual(plain(f"a{text[:1]}b"), "a?b", ascii(text))
        self.assertEqual(plain(FRIENDLY), FRIENDLY)

    def test_reports(self):
        made = {"callables": [{"name": "net" + "".join(HOSTILE), "graphs": [], "pool": None, "svg": None,
                               "reasons": [f"a.py:1: {text}" for text in HOSTILE]}], "pools": [], "execs": []}
        with unittest.mock.patch.object(report, "_facts", lambda draws: made), \
                tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "page.html"
            report.report(path)
            for text in (report.report(), path.read_bytes().decode()):
                self.assertEqual(plain(text), text)
                self.assertIn("net?", text)

    def test_warnings(self):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            warn("'" + HOSTILE[0] + "' is slow")
        self.assertEqual(str(said[0].message), "'?]0;title?' is slow")

    def test_names_of_callables(self):
        """The library takes UTF-8: what is none of a name is no reason to run without a graph."""
        made = graphed.Graphed.__new__(graphed.Graphed)
        made._fn, made._name = lambda x: x, None
        made._fn.__name__ = "bad\udcff\x1b"
        self.assertEqual(made.name, "bad??")


if __name__ == "__main__":
    unittest.main()
