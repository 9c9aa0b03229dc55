#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiled workloads: torch.compile, its mode reduce-overhead, and graphs of Reprise by policy "auto".

usage: compiled.py --out FILE [--names A,B] [--half 1|2] [--budget S] [--limit S] [--at-once N] [--threads N]
                   [--rounds N] [--seconds S] [--auto both|pieces|whole] [--install] [--shapes N] [--quick]
       compiled.py --merge A B --out FILE
       compiled.py --list

Each workload (compiled_loads.py) has a process for each side: compiled, reduce and auto. Those of --at-once
workloads get ready at the same time, each with --threads of Inductor's compilers and empty caches. Where the
three are ready they are measured: every other process of the run stands still meanwhile (SIGSTOP), and the
sides take turns, --rounds times. Each measures its own eager calls too.

`auto` is one line in a program. both: reprise.graphed(reprise.compile(fn), ..), both by policy "auto", so what
cannot be a graph as a whole is one in pieces; pieces: reprise.compile alone; whole: reprise.graphed of
torch.compile(fn). --install: it is installed for that side.

Writes `result` after each row: `name`, `eager_us`, `compiled_us`, `reduce_us`, `auto_us`, medians of a call in
a row of calls. A side that raised or ran past --limit has None there, `errors` says why, and it counts as
eager (`geomeans`). `counts`: eager calls agree within 5 % between the processes. `sides` has what each
measured; where it differs from eager's result the most, next to the largest number there (`differs`, inference);
and what it took:

    ready_s       from the function to the end of its third call, without the time it stood still
    ready_cpu_s   processor time of the process and its compilers until then
    choices       of auto, which way calls go before they are measured, and why
    reserved_mib  the most that its allocator held, since it began to compile
    device_mib    what the device got back when the process ended, its context included

--shapes N: batches of 1 to N rows instead of one, compiled once for all (dynamic=True); only memory is told,
and only of workloads that can be called so. What is not done at --budget seconds is left out, and named in
`left_out`: --merge puts the rows of two runs together. --quick: small models, also without Triton, for a try
on any machine."""

import argparse
import concurrent.futures
import contextlib
import ctypes
import gc
import importlib.util
import json
import os
import selectors
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

SIDES = ("compiled", "reduce", "auto")
MARK = "MEASURED "
AGREES = 1.05
SETTLING = 128  # calls before any are measured: what chooses by measured times compares rounds of four
LARGE = 1 << 28  # bytes of an input, of which there are fewer: three processes of each workload have some
# The second half of a run in two calls: each has about as much to compile. Longest first.
SECOND = ("mobilebert", "longformer", "bart_t", "detection", "mt5", "bert_large", "distilgpt2_t", "dcgan", "speech",
          "distilbert", "bert", "lcnet", "elementwise", "recommender")


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
    more = {"dynamic": True} if options.shapes else {}
    if side == "compiled":
        return lambda fn: torch.compile(fn, **more)
    if side == "reduce":
        def marked(fn):
            compiled = torch.compile(fn, mode="reduce-overhead", **more)

            def call(*args):
                torch.compiler.cudagraph_mark_step_begin()
                return compiled(*args)
            return call
        return marked
    import reprise
    if options.auto == "whole":
        return lambda fn: reprise.graphed(torch.compile(fn, **more), policy="auto")
    pieces = {"options": {"policy": "auto"}, **more}
    if options.auto == "pieces":
        return lambda fn: reprise.compile(fn, **pieces)
    return lambda fn: reprise.graphed(reprise.compile(fn, **pieces), policy="auto")


def us_per_call(torch, call, inputs, seconds, least=1):
    """least: how many calls, at least."""
    torch.cuda.synchronize()
    count, begin = 0, time.perf_counter()
    while True:
        for args in inputs:
            call(*args)
        count += len(inputs)
        torch.cuda.synchronize()  # no deeper queue than this
        took = time.perf_counter() - begin
        if took >= seconds and count >= least:
            return took / count * 1e6


def choices(side):
    """How calls go by then, as the report has it; of other sides None."""
    if side != "auto":
        return None
    import reprise
    return [line.strip() for line in reprise.report().splitlines() if " calls measured" in line]


def one_by_one(torch, call, inputs, times=1):
    for args in list(inputs) * times:
        call(*args)
        torch.cuda.synchronize()


def tensors_of(value):
    if isinstance(value, (tuple, list)):
        return [tensor for one in value for tensor in tensors_of(one)]
    return [value] if hasattr(value, "detach") else []


def differs(torch, call, fn, args):
    """How far results lie from eager's, next to the largest number among those."""
    got = [tensor.detach().clone().float() for tensor in tensors_of(call(*args))]
    wanted = [tensor.detach().float() for tensor in tensors_of(fn(*args))]
    if [tensor.shape for tensor in got] != [tensor.shape for tensor in wanted]:
        return "other shapes"
    far = [((a - b).abs().max() / b.abs().max().clamp(min=1e-6)).item() for a, b in zip(got, wanted) if a.numel()]
    return max(far, default=0.0)


