# SPDX-License-Identifier: MIT
"""What the heads of examples/torch say: how each is run, and what it promises."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Example:
    path: Path
    shows: str  # the first sentence
    runs: list  # commands
    expected: str  # the line that it prints where the promise was kept


def read(path):
    head = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    runs = re.search(r"^Run: +(.*(?:\n {10}.*)*)", head, re.M)
    expected = re.search(r"^Expected: (.+)$", head, re.M)
    if runs is None or expected is None:
        raise ValueError(f"{path.name}: its head lacks Run: or Expected:")
    lines = [re.sub(r"\s+\(.*\)$", "", line.strip()) for line in runs[1].splitlines()]
    return Example(path, head.split("\n", 1)[0], lines, expected[1].strip())


def found():
    return [read(path) for path in sorted((ROOT / "examples" / "torch").glob("*.py"))]
