# SPDX-License-Identifier: MIT
"""What a report says of facts, without a GPU."""

import sys
import tempfile
import unittest
from pathlib import Path

import reprise
from reprise._report import page, report

sys.path.append(str(Path(__file__).resolve().parent))
from report_facts import EXECS, facts  # noqa: E402


class Text(unittest.TestCase):
    def test_rows_are_beside_their_bound(self):
        lines = page.text(facts()).splitlines()
        self.assertEqual([c.strip() for c in lines[1].split("  ") if c.strip()],
                         list(page.COLUMNS))
        self.assertEqual(lines[3].split(), ["net(16x64)", "12", "8", "1.0", "1.0", "1.5", "2", "0",
                                            "3.2"])
        self.assertEqual(lines[4], "  pool: 3.0 MiB planned for 2 graphs, 4.0 MiB taken; no layout "
                                   "takes less than 3.0 MiB")
        self.assertEqual(lines[5], "  net: argument 0 (in) is copied: a & b")

    def test_what_is_not_known_is_left_empty(self):
        text = page.text(facts())
        line = next(x for x in text.splitlines() if x.startswith("  graph 1"))
        self.assertEqual(line.split(), ["graph", "1", "1.0", "1.0", "2.5"])
        self.assertIn("(a bound that may be low)", text)

    def test_executable_graphs_are_told(self):
        self.assertEqual(page.text(facts()).splitlines()[-1],
                         "device 0: 1 executable graph for 2 graphs of 1 topology, an estimated "
                         "1.5 MiB of a budget of 64.0 MiB; 1 made, 4 updates from graph to graph; "
                         "111.0 KiB a path and 2.40 a node, fitted on NVIDIA H200, driver 580")
        assumed = {**EXECS, "price_source": "assumed: as on NVIDIA H200", "price_reason": "too little"}
        self.assertTrue(page.exec_line(assumed).endswith(
            "a node, assumed: as on NVIDIA H200 (too little)"))
        self.assertIn("one each", page.exec_line({**EXECS, "budget_bytes": page.ONE_EACH}))

    def test_nothing_was_captured(self):
        self.assertEqual(reprise.report(), "nothing was captured yet")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "page.html"
            self.assertIsNone(reprise.report(path))
            self.assertIn("Nothing was captured yet", path.read_text(encoding="utf-8"))

    def test_reasons_come_once(self):
        graphs = [{"name": f"net({n})", "stale_graphs": n - 1, "arguments": [
            {"role": "in", "bound": False, "reason": "it moved"},
            {"role": "out", "bound": True, "reason": None}]} for n in (1, 2, 3)]
        self.assertEqual(report._reasons(graphs, ["Error: it waits\nsomewhere"]),
                         ["net(1): argument 0 (in) is copied: it moved",
                          "net(2): memory that it uses beside its arguments was freed, and it was "
                          "captured anew: 1 of at most 3 times",
                          "net(3): memory that it uses beside its arguments was freed, and it was "
                          "captured anew: 2 of at most 3 times",
                          "without a graph: Error: it waits"])


if __name__ == "__main__":
    unittest.main()
