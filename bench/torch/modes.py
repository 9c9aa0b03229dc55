# SPDX-License-Identifier: MIT
"""Modes of training side by side, each of a set in a process of its own: what megatron.py and te.py have in common.

A mode's process writes its result to a file. OUT.json is written anew after each process, with a row for each set and
mode of medians over the rounds, so that a run that is cut off keeps what it has.
"""

import argparse
import datetime
import faulthandler
import gc
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
from types import SimpleNamespace
from typing import NamedTuple

import common

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FIGURES = ("step_ms", "host_ms", "throughput_ms", "memory_mib", "reserved_mib", "peak_mib", "allocated_peak_mib",
           "ready_s")
TOLD = ("ways", "graphs", "replays", "reasons")  # of ours, in rows


class Bench(NamedTuple):
    """A comparison. sizes: of each set; tiny: what --tiny replaces in them; modes: of each set; began(mode, torch):
    called first; measure(torch, mode, size, count): the result; versions: a program that prints them."""

    script: str
    doc: str
    sizes: dict
    tiny: dict
    modes: dict
    began: object
    measure: object
    versions: str

    @property
    def name(self):
        return os.path.relpath(os.path.abspath(self.script), ROOT)


# ---- In the process of one mode -----------------------------------------------------------------------------


def checksum(torch, tensors):
    """Of the bits, without memory of its own."""
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32}
    return sum(t.detach().view(kinds[t.element_size()]).sum(dtype=torch.int64).item() for t in tensors)


def memory(torch):
    gc.collect()
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return {"memory_mib": common.mib(total - free), "reserved_mib": common.mib(torch.cuda.memory_reserved()),
            "peak_mib": common.mib(torch.cuda.max_memory_reserved()),
            "allocated_peak_mib": common.mib(torch.cuda.max_memory_allocated())}


def times(torch, step, count):
    taken = {**common.timed(torch, step, count, warmup=3), **common.back_to_back(torch, step, count, warmup=3)}
    found = {name: round(taken[of] / 1e3, 4) for name, of in (
        ("step_ms", "wall_us"), ("host_ms", "host_us"), ("throughput_ms", "throughput_us"))}
    return {**found, "step_tenths_ms": [round(v / 1e3, 4) for v in taken["wall_tenths_us"]]}


def child(bench, out, mode, size, count, limit):
    """Never returns: threads of libraries may wait for ever at a normal end."""
    faulthandler.dump_traceback_later(limit, exit=True)
    try:
        import torch
        bench.began(mode, torch)
        result = bench.measure(torch, mode, SimpleNamespace(**size), count)
    except Exception as error:
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {error}"[:1500]}
    with open(out, "w", encoding="utf-8") as file:
        json.dump(result, file)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


# ---- Around it ----------------------------------------------------------------------------------------------


def run_one(bench, name, mode, args):
    """The result of a process, or what became of it."""
    size = {**bench.sizes[name], **(bench.tiny if args.tiny else {})}
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "result.json")
        command = [sys.executable, "-W", "ignore", os.path.abspath(bench.script), "--child", out, mode, json.dumps(size),
                   str(5 if args.tiny else args.count), str(args.limit)]
        began = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False,
                                  timeout=args.limit + 10)
            code, said = done.returncode, done.stderr
        except subprocess.TimeoutExpired as error:
            code, said = "timeout", (error.stderr or b"").decode(errors="replace")
        try:
            with open(out, encoding="utf-8") as file:
                result = json.load(file)
        except (OSError, ValueError):
            result = {"error": f"no result, exit {code}: {said[:300]} ... {said[-1000:]}"}
    result["seconds"] = round(time.monotonic() - began, 1)
    if "error" in result:
        print(said[:500], "...", said[-2500:], file=sys.stderr)
    return result


def row_of(name, mode, found, eager):
    """Of the results of all rounds; eager: the first eager run of the set, or None."""
    row = {"set": name, "mode": mode, "rounds": len(found)}
    errors = [one["error"] for one in found if "error" in one]
    good = [one for one in found if "error" not in one]
    if good:
        for key in FIGURES:
            row[key] = round(common.median([one[key] for one in good]), 4)
        row["spread"] = {key: common.spread([one[key] for one in good]) for key in FIGURES[:4]}
        row.update({key: good[-1][key] for key in TOLD if key in good[-1]})
        if eager is not None:
            row.update(compared(good, eager))
    if errors:
        row["errors"] = errors
    return row


def compared(found, eager):
    def differing(key):
        """Where a dict or a list is another than eager's, in any round."""
        pairs = eager[key].items() if isinstance(eager[key], dict) else enumerate(eager[key])
        return [where for where, value in pairs if any(one[key][where] != value for one in found)]
    losses, gradients = differing("losses"), differing("gradients")
    return {"equal": not losses and all(one["weights"] == eager["weights"] for one in found),
            "equal_waiting": all(one["waited"] == eager["losses"] for one in found),
            "differs_at": losses[0] if losses else None, "gradients_differ": len(gradients),
            "first_gradients": gradients[:4], "same_start": all(one["start"] == eager["start"] for one in found)}


