# SPDX-License-Identifier: MIT
"""Warnings name the program's line, not one within Reprise or PyTorch."""

import ast
import functools
import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
import warnings
import weakref

import reprise
from reprise._alloc import options
from reprise._base import warn as _warn
from reprise._base.collector import clear_frames
from reprise._base.lines import cut_frames, line_of

PACKAGE = pathlib.Path(reprise.__file__).parent
TORCH = "/somewhere/site-packages/torch"
TEXT = """
import contextlib, functools
from reprise._base.warn import warn

def through(call):
    return call()

@contextlib.contextmanager
def entered():
    warn("as it is entered")
    yield

@functools.singledispatch
def dispatched(_):
    warn("dispatched")
"""


def names_of(file):
    """The functions above as if they were of this file."""
    names = {}
    exec(compile(TEXT, file, "exec"), names)
    return types.SimpleNamespace(**names)


PACKAGES = names_of(str(PACKAGE / "_call/graphed.py"))
OURS, PYTORCHS = PACKAGES.through, names_of(f"{TORCH}/nn/modules/module.py").through
FX = names_of("<eval_with_key>.7").through


class Lines(unittest.TestCase):
    def setUp(self):
        torch = types.SimpleNamespace(__file__=f"{TORCH}/__init__.py", __version__="9.9")
        patch = unittest.mock.patch.dict(sys.modules, torch=torch)
        patch.start()
        self.addCleanup(patch.stop)

    def places(self, call):
        """Where each way to find the line says that `call` warned."""
        for counts in {True, _warn._COUNTS}:
            with warnings.catch_warnings(record=True) as caught, \
                    unittest.mock.patch.object(_warn, "_COUNTS", counts):
                warnings.simplefilter("always")
                call()
            self.assertEqual(len(caught), 1)
            yield caught[0].filename, caught[0].lineno

    def check(self, call, line=0):
        """Does `call` warn at this line of its own?"""
        for place in self.places(call):
            self.assertEqual(place, (__file__, call.__code__.co_firstlineno + line))

    def test_called_at_once(self):
        self.check(lambda: _warn.warn("text"))

    def test_through_the_package_and_pytorch(self):
        warn = functools.partial(_warn.warn, "text")
        ours = functools.partial(OURS, warn)
        deeper = functools.partial(PYTORCHS, functools.partial(FX, ours))
        self.check(lambda: OURS(warn))
        self.check(lambda: PYTORCHS(ours))
        self.check(lambda: OURS(deeper))

    def test_the_innermost_line_of_the_program_counts(self):
        def inner():
            OURS(functools.partial(_warn.warn, "text"))
        for place in self.places(lambda: OURS(inner)):
            self.assertEqual(place, (__file__, inner.__code__.co_firstlineno + 1))

    def test_through_helpers_of_python(self):
        def enter():
            with PACKAGES.entered():
                pass
        self.check(enter, 1)
        self.check(lambda: PACKAGES.dispatched(1))

    def test_as_a_module_is_imported(self):
        """Python does not count the frames of the import."""
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "of_the_program.py")
            for name, text in ((file, "import within_torch\n"), (
                    os.path.join(folder, "within_torch.py"), "import reprise._base.warn as w\nw.warn('text')\n")):
                with open(name, "w", encoding="utf-8") as out:
                    out.write(text)

            def load():
                importlib.invalidate_caches()
                for name in ("of_the_program", "within_torch"):
                    sys.modules.pop(name, None)
                with unittest.mock.patch.object(sys, "path", [folder, *sys.path]):
                    importlib.import_module("of_the_program")
            inside = _warn._inside()
            with unittest.mock.patch.object(
                    _warn, "_inside", lambda: (*inside, os.path.join(folder, "within_"))):
                for place in self.places(load):
                    self.assertEqual(place, (file, 1))

    def test_without_a_line_of_the_program(self):
        with unittest.mock.patch.object(_warn, "_inside", lambda: ("",)):  # any file
            for file, _ in self.places(lambda: _warn.warn("text")):
                self.assertNotEqual(file, __file__)

    def test_each_line_warns_once(self):
        def warn():
            OURS(functools.partial(_warn.warn, "text"))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            for _ in range(3):
                warn()
            warn_elsewhere = functools.partial(OURS, functools.partial(_warn.warn, "text"))
            warn_elsewhere()
        self.assertEqual(len(caught), 2)


    def test_settings_that_the_heap_does_not_have(self):
        self.check(lambda: options.from_environment({"PYTORCH_ALLOC_CONF": "throw_on_x:1"}))


class Package(unittest.TestCase):
    def test_a_newer_pytorch(self):
        program = ("import sys, types, reprise\n"
                   "sys.modules['torch'] = types.SimpleNamespace(__version__='99.0', cuda=\n"
                   "    types.SimpleNamespace(device_count=int), version=types.SimpleNamespace(cuda=None))\n"
                   "try:\n"
                   "    reprise.install()\n"
                   "except RuntimeError:\n"
                   "    pass\n")
        told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              check=True).stderr
        self.assertRegex(told, r"^<string>:5: UserWarning: .*PyTorch 99\.0")

    def test_all_go_through_one_function(self):
        for file in PACKAGE.rglob("*.py"):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            calls = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Attribute)
                     and node.attr in ("warn", "warn_explicit")
                     and isinstance(node.value, ast.Name) and node.value.id == "warnings"}
            self.assertEqual(bool(calls), file == PACKAGE / "_base/warn.py", f"{file}: {calls}")


class Held:
    """Stands for a tensor."""


class Frames(unittest.TestCase):
    """What exceptions hold that went through functions of others."""

    def test_those_behind_the_programs_innermost_are_let_go(self):
        others = {}
        exec(compile("def outer(held):\n    def inner():\n        return held.missing\n    return inner()\n",
                     "<frozen others>", "exec"), others)
        kept = [Held()]
        gone = weakref.ref(kept[0])

        def program():
            others["outer"](kept.pop())
        try:
            program()
        except AttributeError as error:
            caught = error
        del caught.obj  # it names the object, too
        clear_frames(caught)
        cut_frames(caught)
        self.assertIsNone(gone(), "a frame keeps its function, and that what it closes over")
        self.assertEqual(line_of(caught).function, "program")


if __name__ == "__main__":
    unittest.main()
