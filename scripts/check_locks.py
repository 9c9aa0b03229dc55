#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that no comprehension stands in a block of the PyTorch package that holds a lock.

CPython 3.12 compiles a comprehension into the function around it. An exception that a trace function raises at one
leaves the block without giving the lock back, and the next thread waits for ever. A comprehension in a function of
its own is left in order, and so is a generator expression.

usage: check_locks.py ROOT
       check_locks.py --self-test
"""

import ast

import breaches

INLINED = (ast.ListComp, ast.SetComp, ast.DictComp)
OF_THEIR_OWN = (ast.FunctionDef, ast.Lambda, ast.GeneratorExp)


def is_lock(expression):
    """Is this the name of a lock, or an attribute of such a name?"""
    name = getattr(expression, "attr", getattr(expression, "id", ""))
    return name.rstrip("_").endswith("lock")


def inlined(node):
    """The comprehensions that are compiled into the function of this node."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, INLINED):
            yield inner
        if not isinstance(inner, OF_THEIR_OWN):
            yield from inlined(inner)


def check(root):
    findings = []
    for path in sorted((root / "python/reprise").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.With) and any(is_lock(item.context_expr) for item in node.items):
                findings += [f"{path.relative_to(root).as_posix()}:{inner.lineno}: a comprehension in the block of "
                             f"line {node.lineno}, which holds a lock: move it into a function"
                             for statement in node.body for inner in inlined(ast.Module([statement], []))]
    return findings


def self_test():
    """One file with everything that is allowed, then one for each kind of comprehension."""
    block = "def go(self):\n    with self._lock:\n        self.all = "
    allowed = {"a.py": block + "tuple(x for x in y)\n        return lambda: [x for x in y]\n",
               "b.py": "with open(name) as file:\n    lines = [x for x in file]\n"}
    refused = {"c.py": block + "[x for x in y]\n", "d.py": block + "{x for x in y}\n",
               "e.py": "with x, _lock:\n    if y:\n        z = dict(a={x: 1 for x in y})\n"}
    breaches.expect(check, *({f"python/reprise/{name}": text for name, text in files.items()}
                             for files in (allowed, refused)))
    print(f"check_locks: each of {len(refused)} kinds of breach is found")


if __name__ == "__main__":
    breaches.main(__doc__, check, self_test, "no comprehension stands in a block that holds a lock")
