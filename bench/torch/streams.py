# SPDX-License-Identifier: MIT
"""Captures on several streams with record_stream: the memory that each allocator takes.

The programs of `reprise bench sweep`, number by number, written with tensors: a step picks a stream;
with p_free a random tensor that is alive is dropped, with p_join the stream waits for another,
otherwise it makes a tensor of 1, 3, 5, 8 or 16 MiB and fills it, and another stream waits for it and
reads it, which record_stream tells the allocator. At the end all is dropped and joined.
"""

import time

import common
import sides as ways

STREAMS = (2, 4, 8)
STEPS = (500, 10000)
PAIRS = ((0.40, 0.10), (0.45, 0.30), (0.30, 0.20), (0.42, 0.20))
SEED = 1
BYTES = tuple(n << 20 for n in (1, 3, 5, 8, 16))

ALL = ["graph", "graph-reuse", "graph-expandable", "graph-reuse-expandable", "reprise-install-graph",
       "reprise-install"]
SIDES = {f"{steps} steps": ALL for steps in STEPS}
FRESH = True
MOST_ROUNDS = 1  # the programs and their memory are the same every time
IMPORTS = ()
COLUMNS = (("total.pool_mib", "all pools MiB", 0), ("total.bound_mib", "bound", 0),
           ("total.capture_s", "captures s", 2),
           *((f"s8 {f:.2f} {j:.2f}.pool_mib", f"8 streams {f:.2f} {j:.2f}", 0) for f, j in PAIRS))
LIMITS = {"total.pool_mib": "total.bound_mib"}


class Random:
    """Steele, Lea and Flood's SplitMix64."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = z = (self.state + 0x9e3779b97f4a7c15) & 0xffffffffffffffff
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & 0xffffffffffffffff
        z = (z ^ z >> 27) * 0x94d049bb133111eb & 0xffffffffffffffff
        return z ^ z >> 31

    def below(self, count):
        return (self.next() >> 32) * count >> 32

    def uniform(self):
        return (self.next() >> 11) * 2.0 ** -53

    def another(self, count, one):
        other = self.below(count - 1)
        return other + (other >= one)


def program(streams, steps, p_free, p_join, seed):
    """The steps: ("free", which of those alive), ("join", waiter, other) or
    ("make", writer, bytes, reader). Dropping moves the last one alive to its place."""
    random, alive = Random(seed), 0
    for _ in range(steps):
        stream = random.below(streams)
        what = random.uniform()
        if what < p_free:
            if alive:
                yield ("free", random.below(alive))
                alive -= 1
        elif what < p_free + p_join:
            yield ("join", stream, random.another(streams, stream))
        else:
            size = BYTES[random.below(len(BYTES))]
            yield ("make", stream, size, random.another(streams, stream))
            alive += 1


class Player:
    """Runs programs on the current stream and others beside it."""

    def __init__(self, torch):
        self.torch = torch
        self.others = [torch.cuda.Stream() for _ in range(max(STREAMS) - 1)]
        self.events = [torch.cuda.Event() for _ in range(max(STREAMS))]
        self.sink = torch.empty(max(BYTES), dtype=torch.uint8, device="cuda")

    def join(self, streams, waiter, other):
        self.events[other].record(streams[other])
        streams[waiter].wait_event(self.events[other])

    def make(self, streams, writer, size, reader):
        torch = self.torch
        torch.cuda.set_stream(streams[writer])
        made = torch.empty(size, dtype=torch.uint8, device="cuda")
        made.zero_()
        self.join(streams, reader, writer)
        torch.cuda.set_stream(streams[reader])
        self.sink[:size].copy_(made)
        made.record_stream(streams[reader])
        return made

    def play(self, steps, count):
        torch = self.torch
        main = torch.cuda.current_stream()
        streams, alive = [main, *self.others[:count - 1]], []
        for stream in range(1, count):
            self.join(streams, stream, 0)
        for what, *rest in steps:
            if what == "free":
                alive[rest[0]] = alive[-1]
                alive.pop()
            elif what == "join":
                self.join(streams, *rest)
            else:
                alive.append(self.make(streams, *rest))
        while alive:
            alive.pop()
        for stream in range(1, count):
            self.join(streams, 0, stream)
        torch.cuda.set_stream(main)


def prepare(torch, side, workload):
    player = Player(torch)
    facts = {}
    for count in STREAMS:
        for p_free, p_join in PAIRS:
            steps = list(program(count, int(workload.split()[0]), p_free, p_join, SEED))

            def work(steps=steps, count=count):
                player.play(steps, count)

            found = facts[f"s{count} {p_free:.2f} {p_join:.2f}"] = one(torch, side, work)
            # The long ones would take long to rehearse once more.
            if side.name == "reprise-install" and len(steps) <= min(STEPS):
                found.update(ways.estimated(work, [()]))
            common.free_bytes(torch)
    totals = {key: round(sum(f[key] for f in facts.values()), 3)
              for key in ("pool_mib", "bound_mib", "mapped_mib", "capture_s")
              if all(key in f for f in facts.values())}
    return {"total": totals, **facts}, None


def one(torch, side, work):
    """One program captured and replayed once: its pool, and how long that took."""
    start = time.perf_counter()
    if side.way == "graph" and side.is_ours:
        import reprise
        pool, graph = reprise.Pool(name="streams"), torch.cuda.CUDAGraph()
        with reprise.graph(graph, pool=pool):
            work()
        graph.replay()
        facts = ways.pool_facts(pool)
    elif side.is_ours:
        import reprise
        made = reprise.graphed(work, warmup=0, strict=True)
        made()
        facts = ways.pool_of_graphed(made)
    else:
        graph, _ = common.capture(torch, work, warmup=0)
        graph.replay()
        facts = ways.pool_of_graph(torch, graph)
    torch.cuda.synchronize()
    facts["capture_s"] = round(time.perf_counter() - start, 4)
    return facts
