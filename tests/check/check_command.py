#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`reprise check` as a command, on callables of a shared object: exit codes, text and JSON; each
obstacle is named with its kind, operation and line, and its mended form has none.

usage: check_command.py REPRISE SUBJECTS.so [DRIVER]     host, or the driver that is named"""
import json
import shutil
import subprocess
import sys
import unittest

REPRISE, SUBJECTS = sys.argv.pop(1), sys.argv.pop(1)
DRIVER = sys.argv.pop(1) if len(sys.argv) > 1 else "host"

# Function of subjects.c, kind, operation, the driver's code: the same on every driver.
OBSTACLES = (
    ("waits", "synchronisation", "cuStreamSynchronize", 900),
    ("asks", "synchronisation", "cuStreamQuery", 900),
    ("reads_back", "host-copy", "cuMemcpyDtoH", 0),
    ("allocates", "allocation", "cuMemAlloc", 900),
    ("pins", "allocation", "cuMemAllocHost", 900),
    ("legacy", "legacy-stream", "cuMemsetD32Async", 0),
    ("fills_at_once", "legacy-stream", "cuMemsetD32", 0),
    ("outside", "outside-stream", "cuMemsetD32Async", 0),
    ("unjoined", "unjoined-stream", "cuStreamEndCapture", 904),
    ("waits_for_outside", "refused-call", "cuStreamWaitEvent", 905),
    ("frees_early", "use-after-free", "cuMemcpyDtoDAsync", 0),
    ("counts", "divergence", "rp_graph_capture", 0),
    ("keeps", "kept-address", "rp_graph_capture", 0),
    ("bakes", "other-results", "rp_graph_replay", 0),
    ("freezes", "frozen-value", "rp_graph_replay", 0),
)


def run(*args):
    return subprocess.run([REPRISE, "check", *args], check=False, text=True, capture_output=True)


def check(function, *options):
    return run("--driver", DRIVER, "--args", "4096:in,4096:out", *options,
               SUBJECTS + ":" + function)


class Check(unittest.TestCase):
    def facts(self, function, code):
        result = check(function, "--json")
        self.assertEqual(result.returncode, code, function + result.stdout + result.stderr)
        return json.loads(result.stdout)

    def test_clean(self):
        result = check("copies")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("copies can be captured", result.stdout)
        self.assertEqual(self.facts("copies", 0), {"driver": DRIVER, "obstacles": []})

    def test_obstacles(self):
        for function, kind, operation, code in OBSTACLES:
            with self.subTest(function):
                found = self.facts(function, 1)["obstacles"]
                self.assertIn((kind, operation), [(o["kind"], o["operation"]) for o in found])
                obstacle = next(o for o in found if o["kind"] == kind)
                self.assertTrue(obstacle["mend"] and obstacle["what"])
                self.assertEqual(obstacle["code"], code)
                if operation.startswith("cu") and shutil.which("addr2line"):
                    self.assertRegex(obstacle["where"], r"subjects\.c:\d+")
                    self.assertIn(function, obstacle["where"])

    def test_mended(self):
        for function, *_ in OBSTACLES:
            with self.subTest(function):
                self.assertEqual(self.facts(function + "_mended", 0)["obstacles"], [])

    def test_ends(self):
        for function, kind, operation, words in (
                ("exits", "process-exit", "exit", "exit(0) in the callable, as it ran eagerly"),
                ("exits_captured", "process-exit", "exit",
                 "exit(0) in the callable, as it was captured"),
                ("crashes", "crash", "signal", "SIGSEGV"),
                ("aborts", "crash", "signal", "SIGABRT")):
            with self.subTest(function):
                (found,) = self.facts(function, 1)["obstacles"]
                self.assertEqual((found["kind"], found["operation"]), (kind, operation))
                self.assertIn(words, found["what"])
                result = check(function)
                self.assertEqual(result.returncode, 1)
                self.assertIn("1 obstacle to capturing " + function, result.stdout)
                self.assertIn(words, result.stdout)

    def test_what_it_prints_is_beside_the_report(self):
        self.assertEqual(self.facts("prints", 0)["obstacles"], [])
        result = check("prints")
        self.assertEqual(result.stdout, "prints can be captured: its replays give what it gives\n")
        self.assertIn('{"obstacles": 3}', result.stderr)

    def test_a_process_that_it_forks_gives_no_answer(self):
        self.assertEqual(self.facts("forks", 0)["obstacles"], [])
        result = check("forks")
        self.assertEqual((result.returncode, result.stdout.count("\n")), (0, 1))
        self.assertIn("a process that the callable forked returned from it", result.stderr)

    def test_text(self):
        result = check("waits")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("1 obstacle to capturing waits", result.stdout)
        self.assertIn("900 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", result.stdout)
        self.assertIn("wait after the replay", result.stdout)

    def test_usage(self):
        for args in ([], ["nothing"], [SUBJECTS], [SUBJECTS + ":"], [":waits"],
                     ["--bogus", SUBJECTS + ":waits"], [SUBJECTS + ":waits", "more"],
                     ["--args", "4096", SUBJECTS + ":waits"],
                     ["--args", "x:in", SUBJECTS + ":waits"],
                     ["--args", "4096:sideways", SUBJECTS + ":waits"],
                     ["--driver", "abacus", SUBJECTS + ":waits"],
                     ["/nonexistent.so:f"], [SUBJECTS + ":nothing"]):
            result = run(*args)
            self.assertEqual(result.returncode, 2, args)
            self.assertEqual(result.stdout, "")
            self.assertIn("reprise check:", result.stderr)
        self.assertEqual(run("--help").returncode, 0)


unittest.main()
