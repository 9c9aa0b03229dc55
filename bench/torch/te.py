#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""FP8 training of Transformer Engine's layers: its make_graphed_callables beside Reprise's.

usage: te.py OUT.json [--sets NAME,...] [--modes NAME,...] [--rounds N] [--budget S] [--limit S] [--tiny]
                      [--commit NAME]
       te.py --merge OUT.json FROM.json...

Sets, each of 6 layers of width 1024 with weights in bf16 and four microbatches in 1F1B, two of which are under way
at a time:

    delayed    FP8 with delayed scaling, weights cached between microbatches
    current    FP8 with current scaling, likewise
    bf16       without FP8

Modes:

    eager, eager-again   layers in te.autocast; the second tells whether eager repeats itself
    te                   te.make_graphed_callables, with buffers reused (_reuse_graph_input_output_buffers)
    te-own-buffers       the same without
    callables[-install]  reprise.make_graphed_callables with the same arguments
    whole[-install]      reprise.graphed of all passes of a step

Each mode of a set runs in a process of its own, in rounds whose order alternates. It trains some steps, begins
again, trains 20 steps whose losses are kept, and then takes times. OUT.json is written after each process. It has a
row for each set and mode, as megatron.py tells; `equal` holds scales and amax histories too.
"""

import contextlib
import functools
import os
import sys
import time

import modes

BASE = {"layers": 6, "hidden": 1024, "heads": 16, "sequence": 512, "batch": 2, "microbatches": 4, "recipe": None}
TINY = {"layers": 2, "hidden": 64, "heads": 4, "sequence": 16}
SETS = {name: {**BASE, "recipe": recipe} for name, recipe in (
    ("delayed", "delayed"), ("current", "current"), ("bf16", None))}
MODES = {name: ["eager", "eager-again", "te", "te-own-buffers", "callables", "callables-install", "whole",
                "whole-install"] for name in SETS}
ORDER = [1, 1, -1, 1, -1, 1, -1, -1]  # of the first of two stages
WARMUP, STEPS, BATCHES = 6, 20, 4


class Stand:
    """Layers, a head that makes losses of what they compute, an optimizer, and data."""

    def __init__(self, torch, size):
        import transformer_engine.pytorch as engine
        self.torch, self.size, self.engine = torch, size, engine
        self.graphs = dict  # tells of the graphs of ours
        torch.cuda.set_device(0)
        torch.manual_seed(1)
        self.recipe = recipe_of(size.recipe)
        self.layers = [engine.TransformerLayer(
            size.hidden, 4 * size.hidden, size.heads, hidden_dropout=0.0, attention_dropout=0.0,
            self_attn_mask_type="causal", params_dtype=torch.bfloat16, fuse_qkv_params=True, device="cuda",
            layer_number=i + 1) for i in range(size.layers)]
        self.head = torch.nn.Linear(size.hidden, 1, device="cuda", dtype=torch.bfloat16)
        self.named = {f"{i}.{name}": p for i, layer in enumerate([*self.layers, self.head])
                      for name, p in layer.named_parameters()}
        self.params = list(self.named.values())
        self.optimizer = torch.optim.AdamW(self.params, lr=1e-4, fused=True, capturable=True)
        self.began = [p.detach().clone() for p in self.params]
        self.data, self.turn = self.batches(), 0
        self.calls = [self.layer_calls(microbatch) for microbatch in range(size.microbatches)]
        self.passes = self.all_passes

    def batches(self):
        torch, size = self.torch, self.size
        make = torch.Generator().manual_seed(3)

        def numbers(width):
            return torch.randn(size.sequence, size.batch, width, generator=make).bfloat16().cuda()
        return [[(numbers(size.hidden), numbers(1)) for _ in range(size.microbatches)] for _ in range(BATCHES)]

    def layer_calls(self, microbatch):
        return [functools.partial(layer, is_first_microbatch=microbatch == 0) for layer in self.layers]

    def autocast(self):
        if self.recipe is None:
            return contextlib.nullcontext()
        return self.engine.autocast(enabled=True, recipe=self.recipe)

    def forward(self, microbatch, batch):
        hidden, target = batch
        with self.autocast():
            for call in self.calls[microbatch]:
                hidden = call(hidden)
        return self.torch.nn.functional.mse_loss(self.head(hidden).float(), target.float())

    def all_passes(self, batches):
        """Losses of the microbatches."""
        losses, ahead, back = [], 0, 0
        for number in ORDER:
            if number > 0:
                losses.append(self.forward(ahead, batches[ahead]))
                ahead += 1
            else:
                losses[back].backward()
                back += 1
        return [loss.detach() for loss in losses]

    def forward_and_backward(self):
        self.optimizer.zero_grad(set_to_none=False)
        batches = self.data[self.turn % len(self.data)]
        self.turn += 1
        return self.passes(batches)

    def step(self):
        losses = self.forward_and_backward()
        self.optimizer.step()
        return losses

    def scales(self):
        """Scales and amax histories, where a recipe keeps them."""
        found = []
        for module in (inner for layer in self.layers for inner in layer.modules()):
            for key in ("scaling_fwd", "scaling_bwd"):
                state = getattr(module, "fp8_meta", {}).get(key)
                found += [getattr(state, name) for name in ("scale", "amax_history")
                          if isinstance(getattr(state, name, None), self.torch.Tensor)]
        return found

    def start_again(self):
        torch = self.torch
        with torch.no_grad():
            torch._foreach_copy_(self.params, self.began)
            for state in self.optimizer.state.values():
                for kept in state.values():
                    kept.zero_()
            for scale in self.scales():
                scale.fill_(1.0 if scale.dim() == 1 else 0.0)
        self.turn = 0
        torch.manual_seed(5)


def recipe_of(name):
    from transformer_engine.common import recipe
    kinds = {"delayed": functools.partial(recipe.DelayedScaling, fp8_format=recipe.Format.HYBRID, amax_history_len=16,
                                          amax_compute_algo="max"),
             "current": functools.partial(recipe.Float8CurrentScaling, fp8_format=recipe.Format.HYBRID)}
    return kinds[name]() if name else None


# ---- Ways of making graphs ---------------------------------------------------------------------------------


def by_callables(make, stand, **more):
    """Transformer Engine's signature, which is ours too: a function for each sample, of chunk, microbatch, layer."""
    size, torch = stand.size, stand.torch
    samples = tuple((torch.randn(size.sequence, size.batch, size.hidden, dtype=torch.bfloat16, device="cuda",
                                 requires_grad=True),) for _ in range(size.layers * size.microbatches))
    is_low = stand.recipe is not None
    if is_low:
        more.update(enabled=True, recipe=stand.recipe, cache_quantized_params=True)
    made = make(tuple(stand.layers), samples, num_warmup_iters=3, allow_unused_input=True, _order=ORDER,
                _num_layers_per_chunk=[size.layers], **more)
    stand.calls = [[functools.partial(made[m * size.layers + i], **({"is_first_microbatch": m == 0} if is_low else {}))
                    for i in range(size.layers)] for m in range(size.microbatches)]


