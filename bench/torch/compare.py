# SPDX-License-Identifier: MIT
"""Runs the sides of a comparison in processes of their own, in turns, and keeps what they tell.

A group (forum.py, inference.py, ...) is a module with

    SIDES      {workload: [names of sides]}
    FRESH      True: each round prepares anew, in new processes; False: a side's process stays, and
               only measures again
    TURNS      how often each side measures in a round
    AHEAD      the sides of so many workloads are prepared at the same time, where there is one;
               nothing that preparing takes is a figure of theirs
    IMPORTS    what the workloads need ("module" or "module:member"), imported once, before forking
    prepare(torch, side, workload)
               in the side's process: its facts, and a function that measures once more or None

Processes are forked from one that has imported PyTorch but never used CUDA: an import takes longer
than most of what is measured. One side at a time does anything, but for those that compile: they
are prepared together, beforehand.

All sides are measured on the same core, and prepared on it where that is what is measured: cores of
one machine differ by up to two times, by what runs beside them.
"""

import contextlib
import importlib
import multiprocessing
import os
import sys
import time
import traceback

import common
from sides import SIDES


@contextlib.contextmanager
def one_core(wanted=True):
    """This thread on the last core that the process may use, the same in all; threads that it makes
    meanwhile too."""
    before = os.sched_getaffinity(0)
    if wanted:
        os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def serve(pipe, group, side, workload):
    """A side's process: prepares, then measures when it is asked."""
    os.dup2(2, 1)  # standard output is for the results alone
    try:
        module = importlib.import_module(group)
        torch = SIDES[side].enter()
        with one_core(module.FRESH):
            facts, measure = module.prepare(torch, SIDES[side], workload)
        pipe.send(facts)
        while pipe.recv():
            with one_core():
                facts = measure()
            pipe.send(facts)
    except BaseException as error:  # whatever it is, the others go on
        traceback.print_exc()
        text = str(error).strip().splitlines()
        pipe.send({"error": f"{type(error).__name__}: {text[0] if text else ''}"})
    sys.stderr.flush()
    os._exit(0)  # the driver frees all there is


class Worker:
    """One side's process."""

    def __init__(self, method, group, side, workload):
        context = multiprocessing.get_context(method)
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, group, side.name, workload),
                                       daemon=True)
        self.process.start()
        theirs.close()
        self.side = side
        self.failed = False

    def hear(self, limit):
        """What it tells next; an error where it takes longer or ends."""
        try:
            if self.pipe.poll(limit):
                facts = self.pipe.recv()
            else:
                facts = {"error": f"took longer than {limit:.0f} s"}
        except (EOFError, ConnectionError):
            self.process.join(5)
            facts = {"error": f"the process ended with {self.process.exitcode}"}
        self.failed = "error" in facts
        return facts

    def measure(self, limit):
        self.pipe.send(True)
        return self.hear(limit)

    def stop(self):
        """Lets it end, and does not wait."""
        if self.failed:
            self.process.kill()
            return
        try:
            self.pipe.send(False)
        except ConnectionError:  # it has ended already
            pass

    def close(self):
        """Ends it; its memory is the device's again then."""
        self.stop()
        self.process.join(10)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(10)
        self.pipe.close()


def close_all(workers):
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.close()


