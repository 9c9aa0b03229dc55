# SPDX-License-Identifier: MIT
"""What the attacks share: the command, a temporary folder, a trace, a recording."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

REPRISE, SOURCE = sys.argv[1:3]
sys.path.insert(0, os.path.join(SOURCE, "tests", "advise"))
from make_trace import Trace, model_steps  # noqa: E402  pylint: disable=wrong-import-position

CAPTURES = os.path.join(SOURCE, "examples", "captures")


def run(*arguments, **options):
    options = {"capture_output": True, "timeout": 120, "check": False} | options
    return subprocess.run([REPRISE, *arguments], **options)


def recording(name="a", streams=1, block=4096, captures=1):
    """reprise-capture/1 with two blocks in each capture, as an object."""
    one = {"streams": streams, "nodes": ["kernel", "kernel"], "edges": [[0, 1]],
           "events": [["alloc", 1, block, 0, []], ["free", 1, 0, [0]],
                      ["alloc", 2, block, 0, [0]], ["free", 2, 0, [1]]]}
    return {"format": "reprise-capture/1",
            "captures": [{"name": name + (str(c) if c else "")} | one for c in range(captures)],
            "compose": {"alternatives": [name + (str(c) if c else "") for c in range(captures)]}}


class Arena(unittest.TestCase):
    def setUp(self):
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="reprise-attack-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, contents):
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(contents if isinstance(contents, bytes) else contents.encode())
        return path

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def recording(self, file="in.json", **options):
        return self.write(file, json.dumps(recording(**options)))

    def trace(self, name="trace.json", trace=None):
        return self.write(name, (trace or model_steps(Trace())).text())

    def refused(self, result, *words):
        """A refusal: exit code 2, nothing on standard output, the words in one line."""
        text = result.stderr.decode()
        self.assertEqual(result.returncode, 2, text)
        self.assertEqual(result.stdout, b"")
        for word in words:
            self.assertIn(word, text)
        return text


def main():
    unittest.main(argv=sys.argv[:1], verbosity=1)
