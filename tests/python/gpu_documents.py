# SPDX-License-Identifier: MIT
"""The Python that the README and the pages of docs/ show, run on a GPU as it stands. A block continues those
above it on its page; one that begins with an import begins a program, which has a process of its own.

usage: gpu_documents.py [Documents.test_PAGE]
"""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NOT_YET = {"docs/design.md", "docs/status.md"}  # are written anew, and have no blocks
ON_HOST = "/host/lib/" in os.environ.get("LD_PRELOAD", "")
# What runs without a graph in them on purpose, and says so.
EAGER = {"docs/guides/parts.md"}


def pages():
    found = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    return [path.relative_to(ROOT).as_posix() for path in found]


def programs(text):
    """The programs of a page, each of one block or of several in a row."""
    found = []
    for block in BLOCK.findall(text):
        if not found or re.match(r"import ", block):
            found.append(block)
        else:
            found[-1] += "\n" + block
    return found


class Documents(unittest.TestCase):
    def run_page(self, name):
        for program in programs((ROOT / name).read_text(encoding="utf-8")):
            with self.subTest(program=program), tempfile.TemporaryDirectory() as folder:
                self.run_program(program, folder, name not in EAGER)

    def run_program(self, program, folder, graphs):
        if "torch.profiler" in program and ON_HOST:
            self.skipTest("the profiler needs CUPTI")
        if "compile(" in program and not importlib.util.find_spec("triton"):
            self.skipTest("torch.compile needs Triton's compiler")
        # From a file, so that lines have names and texts.
        path = Path(folder) / "program.py"
        path.write_text(program, encoding="utf-8")
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False,
                              cwd=folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        if graphs:
            self.assertNotIn("without a graph", done.stdout + done.stderr)
        if "trace.json.gz" in program:
            said = subprocess.run([sys.executable, "-m", "reprise", "advise", "trace.json.gz"],
                                  capture_output=True, text=True, check=True, cwd=folder)
            self.assertIn("CUDA graphs", said.stdout)

    def test_blocks_make_programs(self):
        text = "```python\nimport a\n```\nwords\n```python\nb\n```\n```python\nimport c\n```\n```\nd\n```\n"
        self.assertEqual(programs(text), ["import a\n\nb\n", "import c\n"])


def test_of(page):
    return lambda self: self.run_page(page)


for _page in pages():
    if _page not in NOT_YET and BLOCK.search((ROOT / _page).read_text(encoding="utf-8")):
        _name = re.sub(r"\W+", "_", _page.removeprefix("docs/").removesuffix(".md").lower())
        setattr(Documents, f"test_{_name}", test_of(_page))


if __name__ == "__main__":
    unittest.main()
