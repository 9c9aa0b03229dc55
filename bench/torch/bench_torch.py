#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reprise beside PyTorch's own ways to graphs, on the same work.

usage: bench_torch.py GROUP [--workloads A,B] [--sides A,B] [--rounds N] [--limit S] [--budget S]
                      [--start fork|spawn] [--out FILE] [--verbose]
       bench_torch.py --show FILE...            the tables of kept results
       bench_torch.py --list

Groups: forum (many batch sizes: memory), inference (a call with new tensors), decode (a Llama's
step at 64 batch sizes), alone (that step by a process that has the GPU to itself), training (200
steps, in three ways), micro (the same of micro-batches), allocator (Reprise's heap under eager
programs), streams (captures on several streams). docs/benchmarks.md says what each figure is.

Each side runs in a process of its own, in turns; shown are medians over rounds, and kept is all
that was measured. --limit ends a side that takes longer in one step, --budget starts nothing more
after so many seconds. The JSON goes to --out, anew after each workload, or to standard output.
"""

import argparse
import importlib
import json
import os
import sys
import tempfile

import tables

GROUPS = ("forum", "inference", "decode", "alone", "training", "micro", "allocator", "streams")


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2].replace("%", "%%"))
    parser.add_argument("group", choices=GROUPS, nargs="?")
    parser.add_argument("--workloads")
    parser.add_argument("--sides")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=120)
    parser.add_argument("--budget", type=float)
    parser.add_argument("--start", choices=("fork", "spawn"), default="fork")
    parser.add_argument("--out")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--show", nargs="+", metavar="FILE")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


def show(result, where):
    group = importlib.import_module(result["group"])
    print(tables.summary(result, group.COLUMNS, group.LIMITS), file=where, flush=True)


def show_all(paths):
    for path in paths:
        try:
            show(tables.read(path), sys.stdout)
        except (OSError, ValueError) as error:
            print(f"bench_torch: {error}", file=sys.stderr)
            return 2
    return 0


def set_up():
    """What all processes share. Nothing may use CUDA in this one: those that are forked could not."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # sides compile side by side
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        folder = tempfile.gettempdir()
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, f"bench_torch_{os.getuid()}")


def compare(options):
    set_up()
    import compare as comparing
    import workloads

    def tell(text):
        if options.verbose:
            print(text, file=sys.stderr, flush=True)

    split = {key: value.split(",") if value else None
             for key, value in (("workloads", options.workloads), ("sides", options.sides))}
    comparison = comparing.Comparison(
        options.group, **split, rounds=options.rounds, limit=options.limit, budget=options.budget,
        method=options.start, tell=tell)
    workloads.preload(comparison.group.IMPORTS)

    def keep():
        if options.out:
            with open(options.out, "w", encoding="utf-8") as file:
                json.dump(comparison.result(), file)

    comparison.run(keep)
    keep()
    result = comparison.result()
    show(result, sys.stderr)
    if not options.out:
        print(json.dumps(result))
    failed = [s for sides in result["workloads"].values() for s, f in sides.items()
              if "errors" in f and not f["median"]]
    return 1 if failed else 0


def main():
    options = arguments()
    if options.list:
        for name in GROUPS:
            group = importlib.import_module(name)
            for workload, names in group.SIDES.items():
                print(f"{name} {workload}: {', '.join(names)}")
        return 0
    if options.show:
        return show_all(options.show)
    if not options.group:
        print(__doc__, file=sys.stderr)
        return 2
    return compare(options)


if __name__ == "__main__":
    sys.exit(main())
