#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`reprise doctor`: what it finds in environments made for it, and its one last line.

usage: check_doctor.py REPRISE LIBCUDA

LIBCUDA: the host driver as a library that looks like NVIDIA's."""
import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest

REPRISE, LIBCUDA = sys.argv.pop(1), sys.argv.pop(1)
OURS = ("CUDA_", "NCCL_", "TORCH_", "PYTORCH_", "REPRISE_")


def run(*args, **env):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
    return subprocess.run([REPRISE, "doctor", *args], check=False, text=True, capture_output=True,
                          env=kept | env)


def doctor(*args, **env):
    result = run("--driver", "host", "--json", *args, **env)
    return json.loads(result.stdout), result.returncode


class Doctor(unittest.TestCase):
    def test_ready(self):
        facts, code = doctor("--no-python")
        self.assertEqual(code, 0)
        self.assertTrue(facts["ready"])
        self.assertEqual(facts["driver"], "host")
        self.assertEqual([t["name"] for t in facts["self_test"]], ["capture", "binding", "update"])
        self.assertEqual({t["status"] for t in facts["self_test"]}, {"RP_OK"})
        self.assertTrue(all(c["present"] for c in facts["capabilities"]))
        self.assertEqual(facts["environment"], [])
        text = run("--driver", "host", "--no-python")
        self.assertEqual(text.returncode, 0)
        self.assertTrue(text.stdout.splitlines()[-1].startswith("ready:"))

    def test_no_gpu_driver(self):
        for options in ([], ["--no-python"]):  # with Python PyTorch is asked for too
            result = run("--driver", "cuda", *options, REPRISE_LIBCUDA="/nonexistent.so")
            self.assertEqual(result.returncode, 1)
            self.assertIn("not ready: ", result.stdout.splitlines()[-1])
            self.assertIn("/nonexistent.so", result.stdout)
        anyway = run("--no-python", REPRISE_LIBCUDA="/nonexistent.so")
        self.assertEqual(anyway.returncode, 0)
        self.assertIn("ready, on the host driver only", anyway.stdout.splitlines()[-1])

    def test_misspelled_variables(self):
        for wrong, meant in (("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"),
                             ("CUDA_LAUCNH_BLOCKING", "CUDA_LAUNCH_BLOCKING"),
                             ("PYTORCH_CUDA_ALLOC_CONFIG", "PYTORCH_CUDA_ALLOC_CONF"),
                             ("TORCH_NCCL_ASYNC_ERROR_HANDLIN", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
                             ("REPRISE_LIBCUD", "REPRISE_LIBCUDA")):
            facts, code = doctor("--no-python", **{wrong: "1"})
            self.assertEqual(code, 1, wrong)
            found = [f for f in facts["environment"] if f["misspelled"]]
            self.assertEqual([f["name"] for f in found], [wrong])
            self.assertIn(meant + " may be meant", found[0]["says"])
            self.assertIn(wrong, facts["verdict"])
        facts, code = doctor("--no-python", REPRISE_ANYTHING="1")
        self.assertEqual(code, 1)  # all names of ours are known

    def test_known_variables(self):
        facts, code = doctor("--no-python", CUDA_LAUNCH_BLOCKING="1", NCCL_DEBUG="INFO",
                             CUDA_SOMETHING_ELSE="1", TORCH_NCCL_BLOCKING_WAIT="0")
        self.assertEqual(code, 0)
        self.assertFalse(any(f["stops"] for f in facts["environment"]))
        names = {f["name"]: f["says"] for f in facts["environment"]}
        self.assertEqual(set(names), {"CUDA_LAUNCH_BLOCKING", "TORCH_NCCL_BLOCKING_WAIT"})
        self.assertIn("every launch wait", names["CUDA_LAUNCH_BLOCKING"])

    def test_what_stops_captures(self):
        for name, value, says in (
                ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", "every allocation goes to the driver"),
                ("TORCH_NCCL_BLOCKING_WAIT", "1", "wait for collectives"),
                ("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync", "leave it native")):
            facts, code = doctor("--no-python", **{name: value})
            self.assertEqual(code, 1, name)
            self.assertIn("not ready: correct or unset ", facts["verdict"])
            self.assertIn(says, facts["verdict"])
            found = [f for f in facts["environment"] + facts["allocator_settings"] if f["stops"]]
            self.assertEqual([f["value"] for f in found], [value.rpartition(":")[2]])
        text = run("--driver", "host", "--no-python", PYTORCH_NO_CUDA_MEMORY_CACHING="1").stdout
        self.assertIn("  ! PYTORCH_NO_CUDA_MEMORY_CACHING = 1", text)
        self.assertEqual(doctor("--no-python", PYTORCH_NO_CUDA_MEMORY_CACHING="0")[1], 0)
        self.assertEqual(doctor("--no-python", PYTORCH_ALLOC_CONF="backend:native")[1], 0)

    def test_allocator_settings(self):
        conf = "expandable_segments:True,roundup_power2_divisions:[256:1,512:2],max_split_mb:8"
        facts, code = doctor("--no-python", PYTORCH_CUDA_ALLOC_CONF=conf)
        settings = {f["name"]: f for f in facts["allocator_settings"]}
        self.assertEqual(settings["roundup_power2_divisions"]["value"], "[256:1,512:2]")
        self.assertEqual(settings["expandable_segments"]["value"], "True")
        self.assertFalse(settings["max_split_mb"]["misspelled"])  # too far from any
        self.assertEqual(code, 0)
        facts, code = doctor("--no-python", PYTORCH_CUDA_ALLOC_CONF="expandable_segment:True")
        self.assertEqual(code, 1)
        self.assertIn("expandable_segments may be meant", facts["verdict"])
        facts, code = doctor("--no-python", PYTORCH_CUDA_ALLOC_CONF="expandable_segment:True",
                             PYTORCH_ALLOC_CONF="backend:native")
        self.assertEqual([f["name"] for f in facts["allocator_settings"]], ["backend"])
        for odd in ("", ",", ":", "a", "[", "x:[,", ",,a:b,,"):
            self.assertIn(doctor("--no-python", PYTORCH_ALLOC_CONF=odd)[1], (0, 1))

    def python(self, body, *args, **env):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "python3")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + body)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        self.facts, self.code = doctor(*args, PATH=folder.name + ":/usr/bin:/bin", **env)
        return self.facts["pytorch"]

    def test_pytorch(self):
        self.assertEqual(self.python("printf '2.11.0\\n13.0\\nnative\\n0.1.0\\n'\n"),
                         {"version": "2.11.0", "cuda": "13.0", "allocator": "native",
                          "reprise": "0.1.0", "problem": None, "why_not": None})
        self.assertEqual(self.code, 0)
        none = self.python("printf 'none\\nNo module named torch\\n'\n")
        self.assertEqual(none["why_not"], "No module named torch")
        self.assertIsNone(none["version"])
        self.assertIn("did not answer", self.python("exit 1\n")["why_not"])
        self.assertIsNone(self.python("echo 2.11.0\n")["version"])

    def test_pytorch_that_cannot_capture(self):
        for version, allocator, wrong in (
                ("2.8.1", "native", "needs PyTorch 2.9 or later, and this is 2.8.1"),
                ("2.10.0", "cudaMallocAsync", "set backend:native")):
            found = self.python(f"printf '{version}\\n13.0\\n{allocator}\\nnone\\n'\n")
            self.assertIn(wrong, found["problem"])
            self.assertEqual(self.code, 1)
            self.assertEqual(self.facts["verdict"], "not ready: " + found["problem"])
        for cuda, wrong in (("14.1", "the driver is for 13.0: update the driver, or install a PyTorch"),
                            ("none", "is built without CUDA: install one that is built for CUDA 13"),
                            ("12.8", None), ("13.2", None)):
            found = self.python(f"printf '2.11.0\\n{cuda}\\nnative\\nnone\\n'\n", "--driver",
                                "cuda", REPRISE_LIBCUDA=LIBCUDA)
            self.assertIn(wrong or "ready: ", self.facts["verdict"])
            self.assertEqual((found["problem"] is None, self.code), (not wrong, 1 if wrong else 0))
        # For the host driver it need not be built for CUDA.
        self.assertIsNone(self.python("printf '2.11.0\\nnone\\nunknown\\nnone\\n'\n")["problem"])

    def test_usage(self):
        for args in (["--bogus"], ["more"], ["--driver"]):
            result = run(*args)
            self.assertEqual((result.returncode, result.stdout), (2, ""), args)
        self.assertEqual(run("--help").returncode, 0)


unittest.main()
