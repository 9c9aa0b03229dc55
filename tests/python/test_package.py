# SPDX-License-Identifier: MIT
"""The package without a GPU: what imports, what is flattened, what the sentences say."""

import collections
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

import reprise
from reprise import _C
from reprise._alloc import install as install_module
from reprise._base import torch_private
from reprise.__main__ import USAGE
from reprise._base.tree import flatten, unflatten

Pair = collections.namedtuple("Pair", "left right")


def has_torch():
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def has_gpu():
    if not has_torch():
        return False
    import torch
    return torch.cuda.is_available()


class Owner:
    pass


class Import(unittest.TestCase):
    def test_version_is_the_librarys(self):
        self.assertRegex(reprise.__version__, r"^\d+\.\d+\.\d+$")

    def fake_torch(self, version):
        """A PyTorch of this version as far as pools go: what was made, what was dropped, and what was called."""
        made, dropped, called = [], [], []

        class Torch:
            __version__ = version

            class _C:
                @staticmethod
                def _cuda_customAllocator(alloc, free):
                    made.append((alloc, free))
                    return object()

            class cuda:
                current_device = staticmethod(lambda: 0)
                empty_cache = staticmethod(lambda: called.append("empty"))

                class MemPool:
                    def __init__(self, allocator):
                        self.allocator = allocator
                        self.id = (0, id(self))

                    def __del__(self):
                        dropped.append(self.allocator)
                        called.append("gone")

        for name, tells in (("beginAllocateCurrentThreadToPool", "begin"), ("endAllocateToPool", "end"),
                            ("releasePool", "release")):
            setattr(Torch._C, f"_cuda_{name}", staticmethod(lambda *_, tells=tells: called.append(tells)))
        torch_private.of(Torch)
        made.clear()
        return Torch, made, dropped, called

    def without_a_device(self, version):
        """What fake_torch returns; no segments are there, and no device is asked for its mode."""
        for name, value in (("_segments", []), ("_immortal", []),
                            ("relaxed", lambda index: contextlib.nullcontext())):
            patcher = unittest.mock.patch.object(install_module, name, value)
            self.addCleanup(patcher.stop)
            patcher.start()
        self.addCleanup(setattr, torch_private, "_found", torch_private._found)
        return self.fake_torch(version)

    def test_pools_of_pytorch_that_are_there_have_allocators_of_their_own(self):
        drop_segment_pools, segment_pool = install_module.drop_segment_pools, install_module.segment_pool
        Torch, made, dropped, _ = self.without_a_device("2.11.0")
        owners = [Owner(), Owner()]
        kept = [segment_pool(Torch, owner).allocator for owner in owners]
        self.assertEqual(len(set(map(id, kept))), 2)
        owners.pop(0)
        self.assertEqual(dropped, [])
        with unittest.mock.patch.object(_C, "call_counts", return_value=(1, 0)):
            self.assertTrue(drop_segment_pools())  # while segments are there, whoever's they are
            self.assertEqual(dropped, kept[:1])
            owners.append(Owner())
            self.assertNotIn(segment_pool(Torch, owners[-1]).allocator, kept)
        self.assertEqual(len(made), 3)
        self.assertFalse(drop_segment_pools())
        owners.append(Owner())
        self.assertIs(segment_pool(Torch, owners[-1]).allocator, kept[0])
        owners.clear()
        drop_segment_pools()
        for _ in range(5):
            owners = [Owner() for _ in range(3)]
            kept = [segment_pool(Torch, owner).allocator for owner in owners]
            owners.clear()
            drop_segment_pools()
        self.assertEqual(len(made), 3)

    def test_destructors_of_pools_free_no_memory(self):
        """They have another use when they run, where that may be; else none runs."""
        for version, expected in (("2.11.0", ["begin", "end", "gone", "release", "empty"]),
                                  ("2.10.0", ["release", "empty"]), ("2.9.1", ["release", "empty"])):
            Torch, _, _, called = self.without_a_device(version)
            install_module.segment_pool(Torch, Owner())
            self.assertTrue(install_module.drop_segment_pools())
            self.assertEqual(called, expected, version)
            self.assertFalse(install_module.drop_segment_pools())
            self.assertEqual(called, expected, version)

    def install_with(self, before):
        """What install() says in a process where this came before."""
        program = (f"import sys, types; {before}\n"
                   "import reprise\n"
                   "try: reprise.install()\n"
                   "except ImportError as error: print(error)")
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              check=True).stdout

    def test_imports_without_torch(self):
        self.assertIn("reprise needs PyTorch 2.9 or later",
                      self.install_with("sys.modules['torch'] = None"))

    def test_old_torch_is_refused(self):
        old = "sys.modules['torch'] = types.SimpleNamespace(__version__='2.8.1+cu1')"
        self.assertIn("PyTorch 2.8.1+cu1 is too old", self.install_with(old))

    @unittest.skipUnless(has_torch() and not has_gpu(), "needs PyTorch, and no GPU")
    def test_without_a_gpu_the_reason_is_told(self):
        for call in (reprise.install, reprise.Pool, lambda: reprise.graphed(print, strict=True)):
            with self.assertRaisesRegex(RuntimeError, "reprise needs an NVIDIA GPU"):
                call()

    def test_what_to_do_without_a_gpu(self):
        from reprise._base.need import need_gpu

        def told(built, **environment):
            torch = types.SimpleNamespace(
                __version__="2.11.0", version=types.SimpleNamespace(cuda=built),
                cuda=types.SimpleNamespace(is_available=lambda: False))
            with unittest.mock.patch.dict(sys.modules, torch=torch), \
                    unittest.mock.patch.dict(os.environ, environment):
                if not environment:
                    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
                with self.assertRaises(RuntimeError) as caught:
                    need_gpu()
            self.assertIn("python -m reprise doctor", str(caught.exception))
            return str(caught.exception)

        self.assertIn("built without CUDA, install another", told(None))
        self.assertIn("a driver for CUDA 13.0 or later", told("13.0"))
        self.assertIn("a driver for CUDA 13.0", told("13.0", CUDA_VISIBLE_DEVICES="1"))
        for hidden in ("", "-1"):
            self.assertIn("unset it", told("13.0", CUDA_VISIBLE_DEVICES=hidden))


