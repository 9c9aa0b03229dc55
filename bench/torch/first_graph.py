#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the first graph of a process takes: the time until its first replay is done, and device memory.

usage: first_graph.py [--rounds N] [--models NAME ...] [--install]

Each round is a process of its own for each side, forked with the libraries imported and CUDA untouched, as whoever
captures first pays for what the driver and PyTorch make once: kernels that are loaded when they are first used,
PyTorch's pool of 128 streams, cuBLAS's workspaces. The net is called eagerly four times before. Prints JSON,
medians of the rounds:

    ours      reprise.graphed: two calls, of which the second captures and replays
    theirs    torch.cuda.graph: inputs cloned, three calls on a side stream, the capture, a replay with a copy in and a
              clone out
    again     the same once more in that process, for a second callable of the same net

Times are milliseconds with the device waited for, memory is MiB that the device had free before and has not behind.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch

import reprise
from common import capture

BATCH, LENGTH, VOCABULARY = 2, 64, 8192


def mlp():
    net = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(6)])
    return net.cuda().eval(), lambda: torch.randn(64, 1024, device="cuda")


def ids():
    return torch.randint(0, 1000, (BATCH, LENGTH), device="cuda")


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    net = GPT2LMHeadModel(GPT2Config(n_layer=8, n_head=8, n_embd=512, vocab_size=VOCABULARY, n_positions=128,
                                     bos_token_id=0, eos_token_id=0)).cuda().eval()
    return (lambda x: net(x, use_cache=False).logits), ids


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    net = LlamaForCausalLM(LlamaConfig(hidden_size=512, intermediate_size=1024, num_hidden_layers=8,
                                       num_attention_heads=8, num_key_value_heads=4,
                                       vocab_size=VOCABULARY)).cuda().eval()
    return (lambda x: net(x, use_cache=False).logits), ids


def bert():
    from transformers import BertConfig, BertModel
    net = BertModel(BertConfig(hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048,
                               vocab_size=VOCABULARY)).cuda().eval()
    return (lambda x: net(x).last_hidden_state), lambda: torch.randint(0, 1000, (8, 128), device="cuda")


def resnet50():
    import torchvision
    return torchvision.models.resnet50().cuda().eval(), lambda: torch.randn(8, 3, 224, 224, device="cuda")


MODELS = {"mlp": mlp, "gpt2": gpt2, "llama": llama, "bert": bert, "resnet50": resnet50}


def now():
    torch.cuda.synchronize()
    return time.perf_counter()


def ours(fn, inputs):
    made = reprise.graphed(fn)
    made(inputs[0])
    made(inputs[1])
    return made


def theirs(fn, inputs):
    static = inputs[0].clone()
    graph, out = capture(torch, lambda: fn(static))
    static.copy_(inputs[1])
    graph.replay()
    return graph, out, out.clone()


def taken(side, fn, inputs):
    """(milliseconds, MiB), and what was made."""
    free, start = torch.cuda.mem_get_info()[0], now()
    made = side(fn, inputs)
    ms = (now() - start) * 1000
    return {"ms": ms, "mib": (free - torch.cuda.mem_get_info()[0]) / (1 << 20)}, made


def measured(name, side, install):
    if install:
        reprise.install()
    with torch.no_grad():
        fn, make = MODELS[name]()
        inputs = [make() for _ in range(2)]
        for _ in range(4):
            fn(inputs[0])
        first, kept = taken(side, fn, inputs)
        again, kept_too = taken(side, fn, inputs)
        del kept, kept_too
    return {"first": first, "again": again}


def apart(call, *args):
    """What the call returns in a forked process; exits where that fails."""
    reader, writer = os.pipe()
    if not (pid := os.fork()):
        os.close(reader)
        status = 1
        try:
            os.write(writer, json.dumps(call(*args)).encode())
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as told:
        text = told.read()
    if os.waitpid(pid, 0)[1]:
        sys.exit(f"first_graph: {args[0]} ended with an error")
    return json.loads(text)


def medians(rounds):
    return {which: {unit: round(statistics.median(one[which][unit] for one in rounds), 2) for unit in ("ms", "mib")}
            for which in ("first", "again")}


def measure(name, rounds, install):
    sides = {"ours": ours, "theirs": theirs}
    found = {side: [] for side in sides}
    for turn in range(rounds):
        for side in sorted(sides, reverse=turn % 2 == 1):
            found[side].append(apart(measured, name, sides[side], install and side == "ours"))
    made = {side: medians(some) for side, some in found.items()}
    mine, its = made["ours"]["first"], made["theirs"]["first"]
    return {"model": name, **made, "ready_over_torch": round(mine["ms"] / its["ms"], 3),
            "memory_over_torch": round(mine["mib"] / its["mib"], 3) if its["mib"] else None, "rounds": found}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    given = parser.parse_args()
    import transformers.models  # noqa: F401, ahead of the forks
    rows = [measure(name, given.rounds, given.install) for name in given.models]
    json.dump({"python": sys.version.split()[0], "torch": torch.__version__, "install": given.install, "rows": rows},
              sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
