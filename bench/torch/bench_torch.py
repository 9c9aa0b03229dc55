#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reprise beside PyTorch's own ways to graphs, on the same work.

usage: bench_torch.py WORKLOAD [--rounds N] [--sides A,B] [--json]
       bench_torch.py WORKLOAD --side SIDE      one side, in this process; prints JSON

Workloads: forum (one MLP at many batch sizes: memory), inference (latency of a call with new
tensors), training (a step, and the losses of 200 of them), eager (training without graphs).
Each side runs in a process of its own, sides in turn in every round; shown are medians over rounds.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import time

from common import MIB, capture, median, timed, turns

SIDES = {
    "forum": ["graph", "graph-expandable", "reprise", "reprise-install"],
    "inference": ["eager", "graph", "reprise", "reprise-install", "reprise-install-frozen",
                  "reduce-overhead",
                  "reprise-install-compiled"],
    "training": ["eager", "graph", "callables", "reprise-whole", "reprise-split",
                 "reprise-install-whole", "reprise-install-split"],
    "eager": ["pytorch", "reprise-install"],
}


# ---- Many batch sizes -----------------------------------------------------------------------


def forum(torch, side):
    import workloads
    net, make = workloads.forum_mlp()
    with torch.no_grad():
        for _ in range(3):
            net(make(512))
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        sizes = list(range(512, 0, -1))
        result = {}
        before = torch.cuda.mem_get_info()[0]
        start = time.perf_counter()
        kept, check = [], {}
        static = make(sizes[0])  # the other way's input buffer, for all sizes
        if side.startswith("reprise"):
            import reprise
            made = reprise.graphed(net, warmup=0, strict=True)
        else:
            pool = torch.cuda.graph_pool_handle()
        for done, size in enumerate(sizes, 1):
            x = make(size)
            if side.startswith("reprise"):
                out = made(x)
            else:
                buffer = static[:size]
                graph, out = capture(torch, functools.partial(net, buffer), pool)
                buffer.copy_(x)
                graph.replay()
                kept.append((graph, out))
            if done % 64 == 1:
                check[size] = torch.equal(out, net(x))
            del x, out
            if done in (1, 128, 512):
                torch.cuda.synchronize()
                elapsed = time.perf_counter() - start
                torch.cuda.empty_cache()
                taken = before - torch.cuda.mem_get_info()[0]
                result[str(done)] = {"device_mib": round(taken / MIB, 1),
                                     "seconds": round(elapsed, 3)}
        result["equal"] = all(check.values())
        if side.startswith("reprise"):
            info = made.pool.info()
            result["pool_mib"] = round(info["planned_bytes"] / MIB, 2)
            result["bound_mib"] = round(info["lower_bound_bytes"] / MIB, 2)
            result["bound_exact"] = info["bound_exact"]
    return result


# ---- Inference ------------------------------------------------------------------------------


def inference(torch, side):
    import workloads
    result = {}
    for name, build in workloads.INFERENCE.items():
        torch.manual_seed(0)
        net, inputs = build()
        with torch.no_grad():
            result[name] = one_inference(torch, side, net, inputs)
        del net, inputs
        torch.cuda.empty_cache()
    return result


def one_inference(torch, side, net, inputs):
    want = [net(*args) for args in inputs[:2]]
    following, facts = turns(inputs), {}
    if side == "eager":
        call = net
    elif side == "graph":
        static = [x.clone() for x in inputs[0]]
        graph, out = capture(torch, lambda: net(*static))

        def call(*args):
            for to, of in zip(static, args):
                to.copy_(of)
            graph.replay()
            return out.clone()
        facts["bare"] = timed(torch, graph.replay, 300)
    elif side == "reduce-overhead":
        call = torch.compile(net, mode="reduce-overhead", dynamic=False)
    else:
        import reprise
        fn = torch.compile(net, dynamic=False) if side.endswith("compiled") else net
        call = reprise.graphed(fn, strict=True, frozen="frozen" in side)
    start = time.perf_counter()
    for _ in range(4):
        call(*following())
    torch.cuda.synchronize()
    facts["ready_s"] = round(time.perf_counter() - start, 3)
    got = [call(*args).clone() for args in inputs[:2]]
    facts["equal"] = all(torch.equal(a, b) for a, b in zip(got, want))
    facts["max_difference"] = max((a.float() - b.float()).abs().max().item()
                                  for a, b in zip(got, want))
    facts.update(timed(torch, lambda: call(*following()), 300))
    if side.startswith("reprise"):
        graph, = call.shapes()
        info = call.pool.info()
        facts.update(nodes=graph["nodes"], copied_args=graph["copied_args"],
                     diverged_blocks=graph["diverged_blocks"],
                     pool_mib=round(info["planned_bytes"] / MIB, 2),
                     bound_mib=round(info["lower_bound_bytes"] / MIB, 2))
    return facts


