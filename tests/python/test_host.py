# SPDX-License-Identifier: MIT
"""`python -m reprise estimate` as far as it goes without PyTorch: what it says to those who have none, or
one that it cannot serve, and to wrong files, functions and shapes; and how the process is started."""

import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

from reprise._host import estimate, libraries, subject, torch_found

CUDA = "cuda = '13.0'\nhip = None\n"


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)


class Command(InFolder):
    """The command in a process of its own, beside a PyTorch that is made for it."""

    def run_it(self, *arguments, version=None, init=""):
        """version: the text of torch/version.py; None: there is no PyTorch."""
        self.write("model.py", "def build():\n    raise SystemExit(3)\n")
        environment = dict(os.environ)
        if version is not None:
            self.write("site/torch/__init__.py", init)
            self.write("site/torch/version.py", version)
            paths = [str(self.folder / "site"), environment.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(paths)
        return subprocess.run([sys.executable, "-m", "reprise", "estimate", *arguments], text=True,
                              capture_output=True, check=False, cwd=self.folder, env=environment)

    def refused(self, *texts, arguments=("model.py:build",), **torch):
        done = self.run_it(*arguments, **torch)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for text in texts:
            self.assertIn(text, done.stderr)

    @unittest.skipIf(torch_found.find(), "this Python has PyTorch")
    def test_no_pytorch(self):
        self.refused("PyTorch is not installed for", "pip install --no-deps torch==2.11.0")

    def test_pytorch_without_cuda(self):
        self.refused("PyTorch 2.11.0+cpu is built for CPUs alone", "pip install --no-deps torch==2.11.0",
                     version="__version__ = '2.11.0+cpu'\ncuda = None\n")
        self.refused("PyTorch 2.11.0+rocm7 is built for AMD GPUs",
                     version="__version__ = '2.11.0+rocm7'\ncuda = None\nhip = '7.0'\n")

    def test_pytorch_of_another_cuda(self):
        self.refused("PyTorch 2.7.1+cu118 is built for CUDA 11.8", "they serve PyTorch 2.11",
                     version="__version__ = '2.7.1+cu118'\ncuda = '11.8'\n")

    def test_pytorch_that_asks_for_more(self):
        self.refused("PyTorch 2.99.0+cu130 asks the CUDA libraries for more than the host driver's have",
                     "undefined symbol: cudaNew", version="__version__ = '2.99.0+cu130'\n" + CUDA,
                     init="raise ImportError('libtorch_cuda.so: undefined symbol: cudaNew')")

    def test_pytorch_that_lacks_something_else(self):
        self.refused("PyTorch 2.11.0+cu130 cannot be imported here: No module named 'sympy'",
                     version="__version__ = '2.11.0+cu130'\n" + CUDA,
                     init="raise ModuleNotFoundError(\"No module named 'sympy'\")")

    def test_wrong_subjects(self):
        self.refused("'model.py' is no FILE:FUNCTION", arguments=("model.py",))
        self.refused("there is no file 'modle.py'", arguments=("modle.py:build",))
        self.refused("'8by8' is no shape: a shape is 8x1024",
                     arguments=("model.py:build", "--shape", "8by8"))
        self.refused("'haf' is no type of a tensor: did you mean half?",
                     arguments=("model.py:build", "--shape", "8x8:haf"))
        self.refused("'=os' is no Python literal", arguments=("model.py:build", "--shape", "=os"))

    def test_unknown_gpu(self):
        done = self.run_it("model.py:build", "--gpu", "a100")
        self.assertEqual(done.returncode, 2)
        self.assertIn("invalid choice: 'a100'", done.stderr)
        self.assertIn("h200", done.stderr)

    def test_tells_its_use(self):
        for asked in (("--help",), ("-h",)):
            done = self.run_it(*asked)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("usage: python -m reprise estimate", done.stdout)
            self.assertIn("--gpu {h200,h100}", done.stdout)

    def test_a_process_that_dies_is_told_of(self):
        self.refused_with_signal("SIGKILL: is this machine's memory enough")

    def refused_with_signal(self, text):
        done = self.run_it("model.py:build", version="__version__ = '2.11.0+cu130'\n" + CUDA,
                           init="import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(text, done.stderr)


class Process(unittest.TestCase):
    def test_the_libraries_are_there_and_load_in_their_order(self):
        self.assertIsNone(libraries.missing())
        code = ("import ctypes, sys\n"
                "for path in sys.argv[1:]:\n"
                "    ctypes.CDLL(path, ctypes.RTLD_GLOBAL)\n"
                "cuda, out = ctypes.CDLL('libcuda.so.1'), ctypes.create_string_buffer(99)\n"
                "assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetName(out, 99, 0) == 0\n"
                "size, value = ctypes.c_size_t(), ctypes.c_int()\n"
                "assert cuda.cuDeviceTotalMem(ctypes.byref(size), 0) == 0\n"
                "assert cuda.cuDeviceGetAttribute(ctypes.byref(value), 38, 0) == 0\n"
                "print(out.value.decode(), size.value >> 20, value.value >> 20, sep=';')\n")
        paths = [str(libraries.LIB / name) for name in libraries.names()]
        for gpu, want in (("h200", "NVIDIA H200;143156;60"), ("h100", "NVIDIA H100 80GB HBM3;81090;50")):
            done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True,
                                  check=False, env={**os.environ, "REPRISE_HOST_GPU": gpu})
            self.assertEqual((done.stdout.strip(), done.stderr), (want, ""))

    def test_gpus(self):
        self.assertEqual(libraries.gpus(), {"h200": "NVIDIA H200", "h100": "NVIDIA H100 80GB HBM3"})

    def test_environment(self):
        given = {"LD_PRELOAD": "/a/libcuda.so.1:/b/libother.so", "PYTHONPATH": "/c", "KEPT": "yes"}
        env = libraries.environment("h100", "/k", given=given)
        loaded = env["LD_PRELOAD"].split(":")
        self.assertEqual(loaded[0], str(libraries.LIB / "libcuda.so.1"))
        self.assertEqual(loaded[len(libraries.names()):], ["/b/libother.so"])
        self.assertEqual(env["PYTHONPATH"].split(os.pathsep), [str(libraries.SITE), "/c"])
        self.assertEqual((env["REPRISE_HOST_GPU"], env["REPRISE_HOST_KERNELS"], env["KEPT"]),
                         ("h100", "/k", "yes"))
        self.assertTrue((libraries.SITE / "sitecustomize.py").is_file())

    def test_a_package_without_libraries_says_so(self):
        with mock.patch.object(libraries, "LIB", Path("/nonexistent")):
            self.assertIn("are not in /nonexistent: install the package reprise-cuda again",
                          libraries.missing())


class Told(unittest.TestCase):
    def test_what_is_left_out(self):
        used = {"void at::native::im2col_kernel<float>": 3, "void pytorch_flash::flash_fwd_kernel<T>": 2,
                "void vectorized_elementwise_kernel<4>": 9}
        rows = {row["use"]: row["runs"] for row in estimate.left_out(used)}
        self.assertEqual(rows, {"convolutions": 3, "attention": 2})
        self.assertEqual(estimate.left_out({"void vectorized_elementwise_kernel<4>": 9}), [])

    def test_text_names_each_workspace(self):
        found = {"gpu": "NVIDIA H200", "torch": "2.11.0", "installed": True, "text": "pool: 34.0 MiB planned",
                 "workspaces": [{"library": "cuBLAS", "bytes": 32 << 20}],
                 "left_out": estimate.left_out({"im2col_kernel": 1})}
        lines = estimate.text_of(found).splitlines()
        self.assertEqual(lines[0], "NVIDIA H200, PyTorch 2.11.0, with reprise.install()")
        self.assertIn("in the plan: cuBLAS's workspace of 32.0 MiB", lines[2])
        self.assertIn("not in the plan: cuDNN's workspaces for convolutions", lines[3])


class Tensor:
    """A tensor without memory, as far as shapes go."""

    def __init__(self, sizes, dtype):
        self.sizes, self.dtype = sizes, dtype


class Module:
    """A module, as far as it is asked."""

    def __call__(self, x):
        return x


TORCH = types.SimpleNamespace(Tensor=Tensor, nn=types.SimpleNamespace(Module=Module), float16="half",
                              float32="float", int64="long",
                              empty=lambda sizes, dtype, device: Tensor(sizes, dtype))


class Subject(InFolder):
    def wrong(self, text, call, *arguments):
        with self.assertRaises(subject.Wrong) as caught:
            call(*arguments)
        self.assertIn(text, str(caught.exception))

    def test_shapes(self):
        self.assertEqual(json.loads(json.dumps(subject.shape("8x64:half, scalar:int64,=3,=None"))),
                         [["tensor", [8, 64], "float16"], ["tensor", [], "int64"], ["value", 3],
                          ["value", None]])
        made = subject.tensors(TORCH, [["tensor", [8, 64], "float16"], ["value", 3]])
        self.assertEqual((made[0].sizes, made[0].dtype, made[1]), ([8, 64], "half", 3))

    def test_a_function_that_takes_arguments_is_what_is_captured(self):
        def step(x):
            return x
        fn, calls = subject.resolve(TORCH, step, "step", [[["tensor", [2], "float32"]]])
        self.assertIs(fn, step)
        self.assertEqual(calls[0][0].sizes, [2])
        self.wrong("step takes arguments, and none are known", subject.resolve, TORCH, step, "step", [])
        net = Module()
        self.assertIs(subject.resolve(TORCH, net, "net", [[["value", 1]]])[0], net)

    def test_a_function_without_arguments_makes_it(self):
        net, calls = Module(), [(1,), (2,)]
        self.assertEqual(subject.resolve(TORCH, lambda: (net, calls), "build", []), (net, calls))
        self.assertEqual(subject.resolve(TORCH, lambda: (net, [5]), "build", []), (net, [(5,)]))
        self.assertEqual(subject.resolve(TORCH, lambda: (net, calls), "build", [[["value", 7]]]),
                         (net, [(7,)]))
        self.assertEqual(subject.resolve(TORCH, lambda: net, "build", [[["value", 7]]]), (net, [(7,)]))
        for made, text in ((net, "returned a callable without shapes"), (3, "and returned int"),
                           ((net, []), "returned no shapes"),
                           ((net, Tensor([], "")), "a list of tuples")):
            self.wrong(text, subject.resolve, TORCH, lambda made=made: made, "build", [])

    def test_loads_a_file_as_a_module(self):
        self.addCleanup(sys.path.__setitem__, 0, sys.path[0])
        self.write("beside.py", "WIDTH = 7\n")
        path = self.write("a_model.py", "from beside import WIDTH\nSIZE = 3\ndef build():\n    return WIDTH\n")
        self.addCleanup(sys.modules.pop, "a_model", None)
        self.assertEqual(subject.load(path, "build")(), 7)
        self.wrong("has no function 'buld': did you mean build?", subject.load, path, "buld")
        self.wrong("'SIZE' in", subject.load, path, "SIZE")
        self.wrong("no Python file", subject.load, self.write("model.txt", ""), "build")


if __name__ == "__main__":
    unittest.main()