class Comparison:
    """One group's workloads and sides, and what came of them so far."""

    def __init__(self, name, *, workloads=None, sides=None, rounds=3, limit=120, budget=None,
                 method="fork", tell=lambda text: None):
        self.name = name
        self.group = importlib.import_module(name)
        self.rounds = min(rounds, getattr(self.group, "MOST_ROUNDS", rounds))
        self.limit = limit
        self.ends = None if budget is None else time.monotonic() + budget
        self.method = method
        self.tell = tell
        self.plan = {w: [SIDES[s] for s in names if not sides or s in sides]
                     for w, names in self.group.SIDES.items() if not workloads or w in workloads}
        self.found = {w: {side.name: {"prepared": [], "turns": []} for side in chosen}
                      for w, chosen in self.plan.items()}
        self.ahead = {}  # workers that compile, by workload and side

    def is_over(self):
        return self.ends is not None and time.monotonic() > self.ends

    def left(self):
        """Seconds that a side may take now."""
        if self.ends is None:
            return self.limit
        return max(5, min(self.limit, self.ends - time.monotonic()))

    def keep(self, kind, workload, side, facts):
        self.found[workload][side.name][kind].append(facts)
        self.tell(f"{workload} {side.name} {kind}: {facts}")

    def start(self, workload, side):
        return Worker(self.method, self.name, side, workload)

    def prepare(self, workload, side):
        """A worker that is ready, or None."""
        worker = self.ahead.pop((workload, side.name), None)
        if worker is None:
            worker = self.start(workload, side)
            self.keep("prepared", workload, side, worker.hear(self.left()))
        if worker.failed:
            worker.close()
            return None
        return worker

    def compile_ahead(self):
        """Lets all that compile get ready at the same time."""
        self.prepare_together([(w, s) for w, chosen in self.plan.items() for s in chosen
                               if s.compiled])

    def prepare_together(self, pairs):
        waiting = [(w, s) for w, s in pairs if (w, s.name) not in self.ahead]
        for workload, side in waiting:
            self.ahead[workload, side.name] = self.start(workload, side)
        for workload, side in waiting:
            worker = self.ahead[workload, side.name]
            self.keep("prepared", workload, side, worker.hear(self.left()))

    def run(self, after_each=lambda: None):
        """All workloads; after_each is called when one is done, and is over after an interruption
        with what there is."""
        try:
            self.compile_ahead()
            ahead = getattr(self.group, "AHEAD", 0)
            for number, (workload, chosen) in enumerate(self.plan.items()):
                if ahead and number % ahead == 0 and not self.is_over():
                    some = list(self.plan.items())[number:number + ahead]
                    self.prepare_together([(w, s) for w, sides in some for s in sides])
                if self.group.FRESH:
                    self.run_fresh(workload, chosen)
                else:
                    self.run_kept(workload, chosen)
                after_each()
        finally:
            close_all(self.ahead.values())

    def run_fresh(self, workload, chosen):
        for number in range(self.rounds):
            for side in chosen:
                if side.rounds is not None and number >= side.rounds or self.is_over():
                    continue
                worker = self.prepare(workload, side)
                if worker is not None:
                    worker.close()

    def run_kept(self, workload, chosen):
        workers = []
        try:
            for side in chosen:
                worker = None if self.is_over() else self.prepare(workload, side)
                if worker is not None:
                    workers.append(worker)
            for _ in range(self.rounds * getattr(self.group, "TURNS", 1)):
                for worker in workers:
                    if worker.failed or self.is_over():
                        continue
                    self.keep("turns", workload, worker.side, worker.measure(self.left()))
        finally:
            close_all(workers)

    def result(self):
        """All there is, as one object for JSON."""
        workloads = {w: {s: figures(runs) for s, runs in sides.items()}
                     for w, sides in self.found.items()}
        return {"group": self.name, "rounds": self.rounds,
                "torch": sys.modules["torch"].__version__,
                "sides": {s.name: describe(s) for chosen in self.plan.values() for s in chosen},
                "workloads": workloads}


def describe(side):
    facts = {"allocator": side.allocator, "install": side.install, "frozen": side.frozen,
             "tuned": side.tuned, "compiled": side.compiled, "exec_budget_bytes": side.budget}
    return {k: v for k, v in facts.items() if v}


def figures(runs):
    """Medians over what was told, and how far the rounds lie apart. Nothing where nothing was."""
    good = {kind: [r for r in told if "error" not in r] for kind, told in runs.items()}
    found = {"median": {}, "spread": {}}
    for told in good.values():
        if told:
            found["median"].update(common.median(told))
            found["spread"].update(common.spread(told) or {})
    errors = sorted({r["error"] for told in runs.values() for r in told if "error" in r})
    if errors:
        found["errors"] = errors
    return {**found, **runs}
