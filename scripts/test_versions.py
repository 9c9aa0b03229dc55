#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the package's GPU tests with the PyTorch that this Python imports, several at once, and keeps what
they showed under that version, beside those that the file has of others.

usage: test_versions.py OUT.json [--short] [--jobs N] [--again-jobs N] [--limit SECONDS] [--note TEXT]
                        [--log FILE] [--lock FILE] [--without NAME ...] [NAME...]
       test_versions.py --list [--short]    prints a line for each run: test program and flags

NAME: part of the names of the tests to run; all, when none is given. --without: part of the names of
those to leave out. --short: one test program of each kind, without those that take longest. PYTHONPATH
leads to the built package. OUT.json has each run as soon as it ended.

Programs that look at the device's free memory run alone, and so does, once more, what failed: one program
after the other, or --again-jobs of them at once (0: none is). Runs for several versions at once need a
file that they lock, --lock: what runs alone waits for the others of all.
Kept for each run: how many tests ran, how many failed and their names, and how it ended: a signal is an
abort. Exits 1 where a test failed."""

import argparse
import contextlib
import datetime
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import record_result

TESTS = Path(__file__).resolve().parent.parent / "tests" / "python"
# These install by themselves, or never.
ONCE = ("documents", "examples", "exit", "install", "ranks", "stale", "two", "versions")
LONGEST = ("examples", "check", "training", "documents", "refused", "versions", "private")
ALONE = ("compile_sizes", "estimate", "pace", "serving")  # look at what others take of the device
SHORT = ("frozen", "graph", "graphed", "install", "private", "random", "gradients")


def commands(short):
    """(test program, flags) of each run, the longest first: of every gpu_*.py, with install() too."""
    found = sorted(path.stem.removeprefix("gpu_") for path in TESTS.glob("gpu_*.py"))
    for name in (*LONGEST, *(n for n in found if n not in LONGEST)):
        if not short or name in SHORT:
            path = TESTS / f"gpu_{name}.py"
            yield path, ()
            if name not in ONCE:
                yield path, ("--install",)


def read(text):
    """How many tests ran, and the names of those that failed, by unittest's output."""
    ran = re.findall(r"^Ran (\d+) tests?", text, re.M)
    failed = re.findall(r"^(?:FAIL|ERROR): (\S+)", text, re.M)
    return sum(map(int, ran)), sorted(set(failed))


def run(path, flags, limit_s, log):
    """What one test program showed."""
    began = time.monotonic()
    with subprocess.Popen([sys.executable, str(path), *flags], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, cwd=TESTS.parent.parent, errors="replace",
                          start_new_session=True) as process:
        # With the processes that it started: they hold its output open.
        timer = threading.Timer(limit_s, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        text = process.stdout.read()
        code = process.wait()
        timer.cancel()
    ran, failed = read(text)
    shown = {"ran": ran, "failed": len(failed), "seconds": round(time.monotonic() - began, 1)}
    if failed:
        shown["which"] = failed
    if code < 0:
        shown["ended"] = signal.Signals(-code).name
    elif code and not failed:
        shown["ended"] = f"exit {code}: " + " ".join(text.split()[-40:])
    skipped = re.findall(r"skipped=(\d+)", text)
    if skipped:
        shown["skipped"] = sum(map(int, skipped))
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"==== {path.name} {' '.join(flags)}: {shown}\n{text if code else ''}\n")
    return shown


def name_of(path, flags):
    return " ".join((path.name, *flags))


def fails(shown):
    return shown["failed"] or "ended" in shown


@contextlib.contextmanager
def beside(lock, alone):
    """While programs run beside those of other runs that have the same lock, or without any of them."""
    if lock is None:
        yield
        return
    with open(lock, "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def keep(args, result):
    """Writes what there is so far; the version of PyTorch."""
    import torch
    kept = json.loads(args.out.read_text()) if args.out.exists() else {}
    kept[torch.__version__] = {
        "date": datetime.date.today().isoformat(), "machine": record_result.machine(),
        "driver": record_result.first_line("nvidia-smi", "--query-gpu=driver_version",
                                           "--format=csv,noheader"),
        "python": sys.version.split()[0], "suite": "short" if args.short else "whole",
        "package": os.environ.get("REPRISE_COMMIT"), "note": args.note,
        "runs": {**kept.get(torch.__version__, {}).get("runs", {}), **result}}
    part = args.out.with_name(args.out.name + ".part")  # a kill leaves the file whole
    part.write_text(json.dumps(kept, indent=1) + "\n")
    part.replace(args.out)
    return torch.__version__


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--again-jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=400)
    parser.add_argument("--note")
    parser.add_argument("--lock")
    parser.add_argument("--log", default=os.devnull)
    parser.add_argument("--without", nargs="+", default=[])
    parser.add_argument("names", nargs="*")
    args = parser.parse_intermixed_args()
    if args.list:
        for path, flags in commands(args.short):
            print(path.name, *flags)
        return 0
    if args.out is None:
        parser.error("OUT.json is needed")
    wanted = [c for c in commands(args.short)
              if (not args.names or any(name in c[0].name for name in args.names))
              and not any(name in c[0].name for name in args.without)]
    result = {}
    kept = threading.Lock()

    def run_and_keep(command):
        shown = run(*command, args.limit, args.log)
        with kept:
            result[name_of(*command)] = shown
            keep(args, result)
    for alone in (False, True):
        some = [c for c in wanted if (c[0].stem.removeprefix("gpu_") in ALONE) == alone]
        with beside(args.lock, alone), ThreadPoolExecutor(1 if alone else args.jobs) as pool:
            list(pool.map(run_and_keep, some))  # raises what a run did
    # What failed next to others once more; both are kept.
    again = [c for c in wanted if args.again_jobs and fails(result[name_of(*c)])]
    with beside(args.lock, False), ThreadPoolExecutor(max(args.again_jobs, 1)) as pool:
        for one, shown in zip(again, pool.map(lambda c: run(*c, args.limit, args.log), again)):
            result[name_of(*one)] = {**shown, "next_to_others": result[name_of(*one)]}
    version = keep(args, result)
    for name, one in result.items():
        print(name, json.dumps(one))
    bad = [n for n, s in result.items() if fails(s)]
    print(f"{version}: {sum(s['ran'] for s in result.values())} tests, "
          f"{len(bad)} of {len(result)} programs failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