def inputs_of(make, options):
    if options.shapes:
        return [make(100 * rows, rows) for rows in range(options.shapes, 0, -1)]
    first = make(0)
    is_large = sum(tensor.nbytes for tensor in tensors_of(first)) > LARGE
    return [first] + [make(100 * i) for i in range(1, 4 if options.quick or is_large else 8)]


def serve(name, side, options):
    """Gets ready, then does what each line says that comes in."""
    import torch
    torch.set_float32_matmul_precision("high")
    if side == "auto" and options.install:
        import reprise
        reprise.install()
    if options.quick and importlib.util.find_spec("triton") is None:
        compile_without_triton()
    import compiled_loads
    fn, make, trains = compiled_loads.made(name, options.quick)
    inputs = inputs_of(make, options)
    with torch.set_grad_enabled(trains):
        one_by_one(torch, fn, inputs[:1])
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        begin, call = time.monotonic(), way_of(side, options)(fn)
        if options.shapes:
            one_by_one(torch, call, inputs, 3)
        else:
            one_by_one(torch, call, inputs[:3])
        tell(ready=(begin, time.monotonic()))
        sys.stdin.readline()
        gc.collect()
        gc.freeze()
        gc.disable()
        us_per_call(torch, call, inputs, options.seconds * (5 if side == "auto" else 1), SETTLING)
        us_per_call(torch, fn, inputs, 0)
        tell(reserved_mib=torch.cuda.max_memory_reserved() >> 20,
             differs=None if trains else differs(torch, call, fn, inputs[-1]), choices=choices(side))
        while sys.stdin.readline() == "measure\n":
            us_per_call(torch, call, inputs, 0)
            us = us_per_call(torch, call, inputs, options.seconds)
            us_per_call(torch, fn, inputs, 0)
            tell(us=us, eager_us=us_per_call(torch, fn, inputs, options.seconds))
        torch.cuda.empty_cache()
        torch.cuda.synchronize()
        tell(over=True)
        sys.stdin.readline()


# ---- Processes and the device, from outside -------------------------------------------------------------

def processes():
    """By parent, the processes that it started."""
    children = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError):
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                children.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(pid))
    return children


def tree_of(pid, children):
    return [pid] + [below for child in children.get(pid, ()) for below in tree_of(child, children)]


def cpu_seconds(pid):
    """Of a process and all that it started."""
    ticks = 0
    for one in tree_of(pid, processes()):
        with contextlib.suppress(OSError, ValueError):
            with open(f"/proc/{one}/stat", encoding="utf-8", errors="replace") as file:
                ticks += sum(map(int, file.read().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Memory:
    """What of the device is in use, asked without a context of one's own; None where that cannot be told."""

    class Figures(ctypes.Structure):
        _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]

    def __init__(self):
        self.device, self.library = ctypes.c_void_p(), None
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByIndex_v2(
                    0, ctypes.byref(self.device)) == 0:
                self.library = library

    def used(self):
        figures = self.Figures()
        if self.library is None or self.library.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(figures)):
            return None
        return figures.used


