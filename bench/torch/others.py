#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What becomes of programs that nobody wrote for Reprise, and of the tree's own kinds of values that
change between calls (tests/python/frozen_kinds.py).

usage: others.py OUT.json [--kinds] [--program FILE ...] [--alone NAME ...] [--jobs N] [--limit-s S]

A program of others holds its cases as decorated functions. `python FILE CASE` runs one of them,
`python FILE CASE install` runs it under reprise.install(); the last line that begins with "RES " is its
result in JSON. Each case runs in a process of its own, with and without install(), --jobs of them at
once. Cases that take all of the device's memory are named by --alone: they run by themselves after the rest.

Writes rows of `name`, `install`, `verdict`, `replays`, `eager_calls` and what the program told:

    right    results are eager's, and at least half of the calls were replays
    refused  results are eager's, and a warning names what keeps the calls from replays
    eager    results are eager's; fewer calls were replays, and no warning said why
    wrong    results differ (`warned` tells whether a warning came with them)
    error    the case ended in an exception
    crash    the process ended by a signal or without a result
    timeout  it ran past the limit

Exits with 1 where a row is wrong, a crash or a timeout.
"""

import argparse
import ast
import concurrent.futures
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import weakref

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MARK = "COUNTED "
BAD = ("wrong", "crash", "timeout")


# ---- In the process of one case -------------------------------------------------------------------------

class Counter:
    """How often graphed callables were called in this process, and how often that was a replay."""

    def __init__(self):
        self.calls = 0
        self.replays = 0
        self.classes = set()
        self.seen = weakref.WeakKeyDictionary()  # replays of each that were counted
        self.lock = threading.Lock()

    def watch(self, made):
        """Counts the calls of a graphed callable. Its class gets another __call__, once. A module's
        calls are those of the Graphed behind it."""
        import reprise
        import torch
        kind = type(reprise.graphed_of(made) if isinstance(made, torch.nn.Module) else made)
        if kind in self.classes:
            return made
        self.classes.add(kind)
        call = kind.__call__

        def counted(graphed, *args, **kwargs):
            try:
                return call(graphed, *args, **kwargs)
            finally:
                self.note(graphed)

        kind.__call__ = counted
        return made

    def note(self, graphed):
        """Behind a call. Other threads may be in calls of the same one: each replay counts once."""
        with self.lock:
            now = replays_of(graphed)
            self.calls += 1
            self.replays += max(0, now - self.seen.get(graphed, 0))
            self.seen[graphed] = now


def replays_of(graphed):
    """Replays of the graphs that it has. Fewer than before once graphs were dropped."""
    return sum(shape["replays"] for shape in graphed.shapes())


def run_case(program, arguments):
    """Runs one case with its calls counted. The count is the last line but for the case's own."""
    import reprise
    counter = Counter()
    graphed, graphed_ = reprise.graphed, reprise.graphed_

    def counted(fn=None, **options):
        if fn is None:
            return lambda given: counted(given, **options)
        return counter.watch(graphed(fn, **options))

    reprise.graphed = counted
    reprise.graphed_ = lambda module, **options: counter.watch(graphed_(module, **options))
    sys.argv = [program, *arguments]
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        print(MARK + json.dumps({"calls": counter.calls, "replays": counter.replays}), flush=True)


# ---- Around it ------------------------------------------------------------------------------------------

def cases_of(program):
    """The names of a program's cases: its decorated functions."""
    with open(program, encoding="utf-8") as file:
        tree = ast.parse(file.read(), program)
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list]


def last_of(lines, mark):
    found = [line[len(mark):] for line in lines if line.startswith(mark)]
    return json.loads(found[-1]) if found else None


def is_wrong(result):
    """Does a case's own result say that it differs from eager's?"""
    told = str(result.get("verdict", "")).lower()
    return ("wrong" in told or bool(result.get("wrong")) or result.get("equal") is False
            or result.get("eager_len") != result.get("graphed_len"))