def by_engine(stand, reuses):
    by_callables(stand.engine.make_graphed_callables, stand, _reuse_graph_input_output_buffers=reuses)


def by_ours(stand):
    import reprise
    by_callables(reprise.make_graphed_callables, stand)


def by_whole(stand):
    import reprise
    made = reprise.graphed(stand.passes, strict=True, watch=[*stand.layers, stand.head], grad="whole")
    stand.passes = made

    def facts():
        shapes = made.shapes()
        return {"graphs": len(shapes), "replays": sum(shape["replays"] for shape in shapes)}
    stand.graphs = facts


WAYS = {"te": functools.partial(by_engine, reuses=True), "te-own-buffers": functools.partial(by_engine, reuses=False),
        "callables": by_ours, "callables-install": by_ours, "whole": by_whole, "whole-install": by_whole}


# ---- What is measured --------------------------------------------------------------------------------------


def measure(torch, mode, size, count):
    stand = Stand(torch, size)
    result = {"parameters": sum(p.numel() for p in stand.params), "start": modes.checksum(torch, stand.params)}
    stand.step()  # eager: Transformer Engine makes its scales in it
    torch.cuda.synchronize()
    began = time.perf_counter()
    WAYS.get(mode, lambda _: None)(stand)
    for _ in range(WARMUP):
        stand.step()
    torch.cuda.synchronize()
    result["ready_s"] = round(time.perf_counter() - began, 3)
    stand.start_again()
    losses = [loss.detach().clone() for _ in range(STEPS) for loss in stand.step()]
    result["losses"] = [loss.item().hex() for loss in losses]
    result["weights"] = modes.checksum(torch, [*stand.params, *stand.scales()])
    result.update(modes.memory(torch))
    result.update(modes.times(torch, stand.step, count))
    stand.start_again()
    waited = []
    for _ in range(STEPS):
        waited += [loss.detach().clone() for loss in stand.step()]
        torch.cuda.synchronize()
    result["waited"] = [loss.item().hex() for loss in waited]
    stand.start_again()
    stand.forward_and_backward()
    torch.cuda.synchronize()
    result["gradients"] = {name: modes.checksum(torch, [p.grad]) for name, p in stand.named.items()
                           if p.grad is not None}
    return {**result, **stand.graphs()}


def began(mode, torch):
    """Ahead of the first use of the GPU."""
    os.environ.setdefault("NVTE_FUSED_ATTN", "1")
    if mode.endswith("-install"):
        import reprise
        reprise.install()


VERSIONS = ("import importlib.metadata as m, json, sys, torch; print(json.dumps({'python': sys.version.split()[0], "
            "'torch': torch.__version__, 'transformer-engine': m.version('transformer-engine')}))")

if __name__ == "__main__":
    sys.exit(modes.main(modes.Bench(__file__, __doc__, SETS, TINY, MODES, began, measure, VERSIONS)))
