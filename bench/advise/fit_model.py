#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fits the constants of `reprise advise`, and tells how well they predict what they were not fitted
on. The workloads that measured.json lists as "_fitted" give the constants; all others are predicted
with them. As a second look each workload is left out once, and predicted with constants that were
fitted on all the rest. What the program has in src/profile/model.c must be the fit, rounded.

usage: fit_model.py REPRISE TRACES"""
import json
import math
import os
import subprocess
import sys

# Microseconds; where each fit starts.
EAGER = {"operator_us": 1.0, "call_us": 1.0, "python_us": 1.0, "eager_gap_us": 1.0}
GRAPH = {"graph_gap_us": 1.0, "replay_us": 5.0, "resume_us": 10.0}
STEPS = (2.0, 1.4, 1.15, 1.05, 1.02, 1.005)
ROUNDING = 0.03  # of a constant in the program
HOST_WAITS = ("host-read", "data-shape", "synchronisation", "copy-out")


def advise(reprise, path):
    done = subprocess.run([reprise, "advise", "--json", path], capture_output=True, text=True,
                          check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def typical(advice):
    return advice["iterations"]["list"][advice["iterations"]["typical"]]


def eager_us(advice, c):
    """device_time.c's formula for the typical iteration."""
    i = typical(advice)
    device = i["busy_us"] + i["chain_nodes"] * c["eager_gap_us"]
    added = (i["operators"] * c["operator_us"] + i["calls"] * c["call_us"]
             + i["python_frames"] * c["python_us"])
    waits = i["wait_us"]
    cpu = max(i["cpu_us"] - waits - added, 0.2 * (i["cpu_us"] - waits)) + min(waits, device)
    return max(cpu, device)


def graph_us(advice, c):
    """model.c's, for an iteration that is captured whole."""
    i = typical(advice)
    waits = sum((o["before"] + o["after"]) // len(advice["iterations"]["list"])
                for o in advice["obstacles"] if o["class"] in HOST_WAITS)
    return (i["chain_us"] + i["chain_nodes"] * c["graph_gap_us"] + c["replay_us"]
            + waits * c["resume_us"])


def descend(loss, start):
    """Coordinate descent: each constant up or down by smaller and smaller steps."""
    c = dict(start)
    best = loss(c)
    for step in STEPS:
        moved = True
        while moved:
            moved = False
            for key in c:
                for factor in (step, 1 / step):
                    tried = c | {key: c[key] * factor}
                    value = loss(tried)
                    if value < best - 1e-9:
                        c, best, moved = tried, value, True
    return c


def fit(cases):
    """Times without graphs give their constants, times with graphs the others."""
    def loss(predict, key):
        return lambda c: sum(math.log(predict(advice, c) / times[key]) ** 2
                             for advice, times in cases if times[key] is not None)
    return descend(loss(eager_us, "eager_us"), EAGER) | descend(loss(graph_us, "graph_us"), GRAPH)


def read_cases(reprise, folder):
    with open(os.path.join(folder, "measured.json"), encoding="ascii") as file:
        measured = json.load(file)
    cases = {}
    for name, times in measured.items():
        for kind in ("plain", "stack"):
            path = os.path.join(folder, f"{name}.{kind}.json.gz")
            if not name.startswith("_") and os.path.exists(path):
                cases[name, kind] = advise(reprise, path), times
    return cases, measured["_fitted"]


def errors(advice, times, c):
    """Relative, of the time without graphs, of the time with them, and of the speed-up."""
    eager = eager_us(advice, c) / times["eager_us"]
    graph = graph_us(advice, c) / times["graph_us"]
    return {"eager": round(eager - 1, 3), "graph": round(graph - 1, 3),
            "speedup": round(eager / graph - 1, 3)}


def judge(cases, fitted):
    shipped = next(iter(cases.values()))[0]["model"]
    constants = fit([case for (name, _), case in cases.items() if name in fitted])
    for key, value in constants.items():
        if abs(shipped[key] / value - 1) > ROUNDING:
            sys.exit(f"{key}: the program has {shipped[key]}, the fit is {value:.3f}")
    results = []
    for (name, kind), (advice, times) in cases.items():
        if times["graph_us"] is None:
            continue
        rest = fit([case for (other, _), case in cases.items() if other != name])
        result = {"workload": name, "trace": kind, "fitted": name in fitted,
                  "measured": round(times["eager_us"] / times["graph_us"], 3),
                  "predicted": round(advice["speedup"], 3),
                  "error": errors(advice, times, shipped),
                  "error_left_out": errors(advice, times, rest)}
        print("%-16s %s %s measured %5.2f predicted %5.2f, left out %+.0f %%" % (
            name, kind, "fitted  " if name in fitted else "held out", result["measured"],
            result["predicted"], 100 * result["error_left_out"]["speedup"]), file=sys.stderr)
        results.append(result)
    return constants, results


def farthest(results, key, what):
    return max((r[key][what] for r in results), key=abs)


def main():
    cases, fitted = read_cases(*sys.argv[1:3])
    constants, results = judge(cases, fitted)
    held_out = [r for r in results if not r["fitted"]]
    print(json.dumps({
        "what": "speed-up by a graph, predicted from a profiler trace",
        "fitted_on": fitted,
        "constants": {key: round(value, 3) for key, value in constants.items()},
        "summary": {
            "traces_held_out": len(held_out),
            "farthest_held_out": farthest(held_out, "error", "speedup"),
            "farthest_held_out_with_graphs": farthest(held_out, "error", "graph"),
            "traces_left_out_in_turn": len(results),
            "farthest_left_out_in_turn": farthest(results, "error_left_out", "speedup"),
            "verdicts_right_held_out": sum((r["measured"] >= 1.1) == (r["predicted"] >= 1.1)
                                           for r in held_out)},
        "results": results}, indent=1))


main()
