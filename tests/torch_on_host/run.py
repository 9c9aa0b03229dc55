#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the package's GPU tests, and the programs of this folder, with a real PyTorch on the host driver
(scripts/torch_on_host.sh), and holds what they show against expected.py: which tests of each program
run, and which are known to fail here, with the reason.

usage: run.py PYTHON [--jobs N] [--limit SECONDS] [--only PART]

PYTHON: an interpreter that has torch 2.11, or one of the versions in expected.OTHERS, of which a smaller
set of programs is run: there tests that fail need not be listed, but a crash is wrong. Prints a line a program and, last, "N passed, M failed". A
program fails where a test fails that is not listed, or fewer tests pass than expected.py says: what is no
longer known to fail is taken off the list by hand. What failed next to others runs once more, alone."""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import expected

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LEAST = 0.8  # of the GPU tests' programs
SCRIPT = ROOT / "scripts" / "torch_on_host.sh"


def read(text):
    """How many tests ran, how many of those were skipped, and the names of those that failed."""
    ran = sum(map(int, re.findall(r"^Ran (\d+) tests?", text, re.M)))
    skipped = sum(map(int, re.findall(r"skipped=(\d+)", text)))
    failed = {re.sub(r"[( ].*", "", name) if "setUpClass" not in name else name
              for name in re.findall(r"^(?:FAIL|ERROR): (.+?)(?: \(|$)", text, re.M)}
    return ran, skipped, failed


def run(python, run_name, limit_s):
    """Output, exit code and seconds of a program."""
    name, *flags = run_name.split()
    path = HERE / name if (HERE / name).exists() else ROOT / "tests" / "python" / name
    began = time.monotonic()
    with subprocess.Popen([SCRIPT, python, path, *flags], cwd=ROOT, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, start_new_session=True,
                          env={**os.environ, "QUIET": "1"}) as process:
        try:
            text = process.communicate(timeout=limit_s)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text = process.communicate()[0] + f"\nended after {limit_s} s"
    return text, process.returncode, time.monotonic() - began


def counts_skipped(python):
    """Does its unittest count tests that were skipped among those that ran? That of 3.12.1 does not."""
    version = subprocess.run([python, "-c", "import sys; print(sys.version_info[:3])"],
                             capture_output=True, text=True, check=True).stdout
    return version.strip() != "(3, 12, 1)"


def version_of(python):
    """"2.11" of an interpreter's torch, which is not imported."""
    find = "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"
    folder = subprocess.run([python, "-c", find], capture_output=True, text=True, check=True).stdout.strip()
    text = Path(folder, "version.py").read_text(encoding="utf-8")
    return re.search(r"^__version__ = '(\d+\.\d+)", text, re.M)[1]


def judge(run_name, wanted, text, code, counting):
    """What is wrong with a run, as sentences, and how many tests passed. counting: (are skipped tests counted
    among those that ran, have all that fail to be listed)."""
    skipped_count, lists_all = counting
    ran, skipped, failed = read(text)
    known = expected.KNOWN.get(run_name.split()[0], {})
    wrong = [f"failed: {name}" for name in sorted(failed - known.keys())] if lists_all else []
    passed = ran - len(failed) - (skipped if skipped_count else 0)
    if passed < wanted:
        wrong.append(f"{passed} tests passed, {wanted} are expected")
    if code < 0 or code and not failed:
        wrong.append(f"ended with {code}")
    return wrong, passed


def tell(name, text, wrong, passed, seconds):
    if wrong:
        return f"{name}: {'; '.join(wrong)}\n{text}"
    _, skipped, failed = read(text)
    return f"{name}: {passed} passed, {skipped} skipped, {len(failed)} may fail, {seconds:.0f} s"


def runs_of(version):
    """The runs that are expected of a version of PyTorch, and whether all that fail are listed."""
    if version in expected.OTHERS:
        return expected.OTHERS[version], False
    return expected.RUNS, True


def unlisted():
    """Programs that expected.py neither runs nor leaves out; and whether it leaves out too many."""
    programs = {path.name for path in (ROOT / "tests" / "python").glob("gpu_*.py")}
    run_here = {name.split()[0] for name in expected.RUNS} & programs
    wrong = [f"{name} is neither in RUNS nor in LEFT_OUT"
             for name in sorted(programs - run_here - expected.LEFT_OUT.keys())]
    if len(run_here) < LEAST * len(programs):
        wrong.append(f"{len(run_here)} of {len(programs)} programs are run")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=float, default=600)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    # The first builds what the others use.
    subprocess.run([SCRIPT, args.python, "-c", "import torch; torch.zeros(1, device='cuda')"],
                   check=True, env={**os.environ, "QUIET": "1"})
    wanted, lists_all = runs_of(version_of(args.python))
    names = [name for name in wanted if args.only in name]
    counting = counts_skipped(args.python), lists_all
    passed, failed = 0, len(unlisted())
    for sentence in unlisted():
        print(sentence)
    again = []
    with ThreadPoolExecutor(args.jobs) as pool:
        shown = pool.map(lambda name: run(args.python, name, args.limit), names)
        for name, (text, code, seconds) in zip(names, shown):
            wrong, count = judge(name, wanted[name], text, code, counting)
            print(tell(name, text, wrong, count, seconds), flush=True)
            passed += 0 if wrong else count
            again += [name] if wrong else []
    for name in again:  # what failed next to others, once more alone
        text, code, seconds = run(args.python, name, args.limit)
        wrong, count = judge(name, wanted[name], text, code, counting)
        print("once more:", tell(name, text, wrong, count, seconds), flush=True)
        passed += count
        failed += len(wrong)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
