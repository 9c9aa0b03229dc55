# SPDX-License-Identifier: MIT
"""The ways to run the same work that are compared, each in a process of its own.

A side is PyTorch or Reprise, with what has to be set before CUDA is used: PyTorch's allocator
configuration, or reprise.install(). Names say it: those of Reprise begin with "reprise".
"""

import functools
import os

import common

REUSE = "graph_capture_record_stream_reuse:True"
EXPANDABLE = "expandable_segments:True"


class Side:
    """allocator: for PYTORCH_ALLOC_CONF. install: is reprise.install() called? rounds: how many
    rounds it takes part in, None for all: what memory it takes is the same in each. budget: device
    memory for executable graphs in bytes, None for the default of 64 MiB."""

    def __init__(self, name, *, allocator="", install=False, frozen=False, tuned=False, compiled=False,
                 rounds=None, budget=None):
        self.name = name
        self.allocator = allocator
        self.install = install
        self.frozen = frozen
        self.tuned = tuned
        self.compiled = compiled
        self.rounds = rounds
        self.budget = budget
        self.way = name.removeprefix("reprise-install").removeprefix("reprise").strip("-")

    @property
    def is_ours(self):
        return self.name.startswith("reprise")

    @property
    def budget_mib(self):
        """Most device memory for executable graphs. One is made whatever the budget is, and takes
        less than a page of 2 MiB."""
        return 64 if self.budget is None else max(2, self.budget / common.MIB)

    def enter(self):
        """Sets this process up. Before CUDA is used."""
        if self.allocator:
            os.environ["PYTORCH_ALLOC_CONF"] = self.allocator
        import torch
        if self.install:
            import reprise
            reprise.install()
            if self.budget is not None:
                reprise.set_exec_budget(self.budget)
        torch.backends.cudnn.deterministic = True
        torch.set_num_threads(1)
        return torch


SIDES = {side.name: side for side in (
    Side("eager"),
    Side("graph-current"),
    Side("reprise-eager", install=True),
    Side("graph"),
    Side("graph-reuse", allocator=REUSE, rounds=1),
    Side("graph-expandable", allocator=EXPANDABLE, rounds=1),
    Side("graph-reuse-expandable", allocator=f"{REUSE},{EXPANDABLE}"),
    Side("callables"),
    Side("callables-layers"),
    Side("reduce-overhead", compiled=True),
    Side("compiled", compiled=True),
    Side("reprise"),
    Side("reprise-install", install=True),
    Side("reprise-install-one-exec", install=True, budget=1),
    Side("reprise-install-graph", install=True),
    Side("interleaved"),  # several in one process: see policy.py
    Side("interleaved-compiled", compiled=True),
    Side("reprise-install-frozen", install=True, frozen=True),
    Side("reprise-install-tuned", install=True, tuned=True),
    Side("reprise-install-compiled", install=True, compiled=True),
    Side("reprise-whole"),
    Side("reprise-model"),
    Side("reprise-layers"),
    Side("reprise-micro"),
    Side("reprise-install-whole", install=True),
    Side("reprise-install-model", install=True),
    Side("reprise-install-layers", install=True),
    Side("reprise-install-micro", install=True),
)}


# ---- A function, the way of a side ----------------------------------------------------------


class Made:
    """A function made ready: call it with any tensors. bare: PyTorch's replay alone, where there is
    one. facts(): what is known of its memory."""

    def __init__(self, call, bare=None, facts=dict):
        self.call = call
        self.bare = bare
        self.facts = facts


def make(torch, side, fn, samples, pool=None):
    """fn, a function of tensors without gradients, as this side runs it; until a graph is replayed
    where there are graphs. samples: sets of arguments. pool: to share with what was made before."""
    if side.name == "eager":
        made = Made(fn)
        warmup = 1
    elif side.name.startswith("graph"):
        call, graph = common.with_copies(torch, fn, samples[0], pool)
        made = Made(call, graph.replay, functools.partial(pool_of_graph, torch, graph))
        warmup = 1
    elif side.name == "callables":
        made = Made(torch.cuda.make_graphed_callables(fn, samples[0]))
        warmup = 1
    elif side.name == "reduce-overhead":
        made = Made(torch.compile(fn, mode="reduce-overhead", dynamic=False))
        warmup = 3  # compiles, records, replays
    else:
        import reprise
        inner = torch.compile(fn, dynamic=False) if side.compiled else fn
        graphed = reprise.graphed(inner, strict=True, frozen=side.frozen)
        # Behind a module, whose own `pool` may be another thing.
        made = Made(graphed, None, functools.partial(pool_of_graphed, reprise.graphed_of(graphed) or graphed))
        warmup = 2  # eager once, then captured and replayed
    for args in samples[:warmup]:
        made.call(*args)
    torch.cuda.synchronize()
    return made


def pool_of_graph(torch, graph):
    return {"pool_mib": common.mib(pool_bytes(torch, graph.pool()))}


def pool_bytes(torch, pool):
    """What PyTorch's allocator holds for the pool of a graph, given to tensors or not."""
    return sum(segment["total_size"] for segment in torch.cuda.memory_snapshot()
               if tuple(segment["segment_pool_id"]) == tuple(pool))


def pool_of_graphed(graphed):
    """Facts of a callable that reprise.graphed or a reprise.Pool's captures made."""
    shapes = graphed.shapes()
    facts = pool_facts(graphed.pool)
    facts.update(
        graphs=len(shapes), nodes=max(s["nodes"] for s in shapes),
        copied_args=sum(s["copied_args"] for s in shapes),
        diverged_blocks=sum(s["diverged_blocks"] for s in shapes),
        capture_ms={k: round(sum(s[k + "_ms"] for s in shapes), 2)
                    for k in ("rehearse", "plan", "record", "instantiate")})
    return facts


def pool_facts(pool):
    info = pool.info()
    return {"pool_mib": common.mib(info["planned_bytes"]),
            "mapped_mib": common.mib(info["mapped_bytes"]),
            "bound_mib": common.mib(info["lower_bound_bytes"]), "bound_exact": info["bound_exact"],
            "rehearsal_mib": common.mib(info["rehearsal_bytes"])}


def estimated(fn, shapes):
    """What reprise.estimate foresees, where this reprise has it; why not, where it fails: the rest
    of what the side measures is not lost by that."""
    import reprise
    estimate = getattr(reprise, "estimate", None)
    if estimate is None:
        return {}
    try:
        found = estimate(fn, shapes)
    except Exception as error:
        return {"estimate_error": f"{type(error).__name__}: {error}"}
    if found.failures:
        return {"estimate_error": " of ".join(reversed(found.failures[0]))}
    return {"estimate_mib": common.mib(found.planned_bytes)}
