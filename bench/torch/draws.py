#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random numbers in graphs, next to PyTorch's own graph on the same PyTorch.

usage: draws.py [--install] [--rounds N]        prints one JSON object

    step      16 linear layers of width 512 with dropout, 64 rows, inference: a call with a new tensor.
              PyTorch's: a copy in, replay (which fills seed and offset by two launches), a clone out.
              Turns of 200 calls each way, side by side; medians of the host's time for a call, and of the
              time until the device is done
    memory    the same net at its largest size, and at 128 sizes: device memory of a process of its own,
              less what the net and the context take. Ours is to stay within 1.02 of the largest plus the
              budget for executable graphs
    train     100 steps of forward and backward with dropout by two graphs, next to
              torch.cuda.make_graphed_callables: losses of both next to eager's, to the bit
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

WIDTH, LAYERS, ROWS, CALLS, SIZES = 512, 16, 64, 200, 128


def net_of(torch):
    torch.manual_seed(0)
    layers = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Dropout(0.1)]
    return torch.nn.Sequential(*layers).cuda()


def pytorchs(torch, net, x):
    """A call by PyTorch's graph, as its documentation has it; captured on the current stream."""
    static = x.clone()
    for _ in range(3):
        net(static)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = net(static)

    def call(x):
        static.copy_(x)
        graph.replay()
        return out.clone()
    return call


def turn(torch, call, inputs):
    """Microseconds of a call: of the host, and until the device is done."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for i in range(CALLS):
        call(inputs[i % len(inputs)])
    host = time.perf_counter() - began
    torch.cuda.synchronize()
    return host / CALLS * 1e6, (time.perf_counter() - began) / CALLS * 1e6


def step(torch, reprise, rounds):
    net = net_of(torch)
    inputs = [torch.randn(ROWS, WIDTH, device="cuda") for _ in range(8)]
    with torch.no_grad():
        ways = {"pytorch": pytorchs(torch, net, inputs[0]), "reprise": reprise.graphed(net, strict=True)}
        for call in ways.values():
            for x in inputs:
                call(x)
        torch.cuda.synchronize()
        torch.manual_seed(7)
        want = [net(x) for x in inputs]
        equal = {}
        for name, call in ways.items():
            torch.manual_seed(7)
            equal[name] = all(torch.equal(call(x), y) for x, y in zip(inputs, want))
        shown = {name: [] for name in ways}
        for _ in range(rounds):
            for name, call in ways.items():
                shown[name].append(turn(torch, call, inputs))
    result = {name: {"host_us": statistics.median(t[0] for t in turns),
                     "done_us": statistics.median(t[1] for t in turns), "turns": turns,
                     "equal_to_eager": equal[name]} for name, turns in shown.items()}
    result["done_ratio"] = statistics.median(
        ours[1] / theirs[1] for ours, theirs in zip(shown["reprise"], shown["pytorch"]))
    result["host_ratio"] = statistics.median(
        ours[0] / theirs[0] for ours, theirs in zip(shown["reprise"], shown["pytorch"]))
    return result


def memory(torch, reprise, way, sizes):
    """Device memory that captures take, in MiB. way: whose."""
    net = net_of(torch)
    x = torch.randn(SIZES, WIDTH, device="cuda")
    with torch.no_grad():
        net(x)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.mem_get_info()[0]
        made = reprise.graphed(net, strict=True)
        kept, pool = [], torch.cuda.graph_pool_handle()
        for n in sorted(sizes, reverse=True):
            if way == "reprise":
                for _ in range(3):
                    made(x[:n].clone())
                continue
            static, graph = x[:n].clone(), torch.cuda.CUDAGraph()
            net(static)
            with torch.cuda.graph(graph, pool=pool):
                out = net(static)
            graph.replay()
            kept.append((static, graph, out))
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return (before - torch.cuda.mem_get_info()[0]) / (1 << 20)


def train(torch, reprise):
    def losses(wrap):
        net = net_of(torch)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        torch.manual_seed(3)
        data = [torch.randn(ROWS, WIDTH, device="cuda") for _ in range(8)]
        made = wrap(net, data[0])
        torch.manual_seed(4)
        shown = []
        for i in range(100):
            optimizer.zero_grad()
            loss = (made(data[i % 8]) - 1).square().mean()
            loss.backward()
            optimizer.step()
            shown.append(loss.item())
            del loss  # or its graph would tie gradients to the stream of the step before
        return shown
    eager = losses(lambda net, x: net)
    return {"reprise_equal": losses(lambda net, x: reprise.graphed(net, strict=True)) == eager,
            "make_graphed_callables_equal": losses(
                lambda net, x: torch.cuda.make_graphed_callables(net, (x,))) == eager}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--memory", nargs=2, metavar=("WAY", "SIZES"), help="what a process of its own runs")
    args = parser.parse_args()
    import torch
    import reprise
    if args.install:
        reprise.install()
    if args.memory:
        sizes = range(1, SIZES + 1) if args.memory[1] == "all" else [SIZES]
        print(json.dumps(memory(torch, reprise, args.memory[0], sizes)))
        return
    flags = ["--install"] if args.install else []
    taken = {}
    for way in ("pytorch", "reprise"):
        for sizes in ("largest", "all"):
            done = subprocess.run([sys.executable, __file__, *flags, "--memory", way, sizes],
                                  capture_output=True, text=True, check=True)
            taken[f"{way}_{sizes}_mib"] = json.loads(done.stdout)
    print(json.dumps({"torch": torch.__version__, "install": args.install,
                      "net": f"{LAYERS} linear layers of {WIDTH} with dropout, {ROWS} rows",
                      "step": step(torch, reprise, args.rounds), "memory": taken,
                      "exec_budget_mib": reprise.exec_info()["budget_bytes"] / (1 << 20),
                      "train": train(torch, reprise)}, indent=1))


if __name__ == "__main__":
    main()
