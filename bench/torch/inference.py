# SPDX-License-Identifier: MIT
"""A call of a model with other tensors each time: what it costs, and how long it takes to be ready.

mlp is so small that only the host's time counts; bert and vit keep the device busy.
"""

import time

import common
import sides as ways

ALL = ["eager", "graph", "reduce-overhead", "reprise", "reprise-install", "reprise-install-frozen",
       "reprise-install-compiled"]
SIDES = {"mlp": ["eager", "graph", "callables", *ALL[2:]], "bert": ALL, "vit": ALL}
FRESH = False
IMPORTS = ("transformers:BertModel", "timm")
COLUMNS = (("host_us", "host us", 2), ("wall_us", "until done us", 1),
           ("throughput_us", "back to back us", 1), ("bare.host_us", "bare replay", 2),
           ("ready_s", "ready s", 3), ("pool_mib", "pool MiB", 2), ("bound_mib", "bound", 2),
           ("device_mib", "device MiB", 1))
LIMITS = {"pool_mib": "bound_mib", "host_us": "bare.host_us", "wall_us": "bare.wall_us"}


def prepare(torch, side, workload):
    import workloads
    torch.manual_seed(0)
    net, inputs = workloads.INFERENCE[workload]()
    net.requires_grad_(False)
    with torch.no_grad():
        return ready(torch, side, net, inputs)


def ready(torch, side, net, inputs):
    """Facts of a function made ready, and a function that measures it."""
    want = [net(*args) for args in inputs[:2]]  # all that is made lazily exists from here on
    before = common.free_bytes(torch)
    start = time.perf_counter()
    made = ways.make(torch, side, net, inputs)
    facts = {"ready_s": round(time.perf_counter() - start, 4)}
    got = [made.call(*args).clone() for args in inputs[:2]]
    facts.update(common.compared(torch, got, want))
    del got, want
    if not side.compiled:  # others compile at the same time
        facts["device_mib"] = common.mib(before - common.free_bytes(torch))
    facts.update(made.facts())
    if side.is_ours and not side.compiled:
        facts.update(ways.estimated(net, inputs[:1]))

    def measure():
        with torch.no_grad():
            return measured(torch, made, common.turns(inputs))
    return facts, measure


def measured(torch, made, following):
    facts = common.timed_for(torch, lambda: made.call(*following()), seconds=0.25)
    if made.bare is not None:
        def bare():
            following()  # as around the calls
            made.bare()
        facts["bare"] = common.timed_for(torch, bare, seconds=0.15)
    return facts
