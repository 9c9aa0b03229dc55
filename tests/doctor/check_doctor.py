#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`reprise doctor`: what it finds in environments made for it, and its one last line.

usage: check_doctor.py REPRISE LIBCUDA NO_DEVICES

LIBCUDA: the host driver as a library that looks like NVIDIA's. NO_DEVICES: such a library that has
no device."""
import glob
import json
import os
import runpy
import stat
import subprocess
import sys
import tempfile
import unittest

REPRISE, LIBCUDA, NO_DEVICES = (sys.argv.pop(1) for _ in range(3))
VERSIONS = runpy.run_path(os.path.join(os.path.dirname(__file__), "../../python/reprise/_base/versions.py"))
OURS = ("CUDA_", "NCCL_", "TORCH_", "PYTORCH_", "REPRISE_")


def run(*args, **env):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
    return subprocess.run([REPRISE, "doctor", *args], check=False, text=True, capture_output=True,
                          env=kept | env)


def doctor(*args, **env):
    result = run("--driver", "host", "--json", *args, **env)
    return json.loads(result.stdout), result.returncode


class Doctor(unittest.TestCase):
    def test_ready(self):
        facts, code = doctor("--no-python")
        self.assertEqual(code, 0)
        self.assertTrue(facts["ready"])
        self.assertEqual(facts["driver"], "host")
        self.assertEqual([t["name"] for t in facts["self_test"]], ["capture", "binding", "update"])
        self.assertEqual({t["status"] for t in facts["self_test"]}, {"RP_OK"})
        self.assertTrue(all(c["present"] for c in facts["capabilities"]))
        self.assertEqual(facts["environment"], [])
        text = run("--driver", "host", "--no-python")
        self.assertEqual(text.returncode, 0)
        self.assertEqual(text.stdout.splitlines()[-1], "the command line and the C library: ready: "
                         "Reprise host device through the host driver")

    def test_no_gpu_driver(self):
        for options in ([], ["--no-python"]):  # with Python PyTorch is asked for too
            result = run("--driver", "cuda", *options, REPRISE_LIBCUDA="/nonexistent.so")
            self.assertEqual(result.returncode, 1)
            self.assertIn("\nthe command line and the C library: not ready: ", result.stdout)
            self.assertIn("/nonexistent.so", result.stdout)
        anyway = run("--no-python", REPRISE_LIBCUDA="/nonexistent.so")
        self.assertEqual(anyway.returncode, 0)
        self.assertIn("the command line and the C library: ready, on the host driver only",
                      anyway.stdout.splitlines()[-1])

    def test_misspelled_variables(self):
        for wrong, meant in (("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"),
                             ("CUDA_LAUCNH_BLOCKING", "CUDA_LAUNCH_BLOCKING"),
                             ("PYTORCH_CUDA_ALLOC_CONFIG", "PYTORCH_CUDA_ALLOC_CONF"),
                             ("TORCH_NCCL_ASYNC_ERROR_HANDLIN", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
                             ("REPRISE_LIBCUD", "REPRISE_LIBCUDA")):
            facts, code = doctor("--no-python", **{wrong: "1"})
            self.assertEqual(code, 1, wrong)
            found = [f for f in facts["environment"] if f["misspelled"]]
            self.assertEqual([f["name"] for f in found], [wrong])
            self.assertIn(meant + " may be meant", found[0]["says"])
            self.assertIn(wrong, facts["verdict"])
        facts, code = doctor("--no-python", REPRISE_ANYTHING="1")
        self.assertEqual(code, 1)  # all names of ours are known

    def test_known_variables(self):
        facts, code = doctor("--no-python", CUDA_LAUNCH_BLOCKING="1", NCCL_DEBUG="INFO",
                             CUDA_SOMETHING_ELSE="1", TORCH_NCCL_BLOCKING_WAIT="0")
        self.assertEqual(code, 0)
        self.assertFalse(any(f["stops"] for f in facts["environment"]))
        names = {f["name"]: f["says"] for f in facts["environment"]}
        self.assertEqual(set(names), {"CUDA_LAUNCH_BLOCKING", "TORCH_NCCL_BLOCKING_WAIT"})
        self.assertIn("every launch wait", names["CUDA_LAUNCH_BLOCKING"])

    def test_what_stops_captures(self):
        for name, value, says in (
                ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", "every allocation goes to the driver"),
                ("TORCH_NCCL_BLOCKING_WAIT", "1", "wait for collectives"),
                ("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync", "leave it native")):
            facts, code = doctor("--no-python", **{name: value})
            self.assertEqual(code, 1, name)
            self.assertIn("not ready: correct or unset ", facts["verdict"])
            self.assertIn(says, facts["verdict"])
            found = [f for f in facts["environment"] + facts["allocator_settings"] if f["stops"]]
            self.assertEqual([f["value"] for f in found], [value.rpartition(":")[2]])
        text = run("--driver", "host", "--no-python", PYTORCH_NO_CUDA_MEMORY_CACHING="1").stdout
        self.assertIn("\nthe command line and the C library: ready: ", text)
        self.assertIn("\nthe environment: not ready: correct or unset ", text)
        self.assertIn("  ! PYTORCH_NO_CUDA_MEMORY_CACHING = 1", text)
        self.assertEqual(doctor("--no-python", PYTORCH_NO_CUDA_MEMORY_CACHING="0")[1], 0)
        self.assertEqual(doctor("--no-python", PYTORCH_ALLOC_CONF="backend:native")[1], 0)

    def test_allocator_settings(self):
        conf = "expandable_segments:True,roundup_power2_divisions:[256:1,512:2],max_split_mb:8"
        facts, code = doctor("--no-python", PYTORCH_CUDA_ALLOC_CONF=conf)
        settings = {f["name"]: f for f in facts["allocator_settings"]}
        self.assertEqual(settings["roundup_power2_divisions"]["value"], "[256:1,512:2]")
        self.assertEqual(settings["expandable_segments"]["value"], "True")
        self.assertFalse(settings["max_split_mb"]["misspelled"])  # too far from any
        self.assertEqual(code, 0)
        facts, code = doctor("--no-python", PYTORCH_CUDA_ALLOC_CONF="expandable_segment:True")
        self.assertEqual(code, 1)
        self.assertIn("expandable_segments may be meant", facts["verdict"])
        facts, code = doctor("--no-python", PYTORCH_CUDA_ALLOC_CONF="expandable_segment:True",
                             PYTORCH_ALLOC_CONF="backend:native")
        self.assertEqual([f["name"] for f in facts["allocator_settings"]], ["backend"])
        for odd in ("", ",", ":", "a", "[", "x:[,", ",,a:b,,"):
            self.assertIn(doctor("--no-python", PYTORCH_ALLOC_CONF=odd)[1], (0, 1))

    def test_usage(self):
        for args in (["--bogus"], ["more"], ["--driver"], ["--python"]):
            result = run(*args)
            self.assertEqual((result.returncode, result.stdout), (2, ""), args)
        self.assertEqual(run("--help").returncode, 0)


TORCH = """
import types
__version__ = {version!r}
version = types.SimpleNamespace(cuda={cuda!r}, hip={hip!r})
def _init():
    {init}
