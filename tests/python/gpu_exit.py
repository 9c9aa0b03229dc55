# SPDX-License-Identifier: MIT
"""Processes that end right behind a backward pass. A library that is loaded first holds autograd's
device threads up where a pass is over for its caller and they have yet to free what they hold of it;
usage: gpu_exit.py ..."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

# libstdc++ may be loaded later, and not for all: it is asked by name.
LATE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

void _ZNSt18condition_variable10notify_oneEv(void *condition)
{
    static void (*notify)(void *);
    if (!notify)
        notify = (void (*)(void *))dlsym(dlopen("libstdc++.so.6", RTLD_NOW),
                                         "_ZNSt18condition_variable10notify_oneEv");
    notify(condition);
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    if (strncmp(name, "pt_autograd", 11) == 0)
        usleep(2000);
}
"""

# The interpreter is held until it ends, where it is let go: threads that wait for it come then.
PROGRAM = """
import atexit, sys, time, torch
atexit.unregister(time.sleep)  # of the host driver, which waits for the threads
class Teardown:
    def __del__(self, sleep=time.sleep):
        sleep(0.1)
sys.kept = Teardown()
def end():
    (x * 2).sum().backward()
    until = time.monotonic() + 0.02
    while time.monotonic() < until: pass
if {late}:
    atexit.register(end)
import reprise
if {install}: reprise.install()
x = torch.ones(4, device="cuda", requires_grad=True)
if {captured}:
    step = reprise.graphed(lambda x: (x * 2).sum())
    for _ in range(4): step(x).backward()
(x * 2).sum().backward()
sys.setswitchinterval(100)
if not {late}:
    end()
"""


@unittest.skipIf(COMPILER is None, "there is no C compiler")
class Exits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.library = pathlib.Path(folder.name) / "late.so"
        source = cls.library.with_suffix(".c")
        source.write_text(LATE)
        subprocess.run([COMPILER, "-shared", "-fPIC", "-o", cls.library, source, "-ldl"], check=True)

    def check(self, late=False, install=False, captured=False):
        preload = ":".join(filter(None, (os.environ.get("LD_PRELOAD"), str(self.library))))
        program = PROGRAM.format(late=late, install=install, captured=captured)
        done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "LD_PRELOAD": preload},
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])

    def test_after_a_pass(self):
        self.check()

    def test_after_a_pass_with_install(self):
        self.check(install=True)

    def test_after_replays(self):
        self.check(captured=True)

    def test_after_a_pass_at_exit(self):
        self.check(late=True)


if __name__ == "__main__":
    unittest.main()
