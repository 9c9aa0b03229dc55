#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the rooms of the PyTorch package (docs/design.md): who may import what, and private names.

    python/reprise   a room is a folder; mends.py and what lies beside it are rooms of their own.
                     Imports point down the list, and nowhere else. A name with one underscore in
                     front belongs to its module, or to a class and those that inherit from it:
                     nobody else imports it, or asks another object for it.
    python/csrc      includes point down the list, and are written room/file.h

usage: check_rooms.py ROOT
       check_rooms.py --self-test
"""

import ast
import re

import breaches

PACKAGE = ("_C", "_base", "_alloc", "_capture", "_reads", "_effects", "_grad", "_shapes", "_call", "_compile", "_parts",
           "_layers", "megatron", "mends", "_check", "_report", "__init__", "_host", "__main__", "_namesake", "_pool")
EXTENSION = ("base", "alloc", "reads", "grad", "capture", "call", "module.c")
# The text of this file is a program of `reprise doctor`: it asks the whole package.
ASKS_ALL = "_base/versions.py"
OF_PYTORCH = {"_version", "_values"}  # attributes of tensors, which modules name as theirs too
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def is_private(name):
    return (name.startswith("_") and not name.startswith("__") and name not in PACKAGE and
            name not in OF_PYTORCH)


def room_of(path):
    """The room of a module, as a tuple of its package's names."""
    return path[0] if path else "__init__"


class Module:
    """A module of the package: what it imports, and the private names that it makes and uses."""

    def __init__(self, path, text):
        self.path = path
        parts = path.removesuffix(".py").split("/")
        self.folder = parts[:-1]
        self.room = room_of(parts)
        self.tree = ast.parse(text)
        self.modules = set()  # names that stand for modules of the package
        self.imports = []     # (line, path within the package, name or None)
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._import(node)
        self.made = {name for node in ast.walk(self.tree) for name in made_by(node)}

    def _import(self, node):
        if isinstance(node, ast.Import):
            self.imports += [(node.lineno, alias.name.split(".")[1:], None) for alias in node.names
                             if alias.name.split(".")[0] == "reprise"]
            return
        names = (node.module or "").split(".") if node.module else []
        if node.level == 0:
            if names[:1] != ["reprise"]:
                return
            names = names[1:]
        else:
            names = self.folder[:len(self.folder) - node.level + 1] + names
        for alias in node.names:
            self.imports.append((node.lineno, names, alias.name))
            if alias.name in PACKAGE or len(names) == 1 and names[0].startswith("_"):
                self.modules.add(alias.asname or alias.name)


def made_by(node):
    """The private names that a node defines: functions, classes, variables, attributes of self."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        names = [node.name]
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        names = [node.attr]
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        names = [node.id]
    else:
        names = []
    return [name for name in names if is_private(name)]


def import_findings(module):
    for line, path, name in module.imports:
        target = room_of(path or [name if name in PACKAGE else "__init__"])
        if target not in PACKAGE:
            yield line, f"imports {target}, which is no room: enter it in check_rooms.py"
        elif PACKAGE.index(target) > PACKAGE.index(module.room) and module.path != ASKS_ALL:
            yield line, f"{module.room} may not import {target}, which stands above it"
        if name and path and is_private(name):
            yield line, f"imports {name}, which is private to {'/'.join(path)}"


def attribute_findings(module, makers):
    """Private attributes of other objects than self, which only other modules of the package make."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Attribute) or not is_private(node.attr):
            continue
        owner = node.value
        if isinstance(owner, ast.Name) and owner.id in module.modules:
            yield node.lineno, f"asks the module {owner.id} for {node.attr}"
        elif isinstance(owner, ast.Name) and owner.id in ("self", "cls"):
            continue
        elif isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super":
            continue
        elif node.attr in makers and node.attr not in module.made:
            yield node.lineno, f"asks for {node.attr}, which is private to {', '.join(makers[node.attr])}"


def check_package(root):
    modules = [Module(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
               for path in sorted(root.rglob("*.py"))]
    makers = {}
    for module in modules:
        for name in module.made:
            makers.setdefault(name, []).append(module.path)
    for module in modules:
        if module.room not in PACKAGE:
            yield f"{module.path}: {module.room} is no room: enter it in check_rooms.py"
            continue
        for line, text in [*import_findings(module), *attribute_findings(module, makers)]:
            yield f"{module.path}:{line}: {text}"


def include_finding(room, name):
    target = name.split("/")[0]
    if "/" not in name or target not in EXTENSION:
        return "write it as room/file.h, with a room of the list"
    if room not in EXTENSION:
        return f"{room} is no room: enter it in check_rooms.py"
    if EXTENSION.index(target) > EXTENSION.index(room):
        return f"{room} may not see {target}, which stands above it"
    return None


def check_extension(root):
    for path in sorted([*root.rglob("*.c"), *root.rglob("*.h")]):
        where = path.relative_to(root).as_posix()
        text = COMMENT.sub(lambda m: "\n" * m.group().count("\n"), path.read_text(encoding="utf-8"))
        for match in INCLUDE.finditer(text):
            reason = include_finding(where.split("/")[0], match.group(1))
            if reason:
                line = text.count("\n", 0, match.start()) + 1
                yield f"{where}:{line}: includes {match.group(1)}: {reason}"


def check(root):
    return [*(f"python/reprise/{finding}" for finding in check_package(root / "python/reprise")),
            *(f"python/csrc/{finding}" for finding in check_extension(root / "python/csrc"))]


def self_test():
    """One tree with everything that is allowed, then one file for each thing that is not."""
    allowed = {
        "reprise/__init__.py": "from ._call.a import run\n",
        "reprise/mends.py": "from ._base.a import Made\n",
        "reprise/_base/a.py": "from .. import _C\nclass Made:\n    def __init__(self):\n"
                              "        self._own = 1\n    def same(self, other):\n"
                              "        return other._own == self._own\ndef _near(): pass\n",
        "reprise/_base/versions.py": "def ask():\n    from reprise._call.a import run\n",
        "reprise/_call/a.py": "from .._base import a\nfrom .._base.a import Made\nclass Further(Made):\n"
                              "    def run(self):\n        return self._own, super()._own, x._cdata\n"
                              "run = a.Made\n",
        "csrc/base/a.h": "#include <reprise.h>\n",
        "csrc/call/a.c": '#include "base/a.h"\n/* #include "b.h" */\n',
        "csrc/module.c": '#include "call/a.h"\n',
    }
    refused = {
        "reprise/_base/b.py": "def late():\n    from .._call import a\n",
        "reprise/_base/c.py": "from .. import mends\n",
        "reprise/_grad/b.py": "import reprise._call.a\n",
        "reprise/_call/b.py": "from .._base.a import _near\n",
        "reprise/_call/c.py": "from .._base import a\na._near()\n",
        "reprise/_call/d.py": "def look(made):\n    return made._own\n",
        "reprise/_attic/b.py": "",
        "csrc/base/b.c": '#include "call/a.h"\n',
        "csrc/base/c.c": '#include "a.h"\n',
        "csrc/attic/b.c": '#include "base/a.h"\n',
    }
    breaches.expect(check, {f"python/{name}": text for name, text in allowed.items()},
                    {f"python/{name}": text for name, text in refused.items()})
    print(f"check_rooms: each of {len(refused)} kinds of breach is found")


if __name__ == "__main__":
    breaches.main(__doc__, check, self_test, "imports and includes point down, private names stay at home")
