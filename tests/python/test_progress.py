# SPDX-License-Identifier: MIT
"""Progress while shapes are captured: on a terminal, elsewhere, and to a callable."""

import io
import unittest

from reprise._call.progress import Progress

POOL = {"planned_bytes": 3 << 20}


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Lines(unittest.TestCase):
    def test_a_terminal_has_one_line_that_rewrites_itself(self):
        screen = Terminal()
        progress = Progress(True, "a rather long name", 2, screen)
        progress.name = "net"  # the second line is as long as the first at least
        progress({}, {"planned_bytes": 1000 << 20})
        progress({}, POOL)
        progress.close()
        lines = screen.getvalue().split("\r")
        self.assertEqual(lines[0], "")
        self.assertIn("net: 1 of 2 shapes captured, 1000.0 MiB planned", lines[1])
        self.assertIn("net: 2 of 2 shapes captured, 3.0 MiB planned", lines[2])
        self.assertGreaterEqual(len(lines[2].rstrip("\n")), len(lines[1]))
        self.assertTrue(lines[2].endswith("\n"))

    def test_elsewhere_nothing_is_written(self):
        for told, screen in ((True, io.StringIO()), (False, Terminal())):
            progress = Progress(told, "net", 1, screen)
            progress({}, POOL)
            progress.close()
            self.assertEqual(screen.getvalue(), "")

    def test_a_terminal_is_left_alone_before_the_first(self):
        screen = Terminal()
        Progress(True, "net", 3, screen).close()
        self.assertEqual(screen.getvalue(), "")

    def test_a_callable_is_told(self):
        seen, screen = [], Terminal()
        progress = Progress(lambda *told: seen.append(told), "net", 2, screen)
        progress({"name": "a"}, POOL)
        progress({"name": "b"}, POOL)
        progress.close()
        self.assertEqual(seen, [(1, 2, {"name": "a"}), (2, 2, {"name": "b"})])
        self.assertEqual(screen.getvalue(), "")


if __name__ == "__main__":
    unittest.main()