class Record:
    """OUT.json, which is written anew after each process."""

    def __init__(self, bench, args):
        sys.path.append(os.path.join(ROOT, "scripts"))
        import record_result
        self.bench = bench
        self.path, self.began = args.out, time.monotonic()
        self.runs = {}  # by set and mode
        versions = record_result.versions(sys.argv[0])
        self.facts = {"date": datetime.date.today().isoformat(), "machine": record_result.machine(),
                      "versions": {**versions, **own_versions(bench)}, "commit": args.commit or commit(),
                      "command": shlex.join([bench.name, "FILE", *sys.argv[2:]])}

    def add(self, name, mode, result):
        self.runs.setdefault((name, mode), []).append(result)
        rows = []
        for (of, way), found in self.runs.items():
            first = next((one for one in self.runs.get((of, "eager"), []) if "error" not in one), None)
            rows.append(row_of(of, way, found, first))
        failed = any("errors" in row for row in rows)
        record = {**self.facts, "exit": int(failed), "seconds": round(time.monotonic() - self.began, 1),
                  "sizes": {of: self.bench.sizes[of] for of, _ in self.runs}, "result": rows}
        write(self.path, record)
        return rows


def own_versions(bench):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", bench.versions], capture_output=True, text=True,
                          check=False)
    lines = done.stdout.strip().splitlines()
    return json.loads(lines[-1]) if done.returncode == 0 and lines else {}


def commit():
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=9", "HEAD"], capture_output=True, text=True,
                          check=False)
    return done.stdout.strip() or None


def write(path, record):
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)
        file.write("\n")
    os.replace(path + ".new", path)


def table(rows):
    print(f"{'set':6} {'mode':18} {'step':>9} {'host':>9} {'device':>9} {'reserved':>9} {'peak':>9}  equal")
    for row in rows:
        figures = [f"{row[key]:9.2f}" if key in row else f"{'-':>9}"
                   for key in ("step_ms", "host_ms", "memory_mib", "reserved_mib", "peak_mib")]
        print(f"{row['set']:6} {row['mode']:18} {' '.join(figures)}  {row.get('equal', '-')}"
              + (f"  {row['errors'][0].strip().splitlines()[-1][:90]}" if "errors" in row else ""))


def merged(out, paths):
    """One record of several: the facts of the last, the rows of all; of one set and mode the last one's."""
    rows, record, seconds, sizes, commands = {}, {}, 0.0, {}, []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        rows.update({(row["set"], row["mode"]): row for row in record["result"]})
        seconds += record["seconds"]
        sizes.update(record["sizes"])
        commands.append(record["command"])
    record.update(result=list(rows.values()), seconds=round(seconds, 1), sizes=sizes, command=" ; ".join(commands),
                  exit=int(any("errors" in row for row in rows.values())))
    write(out, record)
    table(record["result"])


def measured(bench, args):
    record, longest, rows, began = Record(bench, args), {}, [], time.monotonic()
    for turn in range(args.rounds):
        for name in args.sets.split(","):
            modes = [m for m in bench.modes[name] if args.modes is None or m in args.modes.split(",")]
            for mode in modes if turn % 2 == 0 else [m for m in reversed(modes) if m != "eager-again"]:
                left = args.budget - (time.monotonic() - began)
                if left < longest.get(name, 25):
                    print(f"no time left for {name} {mode}, round {turn + 1}", file=sys.stderr)
                    continue
                result = run_one(bench, name, mode, SimpleNamespace(**{**vars(args), "limit": int(min(args.limit, left))}))
                if "error" not in result:
                    longest[name] = max(longest.get(name, 0), 1.2 * result["seconds"])
                print(f"{name} {mode}: {result.get('error', 'done')[:200]} ({result['seconds']} s)", flush=True)
                rows = record.add(name, mode, result)
    table(rows)
    return int(any("errors" in row for row in rows))


def main(bench):
    if sys.argv[1:2] == ["--child"]:
        out, mode, size, count, limit = sys.argv[2:]
        child(bench, out, mode, json.loads(size), int(count), int(limit))
    if sys.argv[1:2] == ["--merge"]:
        return merged(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=bench.doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--sets", default=",".join(bench.sizes))
    parser.add_argument("--modes")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--count", type=int, default=60, help="steps that are timed")
    parser.add_argument("--budget", type=float, default=460, help="seconds for all")
    parser.add_argument("--limit", type=int, default=80, help="seconds for a process")
    parser.add_argument("--tiny", action="store_true", help="sizes whose figures mean nothing")
    parser.add_argument("--commit")
    return measured(bench, parser.parse_args())
