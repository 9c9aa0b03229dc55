#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Says which targets kept results of bench_torch.py meet.

usage: judge.py FILE...       results of the groups, in any order
       judge.py --json FILE...

The targets are in docs/benchmarks.md. Each is shown with its figures and whether it holds; what was
not measured is said to be so. Exit: 0 all that was measured holds, 1 something does not, 2 usage.
"""

import json
import statistics
import sys

from tables import best, is_ours, look_up, read

PAGE_MIB = 2  # what the driver gives memory by


class Verdicts:
    """What was found so far of one target: lines of (holds or None, text). gaps: how many figures
    are missing."""

    def __init__(self, number, title):
        self.number = number
        self.title = title
        self.lines = []
        self.gaps = 0

    def at_most(self, text, value, limit, unit=""):
        """value has to be at most limit; None where it was not measured."""
        if value is None or limit is None:
            self.missing(text)
        else:
            self.lines.append((value <= limit,
                               f"{text}: {value:,.4g}{unit}, at most {limit:,.4g}{unit}"))

    def told(self, text, value, limit, unit=""):
        """value beside limit, as a remark."""
        if value is not None and limit is not None:
            self.remark(f"{text}: {value:,.4g}{unit} beside {limit:,.4g}{unit}")

    def holds(self, text, value):
        self.lines.append((value, text))

    def remark(self, text):
        self.lines.append((None, text))

    def missing(self, text):
        self.gaps += 1
        self.remark(f"{text}: not measured")

    @property
    def verdict(self):
        known = [holds for holds, _ in self.lines if holds is not None]
        return all(known) if known else None

    def words(self):
        if self.verdict is None:
            return "not measured"
        if not self.verdict:
            return "DOES NOT HOLD"
        return f"holds where measured ({self.gaps} figures are missing)" if self.gaps else "holds"


def figure(sides, side, path):
    facts = sides.get(side)
    return None if facts is None else look_up(facts["median"], path)


def scaled(value, factor, plus=0.0):
    return None if value is None else value * factor + plus


def workloads_of(results, *groups):
    """(title, sides) of each workload that the results have."""
    for group in groups:
        for name, sides in results.get(group, {}).get("workloads", {}).items():
            yield f"{group} {name}", sides


def installed(sides):
    """Those of Reprise's sides that have its allocator, and captured something."""
    return [side for side in sides if side.startswith("reprise-install")]


def wants_estimate(title, side):
    """Where the scripts ask for one: not of steps that train, nor of what is compiled first."""
    return not title.startswith(("training", "micro")) and not side.endswith("-compiled")


def peers(sides, side):
    """PyTorch's sides that have the same in graphs as one of ours: in training a whole step, be it
    of micro-batches, the model's passes, or its layers'."""
    if side.endswith("-model"):
        names = ("callables",)
    elif side.endswith("-layers"):
        names = ("callables-layers",)
    elif side.endswith(("-whole", "-micro")):
        names = tuple(name for name in sides if name.startswith("graph"))
    else:
        names = tuple(sides)
    return {name: sides[name] for name in names if name in sides}


# ---- The targets ----------------------------------------------------------------------------


def memory_of_shapes(results):
    """1"""
    found = Verdicts(1, "Device memory after 128 and 512 batch sizes: at most 1.1 of that after the "
                        "largest, plus the budget of executable graphs")
    for title, sides in workloads_of(results, "forum"):
        for side in ("reprise-install", "reprise-install-one-exec"):
            first = figure(sides, side, "after_1.device_mib")
            limit = scaled(first, 1.1, figure(sides, side, "exec_budget_mib") or 0)
            for count in (128, 512):
                found.at_most(f"{title}, {side}, {count} sizes",
                              figure(sides, side, f"after_{count}.device_mib"), limit, " MiB")
        theirs = best(sides, "after_512.device_mib", False)
        alone = theirs and figure(sides, theirs[1], "after_1.device_mib")
        if alone:
            found.remark(f"{title}: PyTorch's best ({theirs[1]}) takes {theirs[0]:,.4g} MiB for 512, "
                         f"{theirs[0] / alone:.2f} times that for the largest")
    return found