class Command(unittest.TestCase):
    def run_it(self, *arguments, start=("-m", "reprise"), cwd=None, **environment):
        return subprocess.run([sys.executable, *start, *arguments], capture_output=True, text=True,
                              check=False, cwd=cwd, env={**os.environ, **environment})

    def test_tells_its_use(self):
        bare, asked = self.run_it(), self.run_it("--help")
        self.assertEqual((bare.returncode, bare.stdout), (2, ""))
        self.assertEqual((asked.returncode, asked.stderr), (0, ""))
        self.assertEqual(bare.stderr, asked.stdout)
        self.assertEqual(bare.stderr.count("usage:"), 1)
        for command in ("explain", "run"):
            self.assertRegex(bare.stderr, rf"\n  {command} ")
        self.assertIn("did you mean 'run'?", self.run_it("rnu").stderr)
        done = self.run_it("run")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("usage: python -m reprise run SCRIPT", done.stderr)
        for asked in (("run", "--help"), ("help", "run")):
            done = self.run_it(*asked)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, USAGE, ""))

    def test_the_librarys_commands_run(self):
        console = ("-c", "import reprise.__main__; reprise.__main__.command()")
        for start in (("-m", "reprise"), console):
            done = self.run_it("explain", "901", start=start)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", done.stdout)
        self.assertEqual(self.run_it("--version").stdout, f"reprise {reprise.__version__}\n")
        done = self.run_it("nonsense")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no command 'nonsense'", done.stderr)

    def test_the_doctor_asks_this_python(self):
        with tempfile.TemporaryDirectory() as other:
            python = os.path.join(other, "python3")
            with open(python, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\necho python another Python\necho end\n")
            os.chmod(python, 0o755)
            path = other + os.pathsep + os.environ["PATH"]
            asked = [json.loads(self.run_it("doctor", "--driver", "host", "--json", *more,
                                            PATH=path).stdout)["pytorch"]["python"]
                     for more in ((), ("--python", python))]
        self.assertEqual(asked, [sys.executable, "another Python"])

    def test_a_missing_program_is_named(self):
        done = self.run_it("explain", "901", start=(
            "-c", "import reprise.__main__ as m; m.PROGRAM = '/nowhere/reprise'; m.command()"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nowhere/reprise could not be started (No such file", done.stderr)

    def test_a_missing_script_is_named(self):
        done = self.run_it("run", "nosuch.py")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "reprise: there is no file 'nosuch.py' to run\n")

    def test_programs_run_as_python_runs_them(self):
        started = ("-c", "import reprise\nreprise.install = lambda: print('installed')\n"
                         "from reprise.__main__ import command\ncommand()")
        with tempfile.TemporaryDirectory() as folder:
            folder = os.path.realpath(folder)
            program = os.path.join(folder, "program.py")
            with open(program, "w", encoding="utf-8") as file:
                file.write("import sys\nprint(__name__, sys.path[0], sys.argv)\nsys.exit(3)\n")
            done = self.run_it("run", program, "-x", start=started)
            self.assertEqual(done.returncode, 3)
            self.assertEqual(done.stdout, f"installed\n__main__ {folder} {[program, '-x']}\n")
            done = self.run_it("run", "-m", "program", "-x", start=started, cwd=folder)
            self.assertEqual(done.returncode, 3)
            self.assertEqual(done.stdout, f"installed\n__main__ {folder} {[program, '-x']}\n")

    @unittest.skipIf(has_gpu(), "there is a GPU")
    def test_what_is_missing_is_told_once(self):
        done = self.run_it("run", __file__)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^reprise needs ")


class Extension(unittest.TestCase):
    @unittest.skipIf(has_gpu(), "there is a GPU")
    def test_errors_carry_the_librarys_status(self):
        with self.assertRaises(reprise.Error) as caught:
            _C.device_info(0)
        self.assertEqual(caught.exception.status, "RP_ERROR_NO_DRIVER")
        self.assertIn("libcuda", str(caught.exception))

    def test_devices_that_cannot_be_are_refused(self):
        for ordinal in (-1, 1000):
            with self.assertRaisesRegex(reprise.Error, f"no device {ordinal}"):
                _C.heap_stats(ordinal)

    def test_hooks_are_functions(self):
        hooks = _C.hooks()
        self.assertEqual(len(set(hooks.values())), 10)
        self.assertTrue(all(hooks.values()))

    def test_pools_cannot_be_made_of_nothing(self):
        with self.assertRaises(TypeError):
            _C.Pool()
        with self.assertRaises(TypeError):
            _C.Graph()

    def test_explains(self):
        self.assertEqual(_C.explain("901")[0], "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")
        self.assertIsNone(_C.explain("all is well"))


class Trees(unittest.TestCase):
    def check(self, tree, leaves):
        flat, spec = flatten(tree)
        self.assertEqual(flat, leaves)
        again = unflatten(spec, flat)
        self.assertEqual(again, tree)
        self.assertIs(type(again), type(tree))
        hash(spec)
        return spec

    def test_containers_come_back_as_they_were(self):
        self.check((1, [2, (3,)], {"a": 4, "b": None}), [1, 2, 3, 4])
        self.check(Pair(1, (2, 3)), [1, 2, 3])
        self.check([], [])
        self.check(None, [])
        self.check(5, [5])

    def test_specs_tell_trees_apart(self):
        trees = [(1, 2), [1, 2], {"a": 1, "b": 2}, {"b": 1, "a": 2}, (1, (2,)), Pair(1, 2),
                 (1, 2, None), ((1, 2),), (None, 1, 2)]
        self.assertEqual(len({flatten(t)[1] for t in trees}), len(trees))

    def test_specs_do_not_hold_leaves(self):
        self.assertEqual(flatten((1, {"a": 2}))[1], flatten((3, {"a": 4}))[1])


if __name__ == "__main__":
    unittest.main()