# ---- Training -------------------------------------------------------------------------------


def training(torch, side):
    import workloads
    result = {}
    for name, build in workloads.TRAINING.items():
        if side == "callables" and name != "mlp":
            continue  # its users would have to split these models by hand
        result[name] = one_training(torch, side, build)
        torch.cuda.empty_cache()
    return result


def one_training(torch, side, build, steps=200):
    torch.manual_seed(0)
    net, make_batch, loss_of = build()
    batches = [make_batch() for _ in range(8)]
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, capturable=True)
    forward = net

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(forward(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    call, made = step, None
    torch.manual_seed(1)
    if side.startswith("reprise"):
        import reprise
        if side.endswith("whole"):
            made = call = reprise.graphed(step, strict=True)
        else:
            made = forward = reprise.graphed(net, strict=True)
    elif side == "callables":
        forward = torch.cuda.make_graphed_callables(net, (batches[0][0],))
    elif side == "graph":
        call = graph_of_step(torch, step, batches[0])
    losses = []
    for i in range(steps):
        losses.append(call(*batches[i % 8]))
        if side == "graph":
            losses[-1] = losses[-1].clone()
    losses = torch.stack([loss.float() for loss in losses]).cpu().tolist()
    following = turns(batches)
    facts = timed(torch, lambda: call(*following()), 100)
    facts["losses"] = [losses[i] for i in (0, 9, 49, 99, 199) if i < steps]
    facts["loss_bits"] = hash(tuple(losses))
    if made is not None:
        info = made.pool.info()
        facts.update(pool_mib=round(info["planned_bytes"] / MIB, 2),
                     bound_mib=round(info["lower_bound_bytes"] / MIB, 2),
                     nodes=[s["nodes"] for s in made.shapes()],
                     copied_args=[s["copied_args"] for s in made.shapes()],
                     diverged_blocks=[s["diverged_blocks"] for s in made.shapes()])
    return facts


def graph_of_step(torch, step, batch):
    """A whole step as PyTorch's documentation captures it. Its warm-up moves the weights on, so that
    its losses are not those of the others."""
    x, y = (t.clone() for t in batch)
    graph, loss = capture(torch, lambda: step(x, y))

    def call(a, b):
        x.copy_(a)
        y.copy_(b)
        graph.replay()
        return loss
    return call


def eager(torch, side):
    """Training without graphs: the allocator alone."""
    import workloads
    del side
    result = {}
    for name in ("mlp", "resnet50", "gpt2"):
        torch.cuda.reset_peak_memory_stats()
        facts = one_training(torch, "eager", workloads.TRAINING[name], steps=50)
        facts["reserved_mib"] = round(torch.cuda.max_memory_reserved() / MIB, 1)
        facts["allocated_mib"] = round(torch.cuda.max_memory_allocated() / MIB, 1)
        del facts["losses"]
        result[name] = facts
        torch.cuda.empty_cache()
    return result


# ---- Both sides -----------------------------------------------------------------------------


def run_side(workload, side):
    import torch
    if "install" in side:
        import reprise
        reprise.install()
    torch.backends.cudnn.deterministic = True
    result = {"forum": forum, "inference": inference, "training": training,
              "eager": eager}[workload](torch, side)
    result["torch"] = torch.__version__
    print(json.dumps(result))


def in_process(workload, side):
    environment = dict(os.environ, PYTHONHASHSEED="0")
    if side == "graph-expandable":
        environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    done = subprocess.run([sys.executable, __file__, workload, "--side", side], env=environment,
                          capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return {"error": done.stderr.strip().splitlines()[-3:]}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("workload", choices=SIDES)
    parser.add_argument("--side")
    parser.add_argument("--sides")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.side:
        run_side(options.workload, options.side)
        return
    sides = options.sides.split(",") if options.sides else SIDES[options.workload]
    raw = {side: [] for side in sides}
    for _ in range(options.rounds):
        for side in sides:
            raw[side].append(in_process(options.workload, side))
            print(side, json.dumps(raw[side][-1]), file=sys.stderr, flush=True)
    good = {s: [r for r in runs if "error" not in r] or runs[:1] for s, runs in raw.items()}
    print(json.dumps({"workload": options.workload, "rounds": options.rounds,
                      "median": {s: median(runs) for s, runs in good.items()}, "raw": raw}))


if __name__ == "__main__":
    main()
