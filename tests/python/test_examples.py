# SPDX-License-Identifier: MIT
"""examples/README.md says of each example of PyTorch what its head says; gpu_examples.py runs them."""

import tempfile
import unittest
from pathlib import Path

import examples

README = examples.ROOT / "examples" / "README.md"


def row(example):
    runs = "<br>".join(f"`{line}`" for line in example.runs)
    return f"| [{example.path.name}](torch/{example.path.name}) | {example.shows} | {runs} | {example.expected} |"


class Readme(unittest.TestCase):
    def test_each_has_its_row(self):
        text = README.read_text(encoding="utf-8")
        rows = [line for line in text.splitlines() if "](torch/" in line and line.count("|") == 5]
        self.assertEqual(sorted(rows), sorted(row(example) for example in examples.found()))

    def test_each_can_fail(self):
        for example in examples.found():
            text = example.path.read_text(encoding="utf-8")
            self.assertIn("sys.exit(f\"not as expected", text, example.path.name)
            self.assertLess(len(text.splitlines()), 121, example.path.name)

    def test_a_head_without_a_promise_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "mute.py")
            path.write_text('"""Shows something.\n\nRun:      python mute.py\n"""\n')
            with self.assertRaisesRegex(ValueError, r"mute\.py: its head lacks"):
                examples.read(path)


if __name__ == "__main__":
    unittest.main()