class Stage:
    """All sides of a run. Those of one row at a time are measured, while the others stand still."""

    def __init__(self):
        self.lock = threading.Lock()
        self.alive = set()
        self.stops = []  # (begin, end) of each time that others stood still
        self.memory = Memory()
        self.drain_s = 0.2  # until what was launched is done

    def start(self, side, command, environment):
        with self.lock:
            side.process = subprocess.Popen(command, text=True, bufsize=1, env=environment, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=side.log)
            self.alive.add(side)

    def end(self, side):
        """Ends a process and its compilers; those of Inductor's have a session of their own."""
        for pid in tree_of(side.process.pid, processes()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        side.process.wait()
        self.alive.discard(side)

    @contextlib.contextmanager
    def alone(self, sides):
        with self.lock:
            begin, stopped = time.monotonic(), []
            children = processes()
            for other in self.alive.difference(sides):
                stopped += tree_of(other.process.pid, children)
            self._signal(stopped, signal.SIGSTOP)
            time.sleep(self.drain_s)
            try:
                yield
            finally:
                self._signal(stopped, signal.SIGCONT)
                self.stops.append((begin, time.monotonic()))

    @staticmethod
    def _signal(pids, number):
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def stood_still(self, begin, end):
        return sum(max(0, min(end, b) - max(begin, a)) for a, b in list(self.stops))


class Side:
    """A process, asked and answering by lines."""

    def __init__(self, stage, name, side, options, until):
        given = ["--serve", name, side, "--seconds", str(options.seconds), "--auto", options.auto]
        given += ["--shapes", str(options.shapes)] + ["--install"] * options.install + ["--quick"] * options.quick
        self.stage, self.until = stage, until
        self.error, self.facts, self.us, self.eager_us = None, {}, [], []
        self.caches = tempfile.mkdtemp(prefix="compiled-")
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        environment = {**os.environ, "PYTHONHASHSEED": "0", "TORCHINDUCTOR_CACHE_DIR": self.caches,
                       "TRITON_CACHE_DIR": os.path.join(self.caches, "triton"), "OMP_NUM_THREADS": "1",
                       "TORCHINDUCTOR_COMPILE_THREADS": str(options.threads)}
        stage.start(self, [sys.executable, os.path.abspath(__file__), *given], environment)

    def answer(self, seconds):
        """What it tells next; None, with the error, where it ended or took too long. Time that it stood still
        does not count."""
        begin, waits = time.monotonic(), selectors.DefaultSelector()
        waits.register(self.process.stdout, selectors.EVENT_READ)
        while self.error is None:
            now = time.monotonic()
            left = begin + seconds + self.stage.stood_still(begin, now) - now
            if min(left, self.until - now) <= 0:
                self.error = f"no answer in {now - begin:.0f} s"
                break
            if not waits.select(min(left, self.until - now, 2)):
                continue
            line = self.process.stdout.readline()
            if line.startswith(MARK):
                return json.loads(line[len(MARK):])
            if not line:
                self.error = f"ended with {self.process.wait()}: {self.last_words()}"
        return None

    def last_words(self):
        self.log.seek(0)
        lines = [line.strip() for line in self.log.read().splitlines() if line.strip()]
        return " | ".join(lines[-3:])[-400:]

    def ask(self, what, seconds):
        if self.error is None:
            with contextlib.suppress(OSError):  # answer() tells
                self.process.stdin.write(what + "\n")
                self.process.stdin.flush()
            return self.answer(seconds) or {}
        return {}

    def get_ready(self, limit):
        found = self.answer(limit)
        if found:
            begin, end = found["ready"]
            self.facts["ready_s"] = round(end - begin - self.stage.stood_still(begin, end), 2)
            self.facts["ready_cpu_s"] = round(cpu_seconds(self.process.pid), 1)

    def measure(self, seconds):
        found = self.ask("measure", seconds)
        if found:
            self.us.append(found["us"])
            self.eager_us.append(found["eager_us"])

    def leave(self, is_alone):
        """Ends the process. What the device gets back is known where all others stand still."""
        used = None
        if is_alone and self.ask("end", 60):
            used = self.stage.memory.used()
        self.stage.end(self)
        if used is not None:
            time.sleep(0.1)
            self.facts["device_mib"] = (used - self.stage.memory.used()) >> 20
        self.log.close()
        shutil.rmtree(self.caches, ignore_errors=True)


# ---- A row, and all of them -----------------------------------------------------------------------------

def median(values):
    return round(statistics.median(values), 3) if values else None


def row_of(name, sides):
    eager = [median(side.eager_us) for side in sides.values() if side.eager_us]
    row = {"name": name, "eager_us": median(eager)}
    row.update({f"{which}_us": median(side.us) if side.error is None else None for which, side in sides.items()})
    row["counts"] = len(eager) > 1 and max(eager) <= AGREES * min(eager)
    row["errors"] = {which: side.error for which, side in sides.items() if side.error}
    row["sides"] = {which: {**side.facts, "us": [round(us, 2) for us in side.us],
                            "eager_us": [round(us, 2) for us in side.eager_us]} for which, side in sides.items()}
    return row


def measured(stage, name, options, until):
    """The row of a workload; None where time is up before that."""
    if time.monotonic() > until:
        return None
    sides = {which: Side(stage, name, which, options, until) for which in SIDES}
    try:
        for side in sides.values():
            side.get_ready(options.limit)
        if time.monotonic() > until:
            return None
        with stage.alone(set(sides.values())):
            for side in sides.values():
                side.facts.update(side.ask("settle", 60))
            for turn in range(0 if options.shapes else options.rounds):
                for which in SIDES if turn % 2 == 0 else SIDES[::-1]:
                    sides[which].measure(20 * options.seconds + 60)
            for side in sides.values():
                side.leave(True)
    finally:
        for side in stage.alive.intersection(sides.values()):
            side.leave(False)
    return row_of(name, sides)


def ratio(row, against):
    """Of auto, beside the better of some sides; what failed counts as eager's time."""
    best = min(row[f"{side}_us"] or row["eager_us"] for side in against)
    return best / (row["auto_us"] or row["eager_us"])


def geomeans(rows):
    import compiled_loads
    counted = [row for row in rows if row["counts"]]
    first = [row for row in counted if row["name"] in compiled_loads.FIRST]
    means = {}
    for name, given, against in (("over_compiled", counted, ("compiled",)),
                                 ("over_compiled_first", first, ("compiled",)),
                                 ("over_better", counted, ("compiled", "reduce"))):
        ratios = [ratio(row, against) for row in given]
        means[name] = round(statistics.geometric_mean(ratios), 3) if ratios else None
    means["least_over_better"] = min(([round(ratio(row, ("compiled", "reduce")), 3), row["name"]] for row in counted),
                                     default=None)
    for figure in ("ready_s", "ready_cpu_s", "device_mib", "reserved_mib"):
        ratios = [row["sides"]["auto"][figure] / row["sides"]["reduce"][figure] for row in rows
                  if all(row["sides"][which].get(figure) for which in ("auto", "reduce")) and not row["errors"]]
        means[f"{figure}_of_reduce"] = round(statistics.geometric_mean(ratios), 3) if ratios else None
        means[f"{figure}_of_reduce_most"] = round(max(ratios), 3) if ratios else None
    return means


def in_order(rows):
    import compiled_loads
    names = list(compiled_loads.LOADS)
    return sorted(rows, key=lambda row: names.index(row["name"]))


def write(path, rows, **facts):
    rows = in_order(rows)
    written = path + ".part"
    with open(written, "w", encoding="utf-8") as file:
        json.dump({**facts, "geomeans": geomeans(rows), "result": rows}, file, indent=1)
        file.write("\n")
    os.replace(written, path)


def shown(row):
    times = " ".join(f"{which}={row[f'{which}_us']}" for which in ("eager", *SIDES))
    took = " ".join(f"{which}={facts.get('ready_s')}s,{facts.get('device_mib')}MiB,{facts.get('reserved_mib')}MiB"
                    for which, facts in row["sides"].items())
    counts = "" if row["counts"] else " NOT COUNTED"
    return f"{row['name']}: {times}{counts}; {took} {row['errors'] or ''}"


def merged(paths, out):
    rows, facts = {}, {"runs": []}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            run = json.load(file)
        rows.update({row["name"]: row for row in run["result"]})
        facts["runs"].append({key: value for key, value in run.items() if key not in ("result", "geomeans")})
    write(out, list(rows.values()), **facts)
    print(json.dumps(geomeans(list(rows.values())), indent=1))


def machine():
    import torch
    return {"torch": torch.__version__, "device": torch.cuda.get_device_name(), "cores": os.cpu_count()}


def chosen(options):
    import compiled_loads
    if options.names:
        return options.names.split(",")
    if options.half:
        first = [name for name in compiled_loads.LOADS if name not in SECOND]
        return list(SECOND) if options.half == 2 else sorted(first, key=lambda name: name not in LONG)
    return list(compiled_loads.LOADS)


def run_all(options):
    stage, rows, lock, begin = Stage(), [], threading.Lock(), time.monotonic()
    names, until = chosen(options), begin + (options.budget or 1e9)
    # In a process of its own, as this one needs no context on the device.
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        facts = {**pool.submit(machine).result(), "command": " ".join(sys.argv)}

    def keep(name):
        row = measured(stage, name, options, until)
        with lock:
            if row is not None:
                rows.append(row)
                print(f"{time.monotonic() - begin:.0f} s {shown(row)}", flush=True)
            write(options.out, rows, **facts, seconds=round(time.monotonic() - begin, 1),
                  left_out=[each for each in names if each not in {row["name"] for row in rows}])

    with concurrent.futures.ThreadPoolExecutor(options.at_once) as threads:
        for done in [threads.submit(keep, name) for name in names]:
            done.result()
    print(json.dumps(geomeans(rows), indent=1))
    return 0 if len(rows) == len(names) else 1


# The first half begins with those that take longest to compile.
LONG = ("reformer", "bigbird", "gpt2_large", "densenet", "blenderbot_t", "xlnet")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2].partition("\n\n")[0])
    parser.add_argument("--serve", nargs=2)
    parser.add_argument("--out")
    parser.add_argument("--merge", nargs="+")
    parser.add_argument("--names")
    parser.add_argument("--half", type=int, choices=(1, 2))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--budget", type=float)
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--auto", choices=("both", "pieces", "whole"), default="both")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--shapes", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.serve:
        return serve(*options.serve, options)
    import compiled_loads
    if options.list or not options.out:
        print("\n".join(compiled_loads.LOADS))
        return 0 if options.list else 2
    if options.merge:
        return merged(options.merge, options.out)
    return run_all(options)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.exit(main())
