#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How well the model of `reprise advise` predicts a workload that it was not fitted on: for each
trace with a measured time, the constants are fitted afresh on all others (plain traces, and those
with Python stacks), from a start that knows nothing, and predict the one left out. Beside it what
the constants in src/profile/model.c predict, which were fitted on all of them.

usage: leave_one_out.py REPRISE TRACES"""
import json
import math
import os
import subprocess
import sys

# Microseconds; the start of each fit.
START = {"op": 1.0, "call": 1.0, "python": 1.0, "eager_gap": 1.0, "graph_gap": 1.0, "replay": 5.0,
         "resume": 10.0}
SHIPPED = {"op": 1.0, "call": 0.6, "python": 0.5, "eager_gap": 1.4, "graph_gap": 0.45,
           "replay": 3.0, "resume": 20.0}
STEPS = (2.0, 1.4, 1.15, 1.05, 1.02)


def advise(reprise, path):
    done = subprocess.run([reprise, "advise", "--json", path], capture_output=True, text=True,
                          check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def eager_us(advice, c):
    """device_time.c's formula for the typical iteration."""
    i = advice["iterations"]["list"][advice["iterations"]["typical"]]
    device = i["busy_us"] + i["chain_nodes"] * c["eager_gap"]
    added = (i["operators"] * c["op"] + i["calls"] * c["call"] + i["python_frames"] * c["python"])
    waits = i["wait_us"]
    cpu = max(i["cpu_us"] - waits - added, 0.2 * (i["cpu_us"] - waits)) + min(waits, device)
    return max(cpu, device)


def graph_us(advice, c):
    """model.c's, for an iteration that is captured whole."""
    i = advice["iterations"]["list"][advice["iterations"]["typical"]]
    waits = sum((o["before"] + o["after"]) // len(advice["iterations"]["list"])
                for o in advice["obstacles"]
                if o["class"] in ("host-read", "data-shape", "synchronisation", "copy-out"))
    return i["chain_us"] + i["chain_nodes"] * c["graph_gap"] + c["replay"] + waits * c["resume"]


def speedup(advice, c):
    # What the runs between obstacles add, which the constants hardly change.
    between = advice["graph_us"] - advice["mended_us"]
    return eager_us(advice, c) / (graph_us(advice, c) + between)


def loss(cases, c):
    return sum(math.log(speedup(advice, c) / measured) ** 2 for advice, measured in cases)


def fit(cases):
    """Coordinate descent: each constant up or down by smaller and smaller steps."""
    c = dict(START)
    best = loss(cases, c)
    for step in STEPS:
        moved = True
        while moved:
            moved = False
            for key in c:
                for factor in (step, 1 / step):
                    tried = c | {key: c[key] * factor}
                    value = loss(cases, tried)
                    if value < best - 1e-9:
                        c, best, moved = tried, value, True
    return c


def main():
    reprise, folder = sys.argv[1:3]
    with open(os.path.join(folder, "measured.json"), encoding="ascii") as file:
        measured = json.load(file)
    cases = {}
    for name, times in measured.items():
        if name.startswith("_") or times["graph_us"] is None:
            continue
        for kind in ("plain", "stack"):
            path = os.path.join(folder, f"{name}.{kind}.json.gz")
            if os.path.exists(path):
                cases[name, kind] = (advise(reprise, path), times["eager_us"] / times["graph_us"])
    results = []
    for (name, kind), (advice, real) in cases.items():
        if kind != "plain":
            continue
        if abs(speedup(advice, SHIPPED) / advice["speedup"] - 1) > 0.01:
            sys.exit(f"{name}: this script's model is not the command's: "
                     f"{speedup(advice, SHIPPED):.3f}, {advice['speedup']:.3f}")
        constants = fit([case for (other, _), case in cases.items() if other != name])
        left_out = speedup(advice, constants)
        results.append({"workload": name, "measured": round(real, 3),
                        "fitted_on_all": round(advice["speedup"], 3),
                        "left_out": round(left_out, 3),
                        "error_fitted_on_all": round(advice["speedup"] / real - 1, 3),
                        "error_left_out": round(left_out / real - 1, 3),
                        "verdict_right": (left_out >= 1.1) == (real >= 1.1),
                        "constants": {k: round(v, 3) for k, v in constants.items()}})
        print(f"{name:18} measured {real:5.2f} fitted on all {advice['speedup']:5.2f} "
              f"left out {left_out:5.2f} ({100 * (left_out / real - 1):+.0f} %)", file=sys.stderr)
    summary = {"workloads": len(results),
               "within_20_percent_fitted_on_all":
                   sum(abs(r["error_fitted_on_all"]) <= 0.2 for r in results),
               "within_20_percent_left_out": sum(abs(r["error_left_out"]) <= 0.2 for r in results),
               "verdicts_right_left_out": sum(r["verdict_right"] for r in results)}
    print(json.dumps({"what": "speed-up by a graph, predicted from a profiler trace",
                      "summary": summary, "results": results}, indent=1))


main()
