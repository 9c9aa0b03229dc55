#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiled workloads: torch.compile, its mode reduce-overhead, and graphs of Reprise by policy "auto".

usage: compiled.py --out FILE [--names A,B] [--rounds N] [--seconds S] [--budget S] [--limit S]
                   [--auto pieces|whole] [--install] [--together] [--quick]
       compiled.py --list

Each workload (compiled_loads.py) has a process for each side: compiled, reduce-overhead and auto. They get ready
one after the other, or at the same time with --together, which leaves no figures of device memory. Then they
measure in turn, one at a time, N rounds; each measures its own eager calls too. `auto`, by pieces: reprise.compile
with the option policy; whole: reprise.graphed(torch.compile(fn), policy="auto"). --install: it is
installed for that side.

Writes `result`, rows of `name`, `eager_us`, `compiled_us`, `reduce_us`, `auto_us`: medians of a call in a row
of calls. A side that raised or ran past --limit has None there, its `errors` says why, and it counts as
eager. `counts`: eager calls agree within 5 % between the processes. `sides` has what each measured,
seconds until it was ready, and memory: peak of what its allocator held, and what the device's free memory
fell by. --quick: small models, also without Triton, for a try on any machine."""

import argparse
import importlib.util
import json
import os
import selectors
import statistics
import subprocess
import sys
import time

SIDES = ("compiled", "reduce", "auto")
MARK = "MEASURED "


# ---- In the process of one side -------------------------------------------------------------------------

def tell(**facts):
    print(MARK + json.dumps(facts), flush=True)


def compile_without_triton():
    """By PyTorch's operators, so that a quick run does all but write kernels."""
    from torch._inductor import config, lite_mode_options, scheduler
    for name, value in lite_mode_options.items():
        at, _, last = name.rpartition(".")
        setattr(getattr(config, at) if at else config, last, value)
    scheduler.has_triton = lambda *_: True


def way_of(side, options):
    """What makes of a function that of a side."""
    import torch
    if side == "compiled":
        return torch.compile
    if side == "reduce":
        def marked(fn):
            compiled = torch.compile(fn, mode="reduce-overhead")

            def call(*args):
                torch.compiler.cudagraph_mark_step_begin()
                return compiled(*args)
            return call
        return marked
    import reprise
    if options.auto == "whole":
        return lambda fn: reprise.graphed(torch.compile(fn), policy="auto")
    return lambda fn: reprise.compile(fn, options={"policy": "auto"})


def us_per_call(torch, call, inputs, seconds):
    torch.cuda.synchronize()
    count, begin = 0, time.perf_counter()
    while True:
        for args in inputs:
            call(*args)
        count += len(inputs)
        torch.cuda.synchronize()  # no deeper queue than this
        took = time.perf_counter() - begin
        if took >= seconds:
            return took / count * 1e6


def serve(name, side, options):
    """Gets ready, then measures each time that a line comes in."""
    import torch
    if side == "auto" and options.install:
        import reprise
        reprise.install()
    if options.quick and importlib.util.find_spec("triton") is None:
        compile_without_triton()
    import compiled_loads
    free = torch.cuda.mem_get_info()[0]
    fn, make, trains = compiled_loads.made(name, options.quick)
    inputs = [make(100 * i) for i in range(4 if options.quick else 8)]
    with torch.set_grad_enabled(trains):
        us_per_call(torch, fn, inputs[:1], 0)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        begin, call = time.perf_counter(), way_of(side, options)(fn)
        for args in inputs[:3]:
            call(*args)
        torch.cuda.synchronize()
        ready = time.perf_counter() - begin
        us_per_call(torch, call, inputs, options.seconds * 2)
        tell(ready_s=round(ready, 2), reserved_mib=torch.cuda.max_memory_reserved() >> 20,
             device_mib=(free - torch.cuda.mem_get_info()[0]) >> 20)
        for _ in sys.stdin:
            tell(us=us_per_call(torch, call, inputs, options.seconds),
                 eager_us=us_per_call(torch, fn, inputs, options.seconds))


