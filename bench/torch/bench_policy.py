#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Is policy="auto" as fast as the better of eager calls and calls by a graph?

usage: bench_policy.py [--workloads A,B] [--calls N] [--seconds S] [--limit S] [--budget S]
                       [--start fork|spawn] [--out FILE] [--verbose]
       bench_policy.py --show FILE

Each side makes the same calls, N or as many as take S seconds, in a process of its own, in turns.
What "auto" took, captures and measuring included, may be 2 % and 50 ms over the best of the others,
whose captures and compilations are left out. A run that is shorter than 20,000 calls is extended to
so many: all its turns as they were, then calls as dear as in its later turns, which are those after
"auto" switched for the last time, and at most the second half; the table says which runs were.
Exit: 0 all within that, 1 some are not or were not measured, 2 usage.
"""

import argparse
import json
import sys

import bench_torch
import tables

RUN = 20000
SHARE, ROOM_S = 0.02, 0.05


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--workloads")
    parser.add_argument("--calls", type=int, default=RUN)
    parser.add_argument("--seconds", type=float, default=1.3)
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


def first_later(turns):
    """Which of a run's turns tells first what its calls cost in the end: what is paid once lies
    before it, rounds that go on are in it and after it, as often as they are. The turn before it
    ended as the last one did."""
    def chosen(turn):
        return [(choice["choice"], choice.get("switches")) for choice in turn["choices"]]
    first = len(turns) - 1
    while first > (len(turns) + 1) // 2 and chosen(turns[first - 2]) == chosen(turns[-1]):
        first -= 1
    return first


def cost_of(turns):
    """Seconds of a call, in the mean."""
    return sum(t["seconds"] for t in turns) / sum(t["calls"] for t in turns)


def seconds_of(turns, first):
    """What RUN calls take: the turns as they were, and further calls as dear as those from the turn
    `first` on; and whether all of it was measured."""
    missing = RUN - sum(t["calls"] for t in turns)
    if missing <= 0:
        return RUN * cost_of(turns), True
    return sum(t["seconds"] for t in turns) + missing * cost_of(turns[first:] or turns), False


def verdict(sides):
    """One workload: facts, or None where a side was not measured and did not fail either."""
    found = {name: [t for t in facts["turns"] if "error" not in t]
             for name, facts in sides.items()}
    ours = next(name for name in found if "auto" in name)
    others = {name: turns for name, turns in found.items() if name != ours and turns}
    turns = found[ours]
    left_out = [n for n, told in found.items() if not told and not sides[n].get("errors")]
    if len(turns) < 2 or not others or left_out:
        return None
    first = first_later(turns)
    took, whole = seconds_of(turns, first)
    best_s, best = min((seconds_of(told, first)[0], name) for name, told in others.items())
    allowed = best_s * (1 + SHARE) + ROOM_S
    later = cost_of(turns[first:])
    early = sum(t["seconds"] - t["calls"] * later for t in turns[:first])
    return {"best": best, "best_s": best_s, "auto_s": took, "allowed_s": allowed,
            "holds": took <= allowed, "whole": whole, "first": first, "later_us": later * 1e6,
            "early_ms": early * 1e3,
            "us": {n: cost_of(told[first:] or told) * 1e6 for n, told in others.items()},
            "choices": turns[-1]["choices"]}


def show(result):
    """The table; how many workloads do not hold or were not measured."""
    wrong = 0
    for name, sides in result["workloads"].items():
        told = verdict(sides)
        if told is None:
            errors = {s: f.get("errors") for s, f in sides.items() if f.get("errors")}
            print(f"{name}: not measured {errors or '(no time was left)'}")
            wrong += 1
            continue
        wrong += not told["holds"]
        others = ", ".join(f"{side} {us:.2f}" for side, us in told["us"].items())
        print(f"{'holds' if told['holds'] else 'FAILS'}  {name}: us a call: auto "
              f"{told['later_us']:.2f}, {others}; before it settled {told['early_ms']:.1f} ms "
              f"more\n    {RUN} calls: {told['auto_s'] * 1e3:.0f} ms, "
              f"{told['best']} {told['best_s'] * 1e3:.0f}, allowed {told['allowed_s'] * 1e3:.0f}"
              + ("" if told["whole"] else " (extended from fewer)"))
        for choice in told["choices"]:
            print(f"    {choice['choice']}: {choice['reason']} (eager {choice.get('eager_us', 0):.1f}"
                  f" us, graph {choice.get('graph_us', 0):.1f} us)")
    return wrong


def main():
    options = arguments()
    if options.show:
        result = tables.read(options.show)
    else:
        result = run(options)
    return 1 if show(result) else 0


if __name__ == "__main__":
    sys.exit(main())
