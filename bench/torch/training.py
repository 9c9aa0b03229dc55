# SPDX-License-Identifier: MIT
"""Training: 200 steps from one seed, their losses, and what a step costs.

The ways differ in what lies in graphs: the whole step with its optimizer ("graph", "whole"), the
model's forward and backward pass ("callables", "model"), or those of each of its layers
("callables-layers", "layers").
"""

import hashlib
import struct
import time

import common
import sides as ways

OURS = ["reprise-install-whole", "reprise-install-model"]
SIDES = {
    "mlp": ["eager", "graph", "callables", "callables-layers", "reprise-whole", "reprise-model",
            "reprise-layers", *OURS, "reprise-install-layers"],
    "resnet50": ["eager", "graph", "graph-reuse-expandable", "callables", *OURS],
    "gpt2": ["eager", "graph", "graph-reuse-expandable", "callables", "reprise-whole", *OURS],
}
FRESH = False
IMPORTS = ("transformers:GPT2LMHeadModel", "timm")
COLUMNS = (("wall_us", "step us", 1), ("host_us", "host us", 1), ("ready_s", "ready s", 3),
           ("pool_mib", "pool MiB", 1), ("bound_mib", "bound", 1), ("device_mib", "device MiB", 1),
           ("loss_bits", "losses", 0))
LIMITS = {"pool_mib": "bound_mib"}

STEPS = 200
BATCHES = 8


class Job:
    """A model, its batches and its optimizer, the same in all processes."""

    def __init__(self, torch, workload):
        import workloads
        torch.manual_seed(0)
        self.torch = torch
        self.net, make_batch, self.loss_of = workloads.TRAINING[workload]()
        self.batches = [make_batch() for _ in range(BATCHES)]
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-4, capturable=True)
        self.forward = self.net  # may be a graph of it
        self.started = {k: v.clone() for k, v in self.net.state_dict().items()}

    def step(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(self.forward(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def layers(self):
        """The layers of a Sequential, two modules each, and the arguments of each."""
        parts = list(self.net)
        layers = [self.torch.nn.Sequential(*parts[i:i + 2]) for i in range(0, len(parts), 2)]
        samples, x = [], self.batches[0][0]
        for layer in layers:
            samples.append((x,))
            x = layer(x).detach().requires_grad_()
        return tuple(layers), tuple(samples)

    def start_again(self):
        """Undoes what warm-ups trained, in place, as graphs know the addresses."""
        with self.torch.no_grad():
            for name, now in self.net.state_dict().items():
                now.copy_(self.started[name])
            for state in self.optimizer.state.values():
                for kept in state.values():
                    kept.zero_()


def prepare(torch, side, workload):
    return train(torch, side, Job(torch, workload))


def train(torch, side, job):
    """The job's steps, the way of a side: what prepare gives."""
    before = common.free_bytes(torch)
    start = time.perf_counter()
    call, pool = make(torch, side, job)
    job.start_again()
    torch.manual_seed(1)
    losses = []
    for number in range(STEPS):
        losses.append(call(*job.batches[number % BATCHES]).clone())
        if number == 1:
            torch.cuda.synchronize()
            ready = time.perf_counter() - start
    losses = torch.stack([loss.float() for loss in losses]).cpu().tolist()
    facts = {"ready_s": round(ready, 4), "loss_bits": bits(losses),
             "losses": losses[9::10],
             "device_mib": common.mib(before - common.free_bytes(torch)), **pool()}

    def measure():
        following = common.turns(job.batches)
        return common.timed_for(torch, lambda: call(*following()), seconds=0.2)
    return facts, measure


def make(torch, side, job):
    """A step, the way of a side, and a function that tells of its pool."""
    if side.name == "eager":
        return job.step, dict
    if side.is_ours:
        return ours(side, job)
    pool = torch.cuda.graph_pool_handle()

    def facts():
        return {"pool_mib": common.mib(ways.pool_bytes(torch, pool))}

    if side.name.startswith("graph"):
        return graph_of_step(torch, job, pool), facts
    if side.name == "callables":
        job.forward = torch.cuda.make_graphed_callables(job.net, job.batches[0][:1], pool=pool)
    else:
        layers, samples = job.layers()
        made = torch.cuda.make_graphed_callables(layers, samples, pool=pool)
        job.forward = torch.nn.Sequential(*made)
    return job.step, facts


def ours(side, job):
    import reprise
    if side.way == "layers":
        pool = reprise.Pool("sequence", name="layers")
        layers, samples = job.layers()
        made = reprise.make_graphed_callables(layers, samples, pool=pool)
        job.forward = job.torch.nn.Sequential(*made)
        return job.step, lambda: ways.pool_facts(pool)
    if side.way == "micro":
        call, made = job.by_graphs(reprise)
    elif side.way == "whole":
        call = made = reprise.graphed(job.step, strict=True, watch=(job.net,))
    else:
        job.forward = made = reprise.graphed(job.net, strict=True)
        call = job.step
    return call, lambda: ways.pool_of_graphed(made)


def graph_of_step(torch, job, pool):
    """A whole step as PyTorch's documentation captures it."""
    x, y = (t.clone() for t in job.batches[0])
    graph, loss = common.capture(torch, lambda: job.step(x, y), pool)

    def call(a, b):
        x.copy_(a)
        y.copy_(b)
        graph.replay()
        return loss
    return call


def bits(values):
    """A name for a list of 32-bit floats, the same where all their bits are."""
    return hashlib.sha256(struct.pack(f"{len(values)}f", *values)).hexdigest()[:16]