# ---- In the process of all ------------------------------------------------------------------------------

class Side:
    """A process, asked and answering by lines."""

    def __init__(self, name, side, options):
        given = ["--serve", name, side, "--seconds", str(options.seconds), "--auto", options.auto]
        given += ["--install"] * options.install + ["--quick"] * options.quick
        self.error = None
        self.facts, self.us, self.eager_us = {}, [], []
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), *given], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1)

    def answer(self, seconds):
        """What it tells next; None, with the error, where it ended or took too long."""
        end, waits = time.monotonic() + seconds, selectors.DefaultSelector()
        waits.register(self.process.stdout, selectors.EVENT_READ)
        while self.error is None:
            if not waits.select(max(0, end - time.monotonic())):
                self.error = f"no answer in {seconds:.0f} s"
                break
            line = self.process.stdout.readline()
            if line.startswith(MARK):
                return json.loads(line[len(MARK):])
            if not line:
                self.error = f"ended with {self.process.wait()}"
        self.process.kill()
        return None

    def measure(self, seconds):
        if self.error is None:
            try:
                self.process.stdin.write("go\n")
                self.process.stdin.flush()
            except OSError:
                pass  # answer() tells
            found = self.answer(seconds)
            if found:
                self.us.append(found["us"])
                self.eager_us.append(found["eager_us"])

    def end(self):
        self.process.kill()
        self.process.wait()


def median(values):
    return round(statistics.median(values), 3) if values else None


def row_of(name, sides):
    eager = [median(side.eager_us) for side in sides.values() if side.eager_us]
    row = {"name": name, "eager_us": median(eager)}
    row.update({f"{which}_us": median(side.us) if side.error is None else None for which, side in sides.items()})
    row["counts"] = bool(eager) and max(eager) <= 1.05 * min(eager)
    row["errors"] = {which: side.error for which, side in sides.items() if side.error}
    row["sides"] = {which: {**side.facts, "us": side.us, "eager_us": side.eager_us}
                    for which, side in sides.items()}
    return row


def measured(name, options):
    sides = {}
    for which in SIDES:
        sides[which] = Side(name, which, options)
        if not options.together:
            sides[which].facts = sides[which].answer(options.limit) or {}
    for side in sides.values() if options.together else ():
        side.facts = side.answer(options.limit) or {}
        side.facts.pop("device_mib", None)
    for turn in range(options.rounds):
        for which in SIDES if turn % 2 == 0 else SIDES[::-1]:
            sides[which].measure(20 * options.seconds + 60)
    for side in sides.values():
        side.end()
    return row_of(name, sides)


def geomean(rows, against):
    """Of auto, beside the better of some sides; what failed counts as eager's time."""
    ratios = []
    for row in rows:
        best = min(row[f"{side}_us"] or row["eager_us"] for side in against)
        ratios.append(best / (row["auto_us"] or row["eager_us"]))
    return round(statistics.geometric_mean(ratios), 3) if ratios else None


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2].partition("\n\n")[0])
    parser.add_argument("--serve", nargs=2)
    parser.add_argument("--out")
    parser.add_argument("--names")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--budget", type=float)
    parser.add_argument("--limit", type=float, default=180)
    parser.add_argument("--auto", choices=("pieces", "whole"), default="pieces")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.serve:
        return serve(*options.serve, options)
    import compiled_loads
    if options.list or not options.out:
        print("\n".join(compiled_loads.LOADS))
        return 0 if options.list else 2
    rows, begin = [], time.monotonic()
    for name in options.names.split(",") if options.names else compiled_loads.LOADS:
        if options.budget and time.monotonic() - begin > options.budget:
            break
        rows.append(measured(name, options))
        counted = [row for row in rows if row["counts"]]
        print(json.dumps({k: v for k, v in rows[-1].items() if k != "sides"}), flush=True)
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump({"command": " ".join(sys.argv), "seconds": round(time.monotonic() - begin, 1),
                       "over_compiled": geomean(counted, ("compiled",)),
                       "over_better": geomean(counted, ("compiled", "reduce")), "result": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.exit(main())
