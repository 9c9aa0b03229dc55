# SPDX-License-Identifier: MIT
"""PyTorch's tests of its allocator and of CUDA graphs: does what each asserts hold with PyTorch's own
allocator (c10), and with install()?

usage: pytorch_tests.py [--out FILE] [--jobs N] [--only TEXT] [--list]

Runs each counterpart (pytorch_rows/, written anew from what PyTorch's test asserts) both ways, each in a
process of its own, several at once; one that crashes or takes too long ends alone. Those that take most of
the device's memory come last, one at a time. Writes JSON:

  tests    how many
  differ   those that hold with c10 and not with install()
  only     those that hold with install() alone
  gpu_only what the host driver lacks, where it runs there
  rows     name, c10, reprise, differs, reason

c10 and reprise: "holds", "fails", "crashes", "hangs" or "not run"; reason: of what failed or was not run.
Without --out the JSON is printed. --only TEXT: the rows whose names have the text.
"""

import argparse
import fnmatch
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback

import torch

import pytorch_rows
from pytorch_rows import Case, ROWS
from pytorch_rows import compiled, graphs, histories, memory, optimizers, pools, shared, streams  # noqa: F401

SIDES = "c10", "reprise"
CANNOT = {}  # rows that are not as with c10, and why; docs/pytorch.md has them too


def run_here(row, side, path):
    """Runs the row, in a process of its own, and writes what came of it to the file."""
    os.setsid()
    output = os.open(path + ".text", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    told = {"result": "holds", "reason": ""}
    try:
        Case.installed = side == "reprise"
        if Case.installed:
            import reprise
            reprise.install()
        torch.cuda.init()
        case = Case()
        case.run_row = row.run
        row.run(case)
        torch.cuda.synchronize()
    except BaseException as error:
        traceback.print_exc()
        told = {"result": "fails", "reason": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(told, file)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # what ends with the interpreter is not asked for here


class Run:
    """A row under way."""

    def __init__(self, row, side, folder):
        self.row, self.side = row, side
        self.path = os.path.join(folder, f"{len(os.listdir(folder))}-{side}")
        self.end = time.monotonic() + row.seconds * LIMIT
        self.begun = time.monotonic()
        self.process = os.fork()
        if self.process == 0:
            run_here(row, side, self.path)

    def outcome(self):
        """What came of it; None: it is under way."""
        ended, status = os.waitpid(self.process, os.WNOHANG)
        if not ended and time.monotonic() < self.end:
            return None
        if not ended:
            self.kill()
            os.waitpid(self.process, 0)
            return {"result": "hangs", "reason": f"over {self.row.seconds * LIMIT:.0f} s: {self.last()}"}
        self.kill()  # what it started
        try:
            with open(self.path, encoding="utf-8") as file:
                return json.load(file)
        except (OSError, ValueError):
            why = (signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status)
                   else f"exit code {os.waitstatus_to_exitcode(status)}")
            return {"result": "crashes", "reason": f"{why}: {self.last()}"}

    def kill(self):
        try:
            os.killpg(self.process, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def last(self):
        """The end of what it printed."""
        try:
            with open(self.path + ".text", encoding="utf-8", errors="replace") as file:
                return " ".join(file.read()[-300:].split())
        except OSError:
            return ""


def run_all(wanted, jobs, told):
    """Runs the rows, so many at once."""
    with tempfile.TemporaryDirectory() as folder:
        waiting, under_way = [(row, side) for row in wanted for side in SIDES][::-1], []
        while waiting or under_way:
            while waiting and len(under_way) < jobs:
                under_way.append(Run(*waiting.pop(), folder))
            for run in list(under_way):
                outcome = run.outcome()
                if outcome is None:
                    continue
                under_way.remove(run)
                outcome["seconds"] = round(time.monotonic() - run.begun, 1)
                told[run.row.name, run.side] = outcome
                print(f"{run.row.name} {run.side}: {outcome['result']} {outcome['reason']}", file=sys.stderr)
                if VERBOSE and outcome["result"] != "holds":
                    with open(run.path + ".text", encoding="utf-8", errors="replace") as file:
                        print(file.read()[-4000:], file=sys.stderr)
            time.sleep(0.01)


def matches(name, only):
    return not only or any(fnmatch.fnmatch(name, f"*{part}*") for part in only.split(","))


def the_row(row, told):
    both = {side: told.get((row.name, side), {"result": "not run", "reason": ""}) for side in SIDES}
    reason = CANNOT.get(re.sub(r"^\w+\.", "", row.name), "")
    if row.gpu and pytorch_rows.ON_HOST:
        reason = f"needs {row.gpu}"
    else:
        for side in SIDES:
            if both[side]["result"] not in ("holds", "not run"):
                reason += f"{'; ' if reason else ''}{side}: {both[side]['reason']}"
    return {"name": row.name, **{side: both[side]["result"] for side in SIDES},
            "differs": both["c10"]["result"] == "holds" != both["reprise"]["result"], "reason": reason}


def main():
    global LIMIT, VERBOSE
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="write the JSON to this file")
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1), help="so many at once")
    parser.add_argument("--only", default="", help="rows whose names have one of these texts, with commas")
    parser.add_argument("--limit", type=float, default=1.0, help="times the rows' limits in seconds")
    parser.add_argument("--verbose", action="store_true", help="tell the end of what a row that fails printed")
    parser.add_argument("--list", action="store_true", help="print the names, and run nothing")
    chosen = parser.parse_args()
    LIMIT, VERBOSE = chosen.limit, chosen.verbose
    wanted = [row for row in ROWS if matches(row.name, chosen.only)]
    if chosen.list:
        for row in wanted:
            print(row.name + (f"  (not on the host driver: {row.gpu})" if row.gpu else ""))
        print(f"{len(wanted)} rows")
        return
    told, begun = {}, time.monotonic()
    here = [row for row in wanted if not (row.gpu and pytorch_rows.ON_HOST)]
    run_all([row for row in here if not row.alone], chosen.jobs, told)
    run_all([row for row in here if row.alone], 1, told)
    rows = [the_row(row, told) for row in wanted]
    text = json.dumps({
        "torch": torch.__version__, "host_driver": pytorch_rows.ON_HOST, "tests": len(rows),
        "seconds": round(time.monotonic() - begun),
        "hold_both": sum(row["c10"] == row["reprise"] == "holds" for row in rows),
        "differ": [row["name"] for row in rows if row["differs"]],
        "only": [row["name"] for row in rows if row["reprise"] == "holds" != row["c10"]],
        "gpu_only": [row["name"] for row in rows if row["c10"] == "not run"], "rows": rows}, indent=1)
    if chosen.out:
        with open(chosen.out, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        for row in rows:
            if row["differs"]:
                print(f"{row['name']:70} {row['c10']:8} {row['reprise']:8} {row['reason'][:90]}", file=sys.stderr)
        print(f"{len(rows)} rows, {sum(row['differs'] for row in rows)} differ", file=sys.stderr)
    else:
        print(text)


LIMIT, VERBOSE = 1.0, False

if __name__ == "__main__":
    main()
