#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Host time of a graphed decoder's call that returns its cache, next to PyTorch's graph with a copy in and clones
out, and where it goes.

usage: decoders.py [--calls N] [--rounds N] [--install] [--layers N ...] [--models NAME ...]

Narrow models of transformers with random weights and the default cache, which each call makes anew: two tensors a
layer. Prints JSON, microseconds of the host behind a wait for the device, of all calls the quarter that took
least:

    ours, theirs            a call: a graphed module; torch.cuda.graph, a copy in, clones of all that it returns
    ours_eager, ..          the same, with an eager call of the net ahead of each: caches of the processor are cold
    theirs_ahead            a copy in and the launch, of theirs
    guard, guard_cold       is all as it was? Cold: behind writing over 64 MiB
    tensors                 making the results
    launch                  the graph's launch, by Python
    build                   putting the result together, behind the launch

What is ahead of the launch counts in latency too, where the device waits for it: guard and tensors.
"""

import argparse
import ctypes
import json
import sys
import time

import torch

import reprise
from common import capture

COLD_BYTES = 64 << 20


def decoder(kind, config, layers, **options):
    import transformers
    made = getattr(transformers, config)(
        hidden_size=64, intermediate_size=128, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=1000, **options)
    return getattr(transformers, kind)(made).cuda().eval()


def mamba(layers):
    from transformers import MambaConfig, MambaForCausalLM
    return MambaForCausalLM(MambaConfig(hidden_size=64, num_hidden_layers=layers, vocab_size=1000)).cuda().eval()


MODELS = {
    "llama": lambda layers: decoder("LlamaForCausalLM", "LlamaConfig", layers),
    "mistral": lambda layers: decoder("MistralForCausalLM", "MistralConfig", layers, sliding_window=None),
    "qwen3": lambda layers: decoder("Qwen3ForCausalLM", "Qwen3Config", layers, head_dim=16),
    "mixtral": lambda layers: decoder("MixtralForCausalLM", "MixtralConfig", layers, num_local_experts=4,
                                      experts_implementation="batched_mm"),
    "qwen3_moe": lambda layers: decoder("Qwen3MoeForCausalLM", "Qwen3MoeConfig", layers, head_dim=16, num_experts=4,
                                        num_experts_per_tok=2, moe_intermediate_size=64,
                                        experts_implementation="batched_mm"),
    "mamba": mamba,
}


def cloned(value):
    """A result as a program would take it out of PyTorch's graph: new tensors, and new objects around them."""
    if isinstance(value, torch.Tensor):
        return value.clone() if value.is_cuda else value
    if isinstance(value, dict) and type(value) is not dict:
        return type(value)(**{key: cloned(part) for key, part in value.items()})
    if isinstance(value, (list, tuple)):
        return type(value)(map(cloned, value))
    if type(value).__module__.startswith("transformers."):
        made = object.__new__(type(value))
        vars(made).update({name: cloned(part) for name, part in vars(value).items()})
        return made
    return value


def pytorch(net, ids):
    static = ids.clone()
    graph, out = capture(torch, lambda: net(static))

    def ahead():
        static.copy_(ids)
        graph.replay()

    def call():
        ahead()
        return cloned(out)
    return call, ahead


class Clock:
    def __init__(self, calls):
        self.calls, self._room = calls, (ctypes.c_char * COLD_BYTES)()
        self._turn = 0

    def chill(self):
        self._turn += 1
        ctypes.memset(self._room, self._turn % 256, COLD_BYTES)

    def us(self, call, before=None, calls=None):
        found = []
        for _ in range(calls or self.calls):
            if before is not None:
                before()
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            made = call()
            found.append((time.perf_counter_ns() - start) / 1000)
            del made
        return sorted(found)[len(found) // 4]


def parts(clock, graphed, ids):
    """What a call on the fast path is made of."""
    shape, = graphed._shapes.values()
    taker, buffers = graphed._fast_path._taker, shape.enqueue([ids])
    places = [ids.data_ptr(), *(buffer.data_ptr() for buffer in buffers)]
    likes = [(tuple(buffer.shape), buffer.stride(), buffer.dtype) for buffer in buffers]
    empty, build = torch._C._dynamo.guards._empty_strided_cuda, shape.short([ids])[1]
    stream = torch.cuda.current_stream().cuda_stream
    return {"guard": clock.us(taker.is_guarded),
            "guard_cold": clock.us(taker.is_guarded, clock.chill, clock.calls // 8),
            "tensors": clock.us(lambda: [empty(*like) for like in likes]),
            "launch": clock.us(lambda: shape.graph.replay(stream, *places)),
            "build": clock.us(lambda: build(buffers))}


def measure(name, layers, calls, rounds):
    net = MODELS[name](layers)
    ids = torch.arange(16, device="cuda").view(1, 16)
    module, clock = reprise.graphed(net), Clock(calls)
    graphed = reprise.graphed_of(module)
    for _ in range(4):
        module(ids)
    theirs, ahead = pytorch(net, ids)
    sides, found = {"ours": lambda: module(ids), "theirs": theirs}, {}
    for turn in range(rounds):
        for side in sorted(sides, reverse=turn % 2 == 0):
            found.setdefault(side, []).append(clock.us(sides[side]))
            found.setdefault(f"{side}_eager", []).append(clock.us(sides[side], lambda: net(ids), calls // 8))
        found.setdefault("theirs_ahead", []).append(clock.us(ahead))
        for part, us in (parts(clock, graphed, ids) if len(graphed.shapes()) == 1 else {}).items():
            found.setdefault(part, []).append(us)
    return {"model": name, "layers": layers, "failures": graphed.failures(),
            "us": {what: round(min(some), 2) for what, some in found.items()},
            "ratio": round(min(found["ours"]) / min(found["theirs"]), 3),
            "ratio_eager": round(min(found["ours_eager"]) / min(found["theirs_eager"]), 3)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--layers", type=int, nargs="*", default=[4, 8])
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    given = parser.parse_args()
    if given.install:
        reprise.install()
    with torch.no_grad():
        rows = [measure(name, layers, given.calls, given.rounds) for name in given.models for layers in given.layers]
    json.dump({"python": sys.version.split()[0], "torch": torch.__version__, "device": torch.cuda.get_device_name(),
               "install": given.install, "rows": rows}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
