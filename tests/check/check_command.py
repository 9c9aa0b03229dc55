#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`reprise check` as a command: exit codes, text and JSON, on callables of a shared object.

usage: check_command.py REPRISE SUBJECTS.so"""
import json
import shutil
import subprocess
import sys
import unittest

REPRISE, SUBJECTS = sys.argv.pop(1), sys.argv.pop(1)


def run(*args):
    return subprocess.run([REPRISE, "check", *args], check=False, text=True, capture_output=True)


def check(function, *options):
    return run("--driver", "host", "--args", "4096:in,4096:out", *options,
               SUBJECTS + ":" + function)


class Check(unittest.TestCase):
    def test_clean(self):
        result = check("copies")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("copies can be captured", result.stdout)
        facts = json.loads(check("copies", "--json").stdout)
        self.assertEqual(facts, {"driver": "host", "obstacles": []})

    def test_obstacle(self):
        result = check("waits")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("1 obstacle to capturing waits", result.stdout)
        self.assertIn("900 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", result.stdout)
        facts = json.loads(check("waits", "--json").stdout)
        self.assertEqual(len(facts["obstacles"]), 1)
        obstacle = facts["obstacles"][0]
        self.assertEqual(obstacle["kind"], "synchronisation")
        self.assertEqual(obstacle["operation"], "cuStreamSynchronize")
        self.assertEqual(obstacle["code"], 900)
        self.assertIn("wait after the replay", obstacle["mend"])
        self.assertIn("waits", obstacle["where"])
        if shutil.which("addr2line"):
            self.assertRegex(obstacle["where"], r"subjects\.c:\d+")

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
