#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Is policy="auto" as fast as the better of eager calls and calls by a graph?

usage: bench_policy.py [--workloads A,B] [--calls N] [--seconds S] [--limit S] [--budget S]
                       [--start fork|spawn] [--out FILE] [--verbose]
       bench_policy.py --show FILE
       bench_policy.py --list

The sides of a workload make the same calls in one process, N each or as many as take S seconds, in
turns. What "auto" took, captures and measuring included, may be 2 % and 50 ms over the best of the
others. A run that is shorter than 20,000 calls is extended to so many: all its turns as they were,
then calls as dear as in its later turns, which are those after "auto" switched for the last time,
and at most the second half; the table says which runs were.

A fixed graph is captured too. A workload "holds" where "auto" is within that of the graph without
its capture; "holds with captures" where it is only when the graph's own capture, as it was measured,
counts for the graph as well. What compiles, reduce-overhead's recording included, is never counted.
Exit: 0 all hold in one of both ways, 1 some do not or were not measured, 2 usage.
"""

import argparse
import json
import math
import statistics
import sys

import bench_torch
import tables

RUN = 20000
SHARE, ROOM_S = 0.02, 0.05


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2].replace("%", "%%"))
    parser.add_argument("--workloads")
    parser.add_argument("--calls", type=int, default=RUN)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--limit", type=float, default=150)
    parser.add_argument("--budget", type=float)
    parser.add_argument("--start", choices=("fork", "spawn"), default="fork")
    parser.add_argument("--out")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--show", metavar="FILE")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


def run(options):
    """The raw result of a comparison."""
    bench_torch.set_up()
    import compare
    import policy
    import workloads
    policy.CALLS, policy.SECONDS = options.calls, options.seconds or policy.SECONDS
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


def side_turns(rounds):
    """For each side its turns, None where it took none in a round; and what went wrong."""
    names = list(dict.fromkeys(name for told in rounds for name in told))
    turns = {name: [told.get(name, {}) for told in rounds] for name in names}
    errors = {name: [t["error"] for t in told if "error" in t] for name, told in turns.items()}
    return {name: [t if "seconds" in t else None for t in told] for name, told in turns.items()}, \
        {name: told for name, told in errors.items() if told}


def first_later(turns):
    """Which of the turns of "auto" tells first what its calls cost in the end: what is paid once
    lies before it, rounds that go on are in it and after it, as often as they are. The turn before
    it ended as the last one did."""
    chosen, seen = None, []
    for turn in turns:
        if "choices" in turn:  # told where they changed
            chosen = [(choice["choice"], choice.get("switches")) for choice in turn["choices"]]
        seen.append(chosen)
    first = len(turns) - 1
    while first > (len(turns) + 1) // 2 and seen[first - 2] == seen[-1]:
        first -= 1
    return first


def cost_of(turns):
    """Seconds of a call, in the mean."""
    return sum(t["seconds"] for t in turns) / sum(t["calls"] for t in turns)


def seconds_of(turns, first):
    """What RUN calls take: the turns as they were, and further calls as dear as those from the turn
    `first` on; and whether all of it was measured."""
    made = [t for t in turns if t]
    missing = RUN - sum(t["calls"] for t in made)
    if missing <= 0:
        return RUN * cost_of(made), True
    later = [t for t in turns[first:] if t]
    return sum(t["seconds"] for t in made) + missing * cost_of(later or made), False


def capture_of(rounds, turns):
    """Seconds that the graph's first two calls took over later ones."""
    cold = rounds[0].get("graph", {}).get("cold", {})
    if "seconds" not in cold or not turns:
        return 0.0
    return max(0.0, cold["seconds"] - cold["calls"] * cost_of([t for t in turns if t]))


def compared(ours, theirs):
    """The ratio of what calls cost in turns that lie side by side, in the mean, and how far that may
    be off."""
    pairs = [cost_of([a]) / cost_of([b]) for a, b in zip(ours, theirs) if a and b]
    if len(pairs) < 2:
        return None, None
    return statistics.mean(pairs), statistics.stdev(pairs) / math.sqrt(len(pairs))


