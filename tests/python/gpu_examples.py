# SPDX-License-Identifier: MIT
"""The examples of examples/torch, each run as its head says, with the result that it promises there.

What a machine lacks is found first: Triton, kernels, a profiler that sees the GPU. An example then runs with another
way of the same (example_here.py), or is skipped with the reason, as it is where it ends with 77.

usage: gpu_examples.py ..."""

import functools
import importlib.metadata
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from examples import ROOT, found

SKIPPED = 77
TIMEOUT_S = 500
ABREAST = max(1, min(6, (os.cpu_count() or 1) // 2))
OF_PROFILER = ("profile_and_advise.py",)
HERE = Path(__file__).parent


def computes(fn, *args):
    """Does a function give on the GPU what it gives on the CPU?"""
    try:
        return torch.allclose(fn(*(a.cuda() for a in args)).cpu(), fn(*args), atol=1e-4)
    except RuntimeError:
        return False


@functools.cache
def lacks():
    """What this machine does not have, as example_here.py names it."""
    rows, at = torch.arange(24.0).view(1, 2, 3, 4), torch.tensor([1])
    q = torch.randn(2, 2, 8, 16)
    missing = []
    if importlib.util.find_spec("triton") is None:
        missing.append("triton")
    if not computes(lambda x, at: torch.zeros_like(x).index_copy_(2, at, x[:, :, :1]), rows, at):
        missing.append("index_copy")
    if not computes(lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True), q):
        missing.append("attention")
    return missing


def profiles():
    """Does the profiler see kernels?"""
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            torch.ones(8, device="cuda").sum().item()
        return any(event.device_type == torch.autograd.DeviceType.CUDA for event in seen.events())
    except RuntimeError as error:
        print("no profiler:", str(error).splitlines()[0])
        return False


def entry_points():
    """The package's, as pip writes them."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return "".join(f"[{group}]\n{rows}" for group, rows in
                   re.findall(r'^\[project\.entry-points\."?(\w+)"?\]\n((?:\w.*\n)*)', text, re.M)).replace('"', "")


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """A folder with what pip adds to a package, where this one was built in place."""
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        if "reprise" not in importlib.metadata.entry_points(group="torch_dynamo_backends").names:
            path = Path(cls.folder, "site", "reprise_cuda-0.dist-info", "entry_points.txt")
            path.parent.mkdir(parents=True)
            path.write_text(entry_points())
            cls.environment["PYTHONPATH"] = os.pathsep.join((os.environ.get("PYTHONPATH", ""),
                                                             str(path.parents[1])))
        cls.started = {}
        if len(sys.argv) == 1:  # all are asked for: several at once
            lacks()
            pool = ThreadPoolExecutor(ABREAST)
            cls.addClassCleanup(pool.shutdown)
            cls.started = {line: pool.submit(cls.start, line) for example in found() for line in example.runs
                           if example.path.name not in OF_PROFILER}

    @classmethod
    def command(cls, line):
        """The command of an example's head, for this machine."""
        program, *rest = shlex.split(line)
        missing = ",".join(lacks())
        if program == "torchrun":
            count = min(2, torch.cuda.device_count())
            rest = [re.sub("=2$", f"={count}", word) for word in rest]
            return [sys.executable, "-m", "torch.distributed.run", *rest]
        launcher = [str(HERE / "example_here.py"), missing] if missing else []
        return [sys.executable, *launcher, *rest]

    @classmethod
    def start(cls, line):
        return subprocess.run(cls.command(line), cwd=ROOT, env=cls.environment, capture_output=True, text=True,
                              timeout=TIMEOUT_S, check=False)

    def run_line(self, example, line):
        if example.path.name in OF_PROFILER and not profiles():
            self.skipTest("the profiler sees no kernels here")
        done = self.started[line].result() if line in self.started else self.start(line)
        out = done.stdout.splitlines()
        if done.returncode == SKIPPED:
            self.skipTest(out[-1])
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-4000:])
        self.assertIn(example.expected, out)


def add_tests():
    for example in found():
        for number, line in enumerate(example.runs):
            def test(self, example=example, line=line):
                self.run_line(example, line)
            name = f"test_{example.path.stem}" + (f"_{number + 1}" if number else "")
            setattr(Examples, name, test)


add_tests()

if __name__ == "__main__":
    unittest.main()