def judge(result, counted, code):
    """The verdict on a case's result and on the count of its calls."""
    if result is None:
        return "crash"
    if "error" in result:
        return "error"
    if is_wrong(result):
        return "wrong"
    calls, replays = (counted or {}).get("calls", 0), (counted or {}).get("replays", 0)
    if code != 0:
        return "crash"
    if 2 * replays >= calls:
        return "right"
    return "refused" if result.get("warned") or result.get("warnings") else "eager"


def row_of(program, name, install, limit_s):
    row = {"name": name, "install": install, "program": os.path.basename(program)}
    command = [sys.executable, os.path.abspath(__file__), "--case", program, name]
    try:
        done = subprocess.run(command + ["install"] * install, capture_output=True, text=True,
                              timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return row | {"verdict": "timeout", "replays": None, "eager_calls": None}
    lines = done.stdout.splitlines()
    result, counted = last_of(lines, "RES "), last_of(lines, MARK)
    row["verdict"] = judge(result, counted, done.returncode)
    row["replays"] = counted and counted["replays"]
    row["eager_calls"] = counted and counted["calls"] - counted["replays"]
    if result is None or done.returncode != 0:
        row |= {"exit": done.returncode, "stderr": done.stderr[-500:]}
    told = {key: value for key, value in (result or {}).items()
            if key not in ("name", "install", "verdict", "tb")}
    return row | {"told": told}


def own_rows(install):
    """The rows of the tree's own kinds."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "rows.jsonl")
        subprocess.run([sys.executable, os.path.join(ROOT, "tests", "python", "gpu_frozen.py"),
                        "--json", out] + ["--install"] * install, check=False)
        with open(out, encoding="utf-8") as file:
            return [json.loads(line) | {"program": "gpu_frozen.py"} for line in file]


def write(path, rows):
    """Writes the rows there are, after each case, so that a run that is ended keeps what it found."""
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(sorted(rows, key=lambda row: (row["program"], row["name"], row["install"])), file,
                  indent=1)
    os.replace(path + ".part", path)


def cases(programs, alone):
    """(program, case, install) of all that run beside others, and of those that run alone."""
    found = [(program, name, install) for program in programs for name in cases_of(program)
             for install in (False, True)]
    unknown = set(alone) - {name for _, name, _ in found}
    if unknown:
        raise ValueError(f"no program has a case {sorted(unknown)[0]}")
    return [c for c in found if c[1] not in alone], [c for c in found if c[1] in alone]


def main():
    if sys.argv[1:2] == ["--case"]:
        run_case(sys.argv[2], sys.argv[3:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT.json")
    parser.add_argument("--kinds", action="store_true", help="with the tree's own kinds")
    parser.add_argument("--program", action="append", default=[], metavar="FILE")
    parser.add_argument("--alone", action="append", default=[], metavar="NAME",
                        help="a case that runs by itself")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--limit-s", type=float, default=150)
    given = parser.parse_args()
    if not given.kinds and not given.program:
        parser.error("name programs, or --kinds")
    try:
        together, alone = cases(given.program, given.alone)
    except ValueError as error:
        parser.error(str(error))
    rows = []
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        jobs = [pool.submit(own_rows, install) for install in (False, True) if given.kinds]
        jobs += [pool.submit(lambda *case: [row_of(*case)], *case, given.limit_s) for case in together]
        for job in concurrent.futures.as_completed(jobs):
            rows += job.result()
            write(given.out, rows)
    for case in alone:
        rows.append(row_of(*case, given.limit_s))
        write(given.out, rows)
    bad = [row for row in rows if row["verdict"] in BAD]
    for row in bad:
        print(f"{row['program']}: {row['name']}{' with install()' * row['install']}: {row['verdict']}",
              file=sys.stderr)
    verdicts = [row["verdict"] for row in rows]
    print(", ".join(f"{verdicts.count(v)} {v}" for v in sorted(set(verdicts))))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