cuda = types.SimpleNamespace(get_allocator_backend=lambda: {allocator!r}, init=_init,
                             is_available=lambda: {available!r}, is_initialized=lambda: {started!r})
print("a line that a module prints as it is imported")
"""
WELL = {"version": "2.11.0+cu130", "cuda": "13.0", "hip": None, "allocator": "native",
        "available": True, "started": False, "init": "pass"}
OF_WELL = [text for text in [VERSIONS["judge"](WELL["version"])] if text]  # the table of versions decides


class PyTorch(unittest.TestCase):
    """Pythons with a made torch and a made package, where the host driver stands in for NVIDIA's."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.version = subprocess.run([REPRISE, "--version"], check=True, text=True,
                                      capture_output=True).stdout.split()[1]
        # Without its site-packages, that it has nothing but what a test makes.
        self.python = self.write("python with blanks", f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
        self.environment = {"PYTHONPATH": os.path.join(self.folder, "lib"),
                            "PYTHONDONTWRITEBYTECODE": "1", "REPRISE_LIBCUDA": LIBCUDA}

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return path

    def torch(self, **other):
        self.write("lib/torch/__init__.py", TORCH.format(**(WELL | other)))

    def package(self, text=None):
        self.write("lib/reprise/__init__.py", text or f"__version__ = {self.version!r}\n")
        self.write("lib/reprise/_C.abi3.so", "")

    def ask(self, *args, **env):
        """What is said of PyTorch; the exit code has to go with it."""
        whole = run("--json", "--driver", "host", "--python", self.python, *args,
                    **(self.environment | env))
        facts = json.loads(whole.stdout)
        told = facts["pytorch"]
        self.assertEqual(whole.returncode, 0 if facts["ready"] else 1)
        self.assertTrue(facts["library"]["ready"])
        self.assertEqual(facts["ready"], not told["problems"] and told["ready"] is not False)
        if told["problems"]:
            self.assertFalse(told["ready"])
            self.assertEqual(facts["verdict"], "not ready: " + told["problems"][0])
        return told

    def problem(self, *args, **env):
        """The one thing that keeps this PyTorch from using Reprise."""
        told = self.ask(*args, **env)
        self.assertEqual(len(told["problems"]), 1, told)
        self.assertIn(told["warnings"], ([], OF_WELL))  # nothing is said of a version that is not told
        return told["problems"][0]

    def test_ready(self):
        self.torch()
        self.package()
        told = self.ask()
        self.assertTrue(os.path.samefile(told.pop("python"), sys.executable))
        self.assertEqual(told, {
            "version": "2.11.0+cu130", "cuda": "13.0", "allocator": "native", "reprise": self.version,
            "why_not": None, "problems": [], "warnings": OF_WELL, "ready": True})
        text = run("--python", self.python, **self.environment).stdout
        self.assertIn("PyTorch: ready", text.splitlines())
        self.assertIn("package reprise " + self.version, text)

    def test_without_pytorch_the_command_line_alone_is_judged(self):
        for folder in ("lib", "lib/torch"):  # a folder of that name is no module
            os.makedirs(os.path.join(self.folder, folder))
            told = self.ask()
            self.assertIn("it is not installed for ", told["why_not"])
            self.assertIsNone(told["ready"])
            self.assertIsNone(told["version"])
        text = run("--python", self.python, **(self.environment | {"REPRISE_LIBCUDA": "/none.so"}))
        self.assertEqual(text.returncode, 0)
        self.assertIn("the command line and the C library: ready, on the host driver only", text.stdout)
        self.assertIn("PyTorch: not judged: it is not installed", text.stdout.splitlines()[-1])

    def test_pythons_that_do_not_answer(self):
        self.assertIn("/nowhere could not be started: No such file",
                      self.problem("--python", "/nowhere"))
        self.python = self.write("short", "#!/bin/sh\necho torch 2.11.0\nexit 3\n")
        self.assertIn("ended with exit code 3 before it answered", self.problem())
        self.python = self.write("killed", "#!/bin/sh\nkill -SEGV $$\n")
        self.assertIn("was ended by signal 11", self.problem())
        # That the usual python3 is not there is no fault.
        facts, code = doctor(PATH=self.folder)
        self.assertEqual((code, facts["pytorch"]["ready"]), (0, None))
        self.assertIn("python3 could not be started", facts["pytorch"]["why_not"])

    def test_python3_of_the_path_is_asked(self):
        self.torch()
        self.write("bin/python3", f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
        facts, _ = doctor(**(self.environment | {"PATH": os.path.join(self.folder, "bin")}))
        self.assertEqual(facts["pytorch"]["version"], "2.11.0+cu130")

    def test_long_and_strange_answers(self):
        body = "import sys\nprint('problem', 'x' * 5000)\nprint('unknown y')\nprint()\n" \
               "sys.stdout.buffer.write(b'warning \\xff\\n')\n" + "print('warning z')\n" * 40 + \
               "print('torch ' + 'v' * 300)\nprint('end')\n"
        self.python = self.write("strange", f"#!/bin/sh\nexec '{sys.executable}' -S - <<'END'\n{body}END\n")
        told = self.ask()
        self.assertEqual(told["problems"][0], "x" * 511)
        self.assertEqual(told["version"], "v" * 63)
        self.assertEqual(told["warnings"], ["\ufffd"] + ["z"] * 15)

    def test_versions(self):
        self.package()
        self.torch(version="2.8.1")
        self.assertIn("PyTorch 2.8.1 is too old: Reprise needs 2.9 or later", self.problem())
        for version, says in (("9.1.0a0+git12", "PyTorch 9.1.0a0+git12 is newer than 2."),
                              ("strange", "PyTorch's version 'strange' cannot be read")):
            self.torch(version=version)
            told = self.ask()
            self.assertEqual((told["problems"], told["ready"]), ([], True))
            self.assertIn(says, told["warnings"][0])
            self.assertIn("what can be proved at import works", told["warnings"][0])
        text = run("--python", self.python, **self.environment).stdout
        self.assertIn("\nPyTorch: ready\nPyTorch: note: PyTorch's version 'strange' cannot", text)

    def test_a_torch_that_cannot_be_imported(self):
        self.write("lib/torch/__init__.py", "raise OSError('libcudart.so.13: no such file\\nmore')")
        self.assertEqual(self.problem(), "PyTorch is installed and cannot be imported: "
                         "libcudart.so.13: no such file")

    def test_builds(self):
        self.package()
        for cuda, hip, says in ((None, None, "2.11.0+cu130 is built without CUDA: install one that is "
                                             "built for CUDA 13"),
                                (None, "6.4", "is built for ROCm, not for CUDA: install one"),
                                ("14.1", None, "is built for CUDA 14.1 and the driver is for 13.0: "
                                               "update the driver, or install a PyTorch for CUDA 13")):
            self.torch(cuda=cuda, hip=hip, available=False)
            self.assertIn(says, self.problem())
        for cuda in ("12.8", "13.2"):
            self.torch(cuda=cuda)
            self.assertEqual(self.ask()["problems"], [])
        self.torch(cuda=None, available=False)
        self.assertIn("is built without CUDA: Reprise needs an NVIDIA GPU and a PyTorch for CUDA",
                      self.problem(REPRISE_LIBCUDA="/none.so"))

    def test_a_gpu_that_pytorch_does_not_see(self):
        self.package()
        self.torch(available=False, init="raise RuntimeError('the words of PyTorch\\nand more')")
        self.assertEqual(self.problem(), "torch.cuda.is_available() is false, though the driver for CUDA "
                         "13.0 works; PyTorch says: the words of PyTorch")
        for hidden in ("", "-1"):
            self.assertEqual(self.problem(CUDA_VISIBLE_DEVICES=hidden),
                             "CUDA_VISIBLE_DEVICES hides every GPU: unset it")
        self.assertIn("is_available() is false", self.problem(CUDA_VISIBLE_DEVICES="0"))

    @unittest.skipIf(glob.glob("/dev/nvidia[0-9]*") or os.path.exists("/dev/dxg"), "there is a GPU")
    def test_no_gpu(self):
        self.package()
        self.torch(available=False, init="raise RuntimeError('none')")
        self.assertIn("this container has neither /dev/nvidia* nor NVIDIA's driver library: start it "
                      "with the GPU (docker run --gpus all",
                      self.problem(REPRISE_LIBCUDA="/none.so", container="docker"))
        self.assertIn("this container has no /dev/nvidia*: start it with the GPU",
                      self.problem(REPRISE_LIBCUDA=NO_DEVICES, container="docker"))
        told = self.problem(REPRISE_LIBCUDA=NO_DEVICES)
        self.assertRegex(told, r"^no GPU is seen: .*no /dev/nvidia\*: (start it|`nvidia-smi` should)")

    def test_a_driver_that_reprise_cannot_use(self):
        self.package()
        self.torch()
        self.assertIn("PyTorch sees a GPU that Reprise cannot use: NVIDIA's driver could not be loaded",
                      self.problem(REPRISE_LIBCUDA="/none.so"))
        self.assertIn("PyTorch sees a GPU that Reprise cannot use: there is no device 0",
                      self.problem(REPRISE_LIBCUDA=NO_DEVICES))

    def test_allocators(self):
        self.package()
        for allocator, says in (("cudaMallocAsync", "set backend:native in PYTORCH_ALLOC_CONF"),
                                ("pluggable", "another allocator took the place of PyTorch's")):
            self.torch(allocator=allocator)
            self.assertIn(says, self.problem())
        self.torch(started=True)
        self.assertIn("CUDA is in use right after `import torch`", self.problem())
        self.torch()
        self.write("lib/reprise/_alloc/options.py", "def from_environment(): return 7\n"
                   "def heap_options(given): raise ValueError(f'{given} is too small')\n")
        self.assertEqual(self.problem(),
                         "reprise.install() refuses a setting of PYTORCH_ALLOC_CONF: 7 is too small")

    def test_packages(self):
        self.torch()
        self.assertIn("the package reprise is not installed for ", self.problem())
        self.write("lib/reprise/__init__.py", "raise SystemExit('this is not run')")
        problem = self.problem()
        self.assertIn("lib/reprise/__init__.py is another project that is called reprise", problem)
        self.assertIn("-m pip uninstall reprise", problem)
        self.package("raise ImportError('undefined symbol: x')")
        self.assertIn("cannot be imported, install it again: undefined symbol: x", self.problem())
        self.package("__version__ = '0.0.7'")
        told = self.ask()
        self.assertEqual(told["reprise"], "0.0.7")
        self.assertEqual(told["problems"], ["the package reprise is version 0.0.7, and this command is "
                                            f"{self.version}: install both from the same version"])

    def test_another_project_in_one_file(self):
        self.torch()
        self.write("lib/reprise.py", "")
        self.assertIn("lib/reprise.py is another project that is called reprise", self.problem())

    def test_features_that_are_off(self):
        self.torch()
        self.package()
        self.write("lib/reprise/_base/torch_private.py", "def missing():\n    return [('checkpoint', 'no such name')]\n")
        told = self.ask()
        self.assertEqual((told["ready"], told["warnings"]),
                         (True, [*OF_WELL, "checkpoint is turned off on this PyTorch: no such name"]))

    def test_every_problem_is_told(self):
        self.torch(version="2.8.0", cuda=None, allocator="cudaMallocAsync", available=False)
        result = run("--python", self.python, **self.environment)
        self.assertEqual(result.returncode, 1)
        lines = [line for line in result.stdout.splitlines() if line.startswith("PyTorch: not ready: ")]
        self.assertEqual(len(lines), 4, lines)
        self.assertEqual(run("--no-python", **self.environment).returncode, 0)


unittest.main()
