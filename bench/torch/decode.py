# SPDX-License-Identifier: MIT
"""A Llama's step by one token with a static cache, captured at every batch size from 64 down to 1.

As serving does it: one callable, one cache, the graphs of all batch sizes in one pool.
"""

import functools
import time

import common
import sides as ways

SIDES = {"llama": ["eager", "graph", "graph-reuse-expandable", "reprise", "reprise-install",
                   "reprise-install-tuned"]}
FRESH = False
TURNS = 2  # short ones, side by side: the device changes its pace
IMPORTS = ("transformers:LlamaForCausalLM",)
COLUMNS = (("ready_s", "ready s", 2), ("device_mib", "device MiB", 1), ("pool_mib", "pool MiB", 2),
           ("bound_mib", "bound", 2), ("b1.host_us", "b1 host us", 1),
           ("b1.wall_us", "b1 until done", 1), ("b1.bare.wall_us", "bare replay", 1),
           ("b64.host_us", "b64 host us", 1), ("b64.wall_us", "b64 until done", 1),
           ("b64.bare.wall_us", "bare replay", 1))
LIMITS = {"pool_mib": "bound_mib", "b1.host_us": "b1.bare.host_us",
          "b1.wall_us": "b1.bare.wall_us", "b64.wall_us": "b64.bare.wall_us"}

MOST = 64
LOOKED_AT = (1, 16, 64)
WARM_S = 0.2  # calls of each, before anything is measured


def prepare(torch, side, workload):
    import workloads
    del workload
    torch.manual_seed(0)
    decoder = workloads.Decoder(MOST)
    decoder.step.requires_grad_(False)
    with torch.no_grad():
        inputs = {rows: [decoder.arguments(rows, 100 + i) for i in range(8)] for rows in LOOKED_AT}
        want = {rows: decoder.step(*given[0]) for rows, given in inputs.items()}
        before = common.free_bytes(torch)
        start = time.perf_counter()
        calls = made_ready(torch, side, decoder, sizes_of(side))
        torch.cuda.synchronize()
        elapsed = round(time.perf_counter() - start, 3)
        got = {rows: calls.call(*given[0]) for rows, given in inputs.items()}
        facts = common.compared(torch, got.values(), want.values())
        del got, want
        if not side.tuned:
            facts.update(ready_s=elapsed, device_mib=common.mib(before - common.free_bytes(torch)),
                         **calls.facts())
        if side.is_ours and not side.tuned:
            facts.update(ways.estimated(decoder.step, [decoder.arguments(rows)
                                                       for rows in range(MOST, 0, -1)]))

        for rows, given in inputs.items():  # execs that are bought after some calls are there then
            common.call_for(torch, calls.call, given, WARM_S)

    def measure():
        with torch.no_grad():
            return {f"b{rows}": measured(torch, calls, rows, common.turns(given))
                    for rows, given in inputs.items()}
    return facts, measure


def measured(torch, calls, rows, following):
    facts = common.timed_for(torch, lambda: calls.call(*following()), seconds=0.1)
    bare = calls.bare(rows)
    if bare is not None:
        facts["bare"] = common.timed_for(torch, bare, seconds=0.05)
    return facts


def sizes_of(side):
    """All batch sizes, largest first; of a side that is only there for its calls those that are
    looked at."""
    return sorted(LOOKED_AT, reverse=True) if side.tuned else range(MOST, 0, -1)


def made_ready(torch, side, decoder, sizes):
    """The step at these batch sizes."""
    if side.name == "eager":
        return Eager(decoder)
    if side.is_ours:
        return Ours(torch, side, decoder, sizes)
    return Graphs(torch, decoder, sizes, beside=side.name != "graph-current")


class Eager:
    def __init__(self, decoder):
        self.call = decoder.step

    def bare(self, rows):
        del rows

    def facts(self):
        return {}


class Ours(Eager):
    def __init__(self, torch, side, decoder, sizes):
        import reprise
        self.call = reprise.graphed(decoder.step, strict=True)
        self.call(*decoder.arguments(MOST))  # the warm-up that runs eagerly
        for rows in sizes:
            self.call(*decoder.arguments(rows))
            if side.tuned:
                self.call.tune(*decoder.arguments(rows))
        torch.cuda.synchronize()

    def facts(self):
        return ways.pool_of_graphed(self.call)


class Graphs(Eager):
    """PyTorch's, inputs copied in and results cloned."""

    def __init__(self, torch, decoder, sizes, beside=True):
        self.torch = torch
        self.pool = torch.cuda.graph_pool_handle()
        ids, self.position = decoder.arguments(MOST)
        self.kept = {}
        for rows in sizes:
            step = functools.partial(decoder.step, ids[:rows], self.position)
            self.kept[rows] = (*common.capture(torch, step, self.pool, beside=beside), ids[:rows])

    def call(self, ids, position):
        graph, out, static = self.kept[ids.shape[0]]
        static.copy_(ids)
        self.position.copy_(position)
        graph.replay()
        return out.clone()

    def bare(self, rows):
        return self.kept[rows][0].replay

    def facts(self):
        return {"graphs": len(self.kept),
                "pool_mib": common.mib(ways.pool_bytes(self.torch, self.pool))}