def verdict(rounds):
    """One workload: facts, or None where a side was not measured and did not fail either."""
    sides, errors = side_turns(rounds)
    ours = sides.pop("auto", [])
    others = {name: turns for name, turns in sides.items() if any(turns)}
    if sum(t is not None for t in ours) < 2 or not others:
        return None
    first = first_later([t or {} for t in ours])
    took, whole = seconds_of(ours, first)
    capture = capture_of(rounds, others.get("graph"))
    runs = {name: seconds_of(turns, first)[0] for name, turns in others.items()}
    captured = {name: s + (capture if name == "graph" else 0) for name, s in runs.items()}
    best = min(runs, key=runs.get)
    allowed, allowed_captured = (min(r.values()) * (1 + SHARE) + ROOM_S for r in (runs, captured))
    later = cost_of([t for t in ours[first:] if t])
    early = sum(t["seconds"] - t["calls"] * later for t in ours[:first] if t)
    told = [t["choices"] for t in ours if t and "choices" in t]
    return {"best": best, "best_s": runs[best], "auto_s": took, "allowed_s": allowed,
            "allowed_captured_s": allowed_captured, "holds": took <= allowed,
            "holds_captured": took <= allowed_captured, "whole": whole, "first": first,
            "later_us": later * 1e6, "early_ms": early * 1e3, "graph_capture_ms": capture * 1e3,
            "ratio": compared(ours[first:], others[best][first:]),
            "us": {n: cost_of([t for t in turns if t]) * 1e6 for n, turns in others.items()},
            "choices": told[-1] if told else [], "errors": errors}


def show_one(name, told):
    word = "holds" if told["holds"] else "holds with captures" if told["holds_captured"] else "FAILS"
    others = ", ".join(f"{side} {us:.2f}" for side, us in told["us"].items())
    ratio, error = told["ratio"]
    beside = "" if ratio is None else \
        f", {ratio:.3f} +- {error:.3f} of {told['best']} in the later turns"
    print(f"{word}  {name}: us a call: auto {told['later_us']:.2f}{beside}; {others}")
    print(f"    {RUN} calls: {told['auto_s'] * 1e3:.0f} ms, {told['best']} "
          f"{told['best_s'] * 1e3:.0f}, allowed {told['allowed_s'] * 1e3:.0f}, with the graph's "
          f"capture of {told['graph_capture_ms']:.0f} {told['allowed_captured_s'] * 1e3:.0f}"
          + ("" if told["whole"] else " (extended from fewer)"))
    for choice in told["choices"]:
        print(f"    {choice['choice']}: {choice['reason']} (eager {choice.get('eager_us', 0):.1f} us,"
              f" graph {choice.get('graph_us', 0):.1f} us); before it settled "
              f"{told['early_ms']:.1f} ms more, {choice.get('capture_ms', 0):.1f} of them captures; "
              f"rounds lost {choice.get('trial_ms', 0):.1f} in all")
    for side, errors in told["errors"].items():
        print(f"    {side}: {errors[0]}")


def show(result):
    """The table; how many workloads do not hold or were not measured."""
    wrong = 0
    for name, sides in result["workloads"].items():
        facts, = sides.values()
        told = verdict([t for t in facts["turns"] if "error" not in t])
        if told is None:
            print(f"{name}: not measured {facts.get('errors') or '(no time was left)'}")
            wrong += 1
            continue
        wrong += not told["holds_captured"]
        show_one(name, told)
    return wrong


def main():
    options = arguments()
    if options.list:
        import policy
        print("\n".join(policy.SIDES))
        return 0
    if options.show:
        result = tables.read(options.show)
    else:
        result = run(options)
    return 1 if show(result) else 0


if __name__ == "__main__":
    sys.exit(main())
