# SPDX-License-Identifier: MIT
"""What the README and the pages of docs/ say of the package is there: names and arguments."""

import ast
import inspect
import re
import unittest
from pathlib import Path

import reprise

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")


def trees(text):
    """What a document shows of Python: blocks, and spans that can be read as such."""
    for language, block in BLOCK.findall(text):
        if language == "python":
            yield ast.parse(block)
    for span in SPAN.findall(BLOCK.sub("", text)):
        try:
            yield ast.parse(span)
        except SyntaxError:
            pass


def of_reprise(node):
    return (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and
            node.value.id == "reprise" and node.attr != "h")  # the C header


def mistakes(text):
    for node in (node for tree in trees(text) for node in ast.walk(tree)):
        if of_reprise(node) and not hasattr(reprise, node.attr):
            yield f"there is no reprise.{node.attr}"
        elif isinstance(node, ast.Call) and of_reprise(node.func):
            wanted = getattr(reprise, node.func.attr, print)
            given = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
            try:
                inspect.signature(wanted).bind_partial(
                    *given, **{word.arg: word.value for word in node.keywords})
            except TypeError as error:
                yield f"reprise.{node.func.attr}: {error}"


class Documents(unittest.TestCase):
    def test_what_they_name_is_there(self):
        for path in DOCUMENTS:
            with self.subTest(path=path):
                self.assertEqual(list(mistakes(path.read_text(encoding="utf-8"))), [])

    def test_mistakes_are_found(self):
        right = "`reprise.h`, `reprise.graphed(fn, *args)` and `reprise plan`"
        self.assertEqual(list(mistakes(right)), [])
        self.assertEqual(list(mistakes("see `reprise.captured`")), ["there is no reprise.captured"])
        self.assertEqual(list(mistakes("```python\nx = reprise.graphed(fn, shape=3)\n```\n")),
                         ["reprise.graphed: got an unexpected keyword argument 'shape'"])
        self.assertEqual(list(mistakes("`reprise.report(1, 2)`")),
                         ["reprise.report: too many positional arguments"])


if __name__ == "__main__":
    unittest.main()