def height_of_layouts(results):
    """2"""
    found = Verdicts(2, "Height of layouts under install(): at most 1.01 of the bound, device memory "
                        "that rounded up to the page, never above PyTorch's best; estimates exact")
    for title, sides in workloads_of(results, "forum", "inference", "decode", "training", "micro"):
        taken = "after_512.device_mib" if title.startswith("forum") else "device_mib"
        for side in installed(sides):
            judge_pool(found, f"{title}, {side}", sides[side]["median"],
                       wants_estimate=wants_estimate(title, side))
            graphs = {k: v for k, v in peers(sides, side).items() if k != "eager"}
            judge_taken(found, f"{title}, {side}", sides[side]["median"], taken,
                        best(graphs, taken, False))
    for title, sides in workloads_of(results, "streams"):
        judge_streams(found, title, sides)
    return found


def judge_taken(found, title, facts, path, theirs):
    """Memory beside PyTorch's best. Of the device: cuBLAS's workspaces are planned blocks of our
    pools, and lie beside those of PyTorch's graphs."""
    if theirs is not None and look_up(facts, path) is not None:
        found.at_most(f"{title}, {path} to PyTorch's best ({theirs[1]})", look_up(facts, path),
                      theirs[0], " MiB")


def judge_pool(found, title, facts, *, wants_estimate):
    height = look_up(facts, "pool_mib")
    if height is None:
        return
    found.at_most(f"{title}, height to bound", height, scaled(look_up(facts, "bound_mib"), 1.01),
                  " MiB")
    pages = -(-height // PAGE_MIB) * PAGE_MIB
    found.at_most(f"{title}, mapped", look_up(facts, "mapped_mib"), pages, " MiB")
    estimate = look_up(facts, "estimate_mib")
    if estimate is not None:
        found.holds(f"{title}, estimate {estimate:,.4f} MiB, planned {height:,.4f} MiB",
                    abs(estimate - height) < 1e-3)
    elif wants_estimate:
        why = look_up(facts, "estimate_error")
        found.missing(f"{title}, estimate" + (f" ({why})" if why else ""))


def judge_streams(found, title, sides):
    for name, facts in sides.get("reprise-install", {}).get("median", {}).items():
        if name != "total":
            judge_pool(found, f"{title}, {name}", facts,
                       wants_estimate=title.endswith(" 500 steps"))
            theirs = best(sides, f"{name}.pool_mib", False)
            judge_taken(found, f"{title}, {name}", facts, "mapped_mib", theirs)


def told_in_turns(sides, side, path):
    """The figure in each turn, or each round where a side is prepared anew in it."""
    facts = sides.get(side, {})
    for kind in ("turns", "prepared"):
        told = [look_up(turn, path) for turn in facts.get(kind, ())]
        if any(value is not None for value in told):
            return told
    return []


def in_pairs(sides, ours, theirs, path):
    """Ours to theirs, turn by turn, and of that the median: a device that changes its pace between
    turns changes both. None where there are no two turns of both."""
    pairs = zip(told_in_turns(sides, ours, path), told_in_turns(sides, theirs, path))
    ratios = [a / b for a, b in pairs if a is not None and b]
    return statistics.median(ratios) if len(ratios) > 1 else None


def ahead(found, title, sides, ours, theirs, paths, unit, factor=1.0, judged=True):
    """Each figure of ours is at most theirs, or so many times it: in pairs where turns were kept.
    judged: or else they are only told."""
    told = found.at_most if judged else found.told
    for path in paths:
        text = f"{title}, {ours} to {theirs}, {path}"
        mine, other = figure(sides, ours, path), figure(sides, theirs, path)
        ratio = in_pairs(sides, ours, theirs, path)
        if ratio is None:
            told(text, mine, scaled(other, factor), unit)
        else:
            told(f"{text} ({mine:,.4g} to {other:,.4g}{unit}), turn by turn", ratio, factor)


TIMES = ("host_us", "wall_us", "throughput_us")


def calls(results):
    """3"""
    found = Verdicts(3, "Calls with new tensors: PyTorch's bare replay plus 3 us of host time; ahead "
                        "of copy, replay, clone and of reduce-overhead on every inference workload")
    for title, sides in workloads_of(results, "inference"):
        if title.endswith(" mlp"):
            bare = figure(sides, "graph", "bare.host_us")
            for side in ("reprise-install", "reprise-install-frozen", "reprise"):
                found.at_most(f"{title}, {side}, host time to the bare replay plus 3 us",
                              figure(sides, side, "host_us"), scaled(bare, 1, 3), " us")
        ahead(found, title, sides, "reprise-install", "graph", TIMES, " us")
        ahead(found, title, sides, "reprise-install-compiled", "reduce-overhead", TIMES, " us")
    for title, sides in workloads_of(results, "decode", "alone"):
        tuned = "reprise-install-tuned" in sides  # where memory lies is luck otherwise, on all sides
        for side in ("reprise-install", "reprise-install-tuned")[:1 + tuned]:
            for rows in (1, 16, 64):
                ahead(found, title, sides, side, "graph", [f"b{rows}.{path}" for path in TIMES],
                      " us", judged=not tuned or side.endswith("-tuned"))
    return found


def time_to_ready(results):
    """4"""
    found = Verdicts(4, "Cold to ready for 128 batch sizes: at most 1.1 of PyTorch's warm-up plus "
                        "capture; an allocation in a capture costs at most c10's")
    for title, sides in workloads_of(results, "forum"):
        for side in ("reprise-install", "reprise"):
            ahead(found, title, sides, side, "graph", ("after_128.seconds",), " s", 1.1)
    for title, sides in workloads_of(results, "allocator"):
        if title.endswith(" pairs"):
            ahead(found, title, sides, "reprise-eager", "eager",
                  ("captured.one.1KiB_ns", "captured.one.1MiB_ns", "captured.alive.mixed_ns"), " ns")
    return found


def eager_training(results):
    """5"""
    found = Verdicts(5, "Eager training under install(): at most 1.01 of the time under c10, and at "
                        "most its memory")
    for title, sides in workloads_of(results, "allocator"):
        if not title.endswith(" pairs"):
            ahead(found, title, sides, "reprise-eager", "eager", ("wall_us",), " us", 1.01)
            ahead(found, title, sides, "reprise-eager", "eager", ("reserved_mib", "device_mib"),
                  " MiB")
    return found


def training_losses(results):
    """6"""
    found = Verdicts(6, "ResNet-50 and GPT-2, 200 steps from one seed: losses equal to eager's to the "
                        "bit, dropout on in GPT-2")
    for title, sides in workloads_of(results, "training", "micro"):
        want = figure(sides, "eager", "loss_bits")
        for side in filter(is_ours, sides):
            got = figure(sides, side, "loss_bits")
            if want is None or got is None:
                found.missing(f"{title}, {side}")
            else:
                found.holds(f"{title}, {side}: losses {'are' if got == want else 'are not'} eager's",
                            got == want)
    return found


TARGETS = (memory_of_shapes, height_of_layouts, calls, time_to_ready, eager_training,
           training_losses)


# ---- The command ----------------------------------------------------------------------------


def load(paths):
    """Results by group."""
    results = {}
    for path in paths:
        found = read(path)
        known = results.setdefault(found["group"], {"workloads": {}})
        known["workloads"].update(found["workloads"])
    return results


def show(verdicts):
    for found in verdicts:
        print(f"{found.number}. {found.title}: {found.words()}")
        for holds, text in found.lines:
            print(f"   {'  ' if holds is None else 'ok' if holds else 'NO'}  {text}")


def main():
    paths = [a for a in sys.argv[1:] if a != "--json"]
    if not paths or any(a.startswith("-") for a in paths):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        verdicts = [target(load(paths)) for target in TARGETS]
    except (OSError, ValueError) as error:
        print(f"judge: {error}", file=sys.stderr)
        return 2
    if "--json" in sys.argv:
        print(json.dumps([{"target": v.number, "title": v.title, "holds": v.verdict,
                           "figures": [{"holds": h, "text": t} for h, t in v.lines]}
                          for v in verdicts], indent=1))
    else:
        show(verdicts)
    return 1 if any(v.verdict is False for v in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
