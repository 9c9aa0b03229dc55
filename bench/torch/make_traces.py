#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Profiler traces of a dozen workloads, and what a CUDA graph really gives for each.

    python3 make_traces.py OUT [--only NAME,NAME]

Each workload is run eagerly under torch.profiler for a few steps, twice: with Python stacks
(NAME.stack.json.gz) and without (NAME.plain.json.gz). Then the same work is timed without the
profiler, eagerly and as a CUDA graph, in alternating blocks between events; measured.json holds the
medians in microseconds a step:

    {"NAME": {"eager_us": .., "graph_us": .., "graph": "whole step", "stack_us": .., ...},
     "_machine": {..}}

graph_us is null where the work as a whole can't be captured. Weights and inputs are random; nothing
is downloaded. A workload that fails is reported and left out. Takes about two minutes on an H200.
"""
import argparse
import gc
import json
import os
import statistics
import sys
import time
import traceback

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, schedule

DEVICE = "cuda"
BLOCK_SECONDS = 0.04
BLOCKS = 15


class Workload:
    """step() is the eager iteration. captured() is what goes into the graph, after() what stays
    outside it in every iteration; by default the whole step is captured."""

    def __init__(self, step, captured=None, after=None, note="whole step", steps=3):
        self.step = step
        self.captured = captured or step
        self.after = after
        self.note = note
        self.steps = steps


def mlp(width, depth):
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers)


def trainer(model, inputs, target, loss_of, lr=1e-3):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, foreach=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(inputs), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


def inference(model, inputs):
    model.eval()

    def step():
        with torch.no_grad():
            return model(inputs)

    return step


def tiny_mlp():
    return Workload(inference(mlp(64, 4), torch.randn(32, 64)), steps=5)


def tiny_mlp_train():
    return Workload(trainer(mlp(128, 6), torch.randn(64, 128), torch.randn(64, 128), F.mse_loss),
                    steps=5)


def large_mlp_train():
    return Workload(trainer(mlp(8192, 6), torch.randn(1024, 8192), torch.randn(1024, 8192),
                            F.mse_loss), steps=5)


class DecoderLayer(nn.Module):
    def __init__(self, hidden, heads, length):
        super().__init__()
        self.heads, self.size = heads, hidden // heads
        self.norm1, self.norm2 = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate = nn.Linear(hidden, 4 * hidden, bias=False)
        self.up = nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = nn.Linear(4 * hidden, hidden, bias=False)
        self.register_buffer("keys", torch.zeros(4, heads, length, self.size))
        self.register_buffer("values", torch.zeros(4, heads, length, self.size))

    def forward(self, x, position, mask):
        batch = x.shape[0]
        q, k, v = self.qkv(self.norm1(x)).view(batch, 3, self.heads, 1, self.size).unbind(1)
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        x = x + self.out(y.reshape(batch, -1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, hidden=1024, heads=16, layers=16, length=512, words=32000):
        super().__init__()
        self.embed = nn.Embedding(words, hidden)
        self.layers = nn.ModuleList(DecoderLayer(hidden, heads, length) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden)
        self.head = nn.Linear(hidden, words, bias=False)

    def forward(self, token, position, mask):
        x = self.embed(token)
        for layer in self.layers:
            x = layer(x, position, mask)
        return self.head(self.norm(x)).argmax(-1)


def decoder_step():
    model = Decoder().to(torch.bfloat16).eval()
    token = torch.zeros(4, dtype=torch.long)
    position = torch.tensor([100])
    mask = torch.ones(1, 1, 1, 512, dtype=torch.bool)

    def step():
        with torch.no_grad():
            token.copy_(model(token, position, mask))

    return Workload(step)


def resnet50():
    import torchvision
    return torchvision.models.resnet50(weights=None)


def resnet50_infer():
    return Workload(inference(resnet50(), torch.randn(8, 3, 224, 224)))


def resnet50_train():
    model = resnet50().to(memory_format=torch.channels_last)
    images = torch.randn(64, 3, 224, 224).to(memory_format=torch.channels_last)
    return Workload(trainer(model, images, torch.randint(0, 1000, (64,)), F.cross_entropy),
                    steps=2)


def bert_infer():
    layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, activation=F.gelu,
                                       batch_first=True)
    model = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).to(torch.bfloat16)
    inputs = torch.randn(8, 128, 768, dtype=torch.bfloat16)

    def step():  # in training mode: the layer's fused inference path is another workload
        with torch.no_grad():
            return model(inputs)

    return Workload(step)


def bert_train():
    layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, activation=F.gelu,
                                       batch_first=True)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    inputs = torch.randn(4, 64, 768)
    return Workload(trainer(model, inputs, torch.randn(4, 64, 768), F.mse_loss), steps=2)


def vit_large_infer():
    try:
        import timm
        model = timm.create_model("vit_large_patch16_224", pretrained=False)
    except ImportError:
        import torchvision
        model = torchvision.models.vit_l_16(weights=None)
    images = torch.randn(64, 3, 224, 224, dtype=torch.bfloat16)
    return Workload(inference(model.to(torch.bfloat16), images))


def vit_small_infer():
    import timm
    model = timm.create_model("vit_small_patch16_224", pretrained=False)
    images = torch.randn(4, 3, 224, 224, dtype=torch.bfloat16)
    return Workload(inference(model.to(torch.bfloat16), images))


def matmul_chain():
    a = torch.randn(8192, 8192, dtype=torch.bfloat16) / 90  # so that the product keeps its size
    x = torch.randn(8192, 8192, dtype=torch.bfloat16)

    def step():
        y = x
        for _ in range(20):
            y = torch.mm(y, a)
        return y

    return Workload(step, steps=5)


def lstm_loop():
    cell = nn.LSTMCell(256, 256)
    inputs = torch.randn(64, 32, 256)

    def step():
        with torch.no_grad():
            h = torch.zeros(32, 256, device=DEVICE)
            c = torch.zeros(32, 256, device=DEVICE)
            for t in range(inputs.shape[0]):
                h, c = cell(inputs[t], (h, c))
            return h

    return Workload(step)


def item_each_step():
    train = trainer(mlp(512, 8), torch.randn(128, 512), torch.randn(128, 512), F.mse_loss)
    kept = {}

    def step():
        return train().item()

    def captured():
        kept["loss"] = train()

    return Workload(step, captured, lambda: kept["loss"].item(), "step without .item()", steps=4)


def two_streams():
    left, right = mlp(512, 6).eval(), mlp(512, 6).eval()
    inputs = torch.randn(64, 512)
    side = torch.cuda.Stream()

    def step():
        with torch.no_grad():
            main = torch.cuda.current_stream()
            side.wait_stream(main)
            with torch.cuda.stream(side):
                b = right(inputs)
            a = left(inputs)
            main.wait_stream(side)
            b.record_stream(main)
            return a + b

    return Workload(step, steps=5)


class RoutedLayer(nn.Module):
    def __init__(self, hidden, experts):
        super().__init__()
        self.dense = mlp(hidden, 4)
        self.route = nn.Linear(hidden, experts)
        self.experts = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(experts))

    def forward(self, x):
        x = self.dense(x)
        chosen = self.route(x).argmax(-1)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows = torch.nonzero(chosen == e).squeeze(-1)
            if rows.numel():
                out.index_copy_(0, rows, expert(x[rows]))
        return out


def routed_experts():
    model = nn.Sequential(*(RoutedLayer(512, 4) for _ in range(6)))
    work = Workload(inference(model, torch.randn(64, 512)))
    work.captured = None
    return work


WORKLOADS = [tiny_mlp, tiny_mlp_train, large_mlp_train, decoder_step, resnet50_infer,
             resnet50_train, bert_infer, bert_train, vit_small_infer, vit_large_infer,
             matmul_chain, lstm_loop, item_each_step, two_streams, routed_experts]


def block_us(run, count):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(count):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1000 / count


def per_block(run):
    torch.cuda.synchronize()
    return max(2, min(2000, int(BLOCK_SECONDS * 1e6 / block_us(run, 3))))


def interleaved(runs):
    """The median microseconds a call of each, blocks taken in turn."""
    counts = [per_block(run) for run in runs]
    times = [[] for _ in runs]
    for _ in range(BLOCKS):
        for i, run in enumerate(runs):
            times[i].append(block_us(run, counts[i]))
    return [statistics.median(t) for t in times]


def capture(work):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work.captured()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work.captured()

    def replay():
        graph.replay()
        if work.after:
            work.after()

    return replay


def trace(work, path, with_stack):
    """Exports a trace and returns the time of a step under the profiler, in microseconds."""
    wait = schedule(wait=1, warmup=2, active=work.steps, repeat=1)
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    torch.cuda.synchronize()
    with profile(activities=activities, schedule=wait, with_stack=with_stack) as profiler:
        for i in range(3 + work.steps):
            if i == 3:
                start = time.perf_counter()
            work.step()
            if i == 2 + work.steps:
                torch.cuda.synchronize()
                took = time.perf_counter() - start
            profiler.step()
    profiler.export_chrome_trace(path)
    return took * 1e6 / work.steps


def measure(make, out):
    name = make.__name__
    with torch.device(DEVICE):  # around the making only: the mode slows every operation in it
        work = make()
    for _ in range(5):
        work.step()
    torch.cuda.synchronize()
    result = {"graph": work.note}
    for kind, with_stack in (("stack", True), ("plain", False)):
        path = os.path.join(out, f"{name}.{kind}.json.gz")
        result[f"{kind}_us"] = round(trace(work, path, with_stack), 2)
        result[f"{kind}_bytes"] = os.path.getsize(path)
    runs = [work.step]
    if work.captured:
        try:
            runs.append(capture(work))
        except Exception as error:
            result["error"] = f"{type(error).__name__}: {error}"[:300]
            torch.cuda.synchronize()
    times = interleaved(runs)
    result["eager_us"] = round(times[0], 2)
    result["graph_us"] = round(times[1], 2) if len(times) > 1 else None
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--only", help="names, separated by commas")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    wanted = args.only.split(",") if args.only else None
    torch.manual_seed(0)
    measured = {"_machine": {"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                             "cuda": torch.version.cuda, "python": sys.version.split()[0]}}
    failed = 0
    for make in WORKLOADS:
        if wanted and make.__name__ not in wanted:
            continue
        start = time.perf_counter()
        try:
            measured[make.__name__] = measure(make, args.out)
        except Exception:
            traceback.print_exc()
            failed += 1
        gc.collect()
        torch.cuda.empty_cache()
        print(f"{make.__name__}: {measured.get(make.__name__)} "
              f"({time.perf_counter() - start:.1f} s)", flush=True)
        with open(os.path.join(args.out, "measured.json"), "w", encoding="ascii") as file:
            json.dump(measured, file, indent=1)
            file.write("\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
