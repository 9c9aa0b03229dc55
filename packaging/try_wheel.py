#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Installs the wheel of the current folder and runs what it offers without a GPU: import, doctor,
demo, plan, advise, explain, and estimate as far as it goes without PyTorch. scripts/wheel_test.sh
calls it where nothing helps the wheel; it needs Python 3.9 and nothing else.

usage: try_wheel.py pip [bare]        installs into this virtual environment, without network
       try_wheel.py unpack [bare]     only unpacks, and runs the command: for an older Python

bare: this root is thrown away afterwards, so SQLite may be taken out of it.
"""

import glob
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

GIVEN = Path.cwd()
SQLITE = "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0"


def fail(text):
    sys.exit(f"try_wheel: {text}")


def run(command, *wanted, code=0, cwd="/"):
    """Runs it away from the wheel's folder; what it prints must hold the wanted texts."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    shown = " ".join(str(word) for word in command)
    if done.returncode != code:
        fail(f"{shown}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    for text in wanted:
        if text not in done.stdout + done.stderr:
            fail(f"{shown}: no {text!r} in\n{done.stdout}{done.stderr}")
    lines = (done.stdout or done.stderr).strip().splitlines() or [""]
    print(f"  {shown[-70:]}: {lines[0][:80]}", flush=True)
    return done.stdout


def wheel():
    (path,) = glob.glob(str(GIVEN / "reprise_cuda-*.whl"))
    return path


def install():
    """pip, as a user calls it, but for the network; returns the command that pip made."""
    run([sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-index",
         "--force-reinstall", wheel()], "Successfully installed reprise-cuda")
    return [str(Path(sys.executable).with_name("reprise"))]


def unpack(folder):
    with zipfile.ZipFile(wheel()) as archive:
        archive.extractall(folder)
    program = Path(folder, "reprise/bin/reprise")
    program.chmod(0o755)
    return [str(program)]


def try_import():
    version = run([sys.executable, "-W", "error", "-c",
                   "import reprise; print(reprise.__version__, reprise._C.explain('901')[0])"],
                  "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED").split()[0]
    run([sys.executable, "-m", "reprise", "--version"], f"reprise {version}\n")
    run([sys.executable, "-m", "pip", "show", "--files", "reprise-cuda"], "Name: reprise-cuda",
        f"Version: {version}", "licenses/jansson/LICENSE", "licenses/zstd/LICENSE")


# Preloads what the package brings, and asks the first library what device it passes for.
ON_HOST = """
import subprocess, sys
from reprise._host import libraries
ask = "import ctypes; c = ctypes.CDLL('libcuda.so.1'); out = ctypes.create_string_buffer(99); " \\
      "print(c.cuInit(0), c.cuDeviceGetName(out, 99, 0), out.value.decode())"
env = libraries.environment("h100", "/dev/null")
sys.exit(subprocess.run([sys.executable, "-c", ask], env=env).returncode)
"""


def try_estimate():
    """Up to PyTorch, which is not here; and that the libraries it would run on can be loaded."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.py").write_text("def build():\n    pass\n", encoding="utf-8")
        run([sys.executable, "-m", "reprise", "estimate", "model.py:build", "--gpu", "h200"],
            "reprise estimate: PyTorch is not installed for", code=2, cwd=folder)
    run([sys.executable, "-c", ON_HOST], "0 0 NVIDIA H100 80GB HBM3\n")


def try_doctor(command):
    told = json.loads(run([*command, "doctor", "--json"]))
    if not told.get("driver"):
        fail(f"doctor names no driver: {told}")


def try_demo(command):
    """Plans every recording that comes with it, and draws."""
    with tempfile.TemporaryDirectory() as out:
        told = run([*command, "demo", "--out", out], "to the bit", "towers4", "gpt2_train",
                   "optimal", cwd=out)
        if "No recorded captures" in told or not os.path.getsize(Path(out, "demo.svg")):
            fail(f"the demo is not whole\n{told}")


def try_traces(command):
    (trace,) = GIVEN.glob("*.plain.json.gz")
    run([*command, "advise", trace], "CUDA graphs are worth it here")
    made = GIVEN / "made.sqlite"
    if os.path.exists(SQLITE):
        run([*command, "advise", made], "CUDA graphs are")
    if "bare" in sys.argv:
        if os.path.exists(SQLITE):
            os.rename(SQLITE, SQLITE + ".away")
        try:
            run([*command, "advise", made], "libsqlite3.so.0 could not be loaded: install "
                "libsqlite3-0 (Debian, Ubuntu) or sqlite-libs (Fedora, RHEL)", code=2)
        finally:
            if os.path.exists(SQLITE + ".away"):
                os.rename(SQLITE + ".away", SQLITE)


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in ("pip", "unpack"):
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        command = install() if sys.argv[1] == "pip" else unpack(folder)
        if sys.argv[1] == "pip":
            try_import()
            try_estimate()
        try_doctor(command)
        try_demo(command)
        run([*command, "plan", GIVEN / "towers4.json.gz"], "1 of 1 proved optimal")
        run([*command, "explain", "901"], "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")
        try_traces(command)


if __name__ == "__main__":
    main()
