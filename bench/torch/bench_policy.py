#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Is policy="auto" as fast as the better of eager calls and calls by a graph?

usage: bench_policy.py [--workloads A,B] [--calls N] [--seconds S] [--limit S] [--budget S]
                       [--start fork|spawn] [--out FILE] [--verbose]
       bench_policy.py --show FILE

Each side makes the same calls, N or as many as take S seconds, in a process of its own, in turns.
What "auto" took, captures and measuring included, may be 2 % and 50 ms over the best of the others,
whose captures and compilations are left out. A run that is shorter than 20,000 calls is extended to
so many: its first turn as it was, then calls as dear as in the turns after it; the table says which
were. Exit: 0 all within that, 1 some are not, 2 usage.
"""

import argparse
import json
import statistics
import sys

import bench_torch

RUN = 20000
SHARE, ROOM_S = 0.02, 0.05


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--workloads")
    parser.add_argument("--calls", type=int, default=RUN)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--limit", type=float, default=150)
    parser.add_argument("--budget", type=float)
    parser.add_argument("--start", choices=("fork", "spawn"), default="fork")
    parser.add_argument("--out")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--show", metavar="FILE")
    return parser.parse_args()


def run(options):
    """The raw result of a comparison."""
    bench_torch.set_up()
    import compare
    import policy
    import workloads
    policy.CALLS, policy.SECONDS = options.calls, options.seconds
    names = options.workloads.split(",") if options.workloads else None
    comparison = compare.Comparison(
        "policy", workloads=names, rounds=1, limit=options.limit, budget=options.budget,
        method=options.start, tell=tell if options.verbose else lambda text: None)
    workloads.preload(policy.IMPORTS)

    def keep():
        if options.out:
            with open(options.out, "w", encoding="utf-8") as file:
                json.dump(comparison.result(), file)
    comparison.run(keep)
    keep()
    return comparison.result()


def tell(text):
    print(text, file=sys.stderr, flush=True)


# ---- Judging --------------------------------------------------------------------------------


def seconds_of(turns, is_cold):
    """What RUN calls take, and whether that was measured rather than extended. A cold side's first
    turn counts once."""
    calls = sum(t["calls"] for t in turns)
    seconds = sum(t["seconds"] for t in turns)
    if calls >= RUN:
        return seconds * RUN / calls, True
    if not is_cold:
        return seconds * RUN / calls, False
    later = turns[1:] or turns
    each = sum(t["seconds"] for t in later) / sum(t["calls"] for t in later)
    return turns[0]["seconds"] + each * (RUN - turns[0]["calls"]), False


def verdict(sides):
    """One workload: facts, or None where a side is missing."""
    found = {name: [t for t in facts["turns"] if "error" not in t]
             for name, facts in sides.items()}
    ours = next(name for name in found if "auto" in name)
    others = {name: turns for name, turns in found.items() if name != ours and turns}
    if not found[ours] or not others:
        return None
    took, whole = seconds_of(found[ours], True)
    best_s, best = min((seconds_of(turns, False)[0], name) for name, turns in others.items())
    allowed = best_s * (1 + SHARE) + ROOM_S
    later = statistics.median(t["us"] for t in found[ours][1:] or found[ours])
    choices = found[ours][-1]["choices"]
    return {"best": best, "best_s": best_s, "auto_s": took, "allowed_s": allowed,
            "holds": took <= allowed, "whole": whole, "later_us": later,
            "first_over_ms": (found[ours][0]["us"] - later) * found[ours][0]["calls"] / 1000,
            "us": {n: statistics.median(t["us"] for t in turns) for n, turns in others.items()},
            "choices": choices}


def show(result):
    """The table; how many workloads do not hold or were not measured."""
    wrong = 0
    for name, sides in result["workloads"].items():
        told = verdict(sides)
        if told is None:
            errors = {s: f.get("errors") for s, f in sides.items() if f.get("errors")}
            print(f"{name}: not measured {errors}")
            wrong += 1
            continue
        wrong += not told["holds"]
        others = ", ".join(f"{side} {us:.2f}" for side, us in told["us"].items())
        print(f"{'holds' if told['holds'] else 'FAILS'}  {name}: us a call: auto "
              f"{told['later_us']:.2f}, {others}; its first turn took {told['first_over_ms']:.1f} ms "
              f"more than later ones\n    {RUN} calls: {told['auto_s'] * 1e3:.0f} ms, "
              f"{told['best']} {told['best_s'] * 1e3:.0f}, allowed {told['allowed_s'] * 1e3:.0f}"
              + ("" if told["whole"] else " (extended from fewer)"))
        for choice in told["choices"]:
            print(f"    {choice['choice']}: {choice['reason']} (eager {choice.get('eager_us', 0):.1f}"
                  f" us, graph {choice.get('graph_us', 0):.1f} us)")
    return wrong


def main():
    options = arguments()
    if options.show:
        result = bench_torch.load(options.show)
    else:
        result = run(options)
    return 1 if show(result) else 0


if __name__ == "__main__":
    sys.exit(main())
