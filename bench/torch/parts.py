#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Nets that cannot be captured whole, by the parts that can: reprise.graphed(net, parts=True).

usage: parts.py --out FILE [--names A,B] [--rounds N] [--seconds S] [--limit S] [--install] [--quick]

Each net has a process, and in it a copy for each side: eager, parts and auto (policy "auto" with parts). They
take turns, --rounds times, on the same inputs, and are measured by the host's clock until the device is done.
Writes `result` after each net, rows of

    eager_us, parts_us, auto_us    medians of a call in a row of calls
    faster                         eager_us by the less of the two others
    equal                          are results of six further inputs eager's to the bit? Else `differs` says how
                                   far they lie apart, next to the largest number; None: other shapes
    eager_repeats                  do two eager calls give the same? Where not, `equal` says nothing
    launch_share                   of an eager call, the part in which the GPU did nothing: its time without that
                                   of kernels and copies, as PyTorch's profiler has them. None: it saw none
    graphs, ways                   how many modules became graphs, and what became of all that were tried
    left_out                       why the others are eager, each reason with the names of modules
    mib                            device memory for the graphs

--quick: tiny nets, for a try on any machine."""

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import time

MARK = "MEASURED "
NETS = {}  # by name: makes (net, arguments by seed) from "is it quick?"


def net(build):
    NETS[build.__name__] = build
    return build


def draw(torch, seed, *shape):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(*shape, generator=generator, device="cuda")


# ---- Nets -----------------------------------------------------------------------------------------------

@net
def mixtral(torch, quick):
    """Its experts in a loop over those that were chosen, which the host has to know."""
    import transformers
    layers, width, words = (2, 64, 100) if quick else (8, 512, 8000)
    config = transformers.MixtralConfig(
        vocab_size=words, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
        num_attention_heads=8, num_key_value_heads=4, num_local_experts=8, num_experts_per_tok=2, use_cache=False,
        experts_implementation="eager")
    made = transformers.MixtralForCausalLM(config)

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = made

        def forward(self, ids):
            return self.model(input_ids=ids).logits

    def make(seed):
        generator = torch.Generator(device="cuda").manual_seed(seed)
        return (torch.randint(0, words, (1, 16 if quick else 64), generator=generator, device="cuda"),)
    return Logits(), make


@net
def router(torch, quick):
    """Tokens in as many slots as the busiest expert has, in steps of 16: the host reads the counts."""
    nn, (width, depth, experts) = torch.nn, (32, 1, 4) if quick else (512, 6, 8)

    class Routed(nn.Module):
        def __init__(self):
            super().__init__()
            self.choose = nn.Linear(width, experts)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
                for _ in range(experts))

        def forward(self, x):
            best, chosen = self.choose(x).softmax(-1).max(-1)
            which = (chosen[:, None] == torch.arange(experts, device=x.device)).long()
            slots = -(-max(which.sum(0).tolist()) // 16) * 16
            slot = chosen * slots + (which.cumsum(0) * which).sum(1) - 1
            filled = x.new_zeros(experts * slots, width).index_copy_(0, slot, x).view(experts, slots, width)
            done = torch.cat([expert(rows) for expert, rows in zip(self.experts, filled)])
            return done[slot] * best[:, None]

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
            self.routed = Routed()

        def forward(self, x):
            x = self.mix(x)
            return x + self.routed(x.flatten(0, 1)).view_as(x)
    return nn.Sequential(*(Layer() for _ in range(depth))), lambda seed: (draw(torch, seed, 2, 32, width),)


def detection(torch, quick, kind):
    from torchvision.models import detection as models
    size = 64 if quick else 320
    made = getattr(models, kind)(weights=None, weights_backbone=None, num_classes=5, min_size=size, max_size=size)

    class Found(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = made

        def forward(self, picture):
            found = self.net([picture])[0]
            return tuple(found[name] for name in sorted(found))
    return Found(), lambda seed: (draw(torch, seed, 3, size, size).sigmoid(),)


@net
def mask_rcnn(torch, quick):
    return detection(torch, quick, "maskrcnn_resnet50_fpn")


@net
def retinanet(torch, quick):
    return detection(torch, quick, "retinanet_resnet50_fpn")


@net
def raft(torch, quick):
    from torchvision.models.optical_flow import raft_small
    size, updates = (128, 2) if quick else (256, 12)
    made = raft_small(weights=None)

    class Flow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = made

        def forward(self, before, after):
            return self.net(before, after, num_flow_updates=updates)[-1]
    return Flow(), lambda seed: (draw(torch, seed, 1, 3, size, size).tanh(),
                                 draw(torch, seed + 1, 1, 3, size, size).tanh())


@net
def audio(torch, quick):
    """Frames go to a recognizer only where a detector hears a voice: the host asks."""
    nn, (width, depth) = torch.nn, (32, 1) if quick else (256, 6)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.front = nn.Sequential(nn.Conv1d(1, width, 400, 160), nn.GELU(), nn.Conv1d(width, width, 3, 2),
                                       nn.GELU())
            self.hears = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True) for _ in range(depth))
            self.quiet, self.last = nn.Linear(width, 40), nn.Linear(width, 40)

        def forward(self, sound):
            x = self.front(sound).transpose(1, 2)
            if self.hears(x).mean().item() < -1e3:
                return self.quiet(x)
            for layer in self.layers:
                x = layer(x)
            return self.last(x)
    return Net(), lambda seed: (draw(torch, seed, 2, 1, 4000 if quick else 16000),)


# ---- In the process of one net --------------------------------------------------------------------------

def us_per_call(torch, call, inputs, seconds):
    torch.cuda.synchronize()
    count, begin = 0, time.perf_counter()
    while True:
        for args in inputs:
            call(*args)
        count += len(inputs)
        torch.cuda.synchronize()
        took = time.perf_counter() - begin
        if took >= seconds:
            return took / count * 1e6


def busy_us(torch, call, inputs):
    """Of a call, the time that kernels and copies take on the GPU; None where the profiler sees none."""
    from torch.profiler import ProfilerActivity, profile
    try:
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            for args in inputs:
                call(*args)
            torch.cuda.synchronize()
        took = sum(event.self_device_time_total for event in seen.key_averages())
    except Exception as error:
        print(f"the profiler: {error}", file=sys.stderr)
        return None
    return took / len(inputs) or None


def compared(torch, call, eager, inputs):
    """(are all results equal, how far they lie apart)."""
    equal, far = True, 0.0
    for args in inputs:
        pairs = [[r if isinstance(r, tuple) else (r,) for r in (call(*args), eager(*args))]]
        for got, wanted in zip(*pairs[0]):
            if got.shape != wanted.shape:
                return False, None
            equal = equal and torch.equal(got, wanted)
            if got.numel():
                apart = (got.double() - wanted.double()).abs().max() / wanted.double().abs().max().clamp(min=1e-6)
                far = max(far, apart.item())
    return equal, far


def left_out(parts):
    """Names of modules by the reason why they are eager."""
    reasons = {}
    for part in parts:
        if part["way"] in ("eager", "untried") or part["reason"]:
            text = (part["reason"] or part["way"]).splitlines()[0][:200]
            reasons.setdefault(text, []).append(f"{part['name']} ({part['kind']}): {part['way']}")
    return {text: names[:6] + [f"and {len(names) - 6} more"] * (len(names) > 6) for text, names in reasons.items()}


def measure(name, options):
    import torch
    torch.backends.cudnn.deterministic = True
    if options.quick:  # attention by plain operators, which the host driver has
        torch.backends.mha.set_fastpath_enabled(False)
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)
    import reprise
    if options.install:
        reprise.install()
    torch.manual_seed(0)
    made, make = NETS[name](torch, options.quick)
    eager = made.cuda().eval()
    sides = {"eager": eager, "parts": reprise.graphed(copy.deepcopy(eager), parts=True),
             "auto": reprise.graphed(copy.deepcopy(eager), parts=True, policy="auto")}
    inputs = [make(10 * i) for i in range(4)]
    row = {"name": name}
    with torch.no_grad():
        us_per_call(torch, eager, inputs, 0)
        for side, call in sides.items():
            begin = time.perf_counter()
            us_per_call(torch, call, inputs * 4, 0)
            row[f"{side}_ready_s"] = round(time.perf_counter() - begin, 2)
            us_per_call(torch, call, inputs, options.seconds * (4 if side == "auto" else 1))
        times = {side: [] for side in sides}
        for turn in range(options.rounds):
            for side in list(sides)[::-1 if turn % 2 else 1]:
                us_per_call(torch, sides[side], inputs, 0)
                times[side].append(us_per_call(torch, sides[side], inputs, options.seconds))
        row.update({f"{side}_us": round(statistics.median(found), 1) for side, found in times.items()})
        row["faster"] = round(row["eager_us"] / min(row["parts_us"], row["auto_us"]), 3)
        fresh = [make(1000 + 10 * i) for i in range(6)]
        found = {side: compared(torch, sides[side], eager, fresh) for side in ("parts", "auto")}
        row["equal"] = all(equal for equal, _ in found.values())
        row["differs"] = {side: far for side, (_, far) in found.items()}
        row["eager_repeats"] = compared(torch, eager, eager, fresh)[0]
        busy = busy_us(torch, eager, inputs)
        row["launch_share"] = None if busy is None else round(1 - min(1, busy / row["eager_us"]), 3)
        parts = reprise.graphed_of(sides["parts"]).parts()
        row["graphs"] = sum(part["graphs"] for part in parts)
        row["ways"] = {way: sum(part["way"] == way for part in parts) for way in {part["way"] for part in parts}}
        row["left_out"] = left_out(parts)
        row["auto_left_out"] = left_out(reprise.graphed_of(sides["auto"]).parts())
        row["whole"] = not parts
        row["mib"] = reprise.graphed_of(sides["parts"]).pool.info()["mapped_bytes"] >> 20
    row["torch"], row["device"] = torch.__version__, torch.cuda.get_device_name()
    print(MARK + json.dumps(row), flush=True)


# ---- Around them ----------------------------------------------------------------------------------------

def row_of(name, options):
    given = ["--measure", name, "--rounds", str(options.rounds), "--seconds", str(options.seconds)]
    given += ["--install"] * options.install + ["--quick"] * options.quick
    try:
        done = subprocess.run([sys.executable, os.path.abspath(__file__), *given], capture_output=True, text=True,
                              timeout=options.limit)
    except subprocess.TimeoutExpired:
        return {"name": name, "error": f"no answer in {options.limit:.0f} s"}
    rows = [line[len(MARK):] for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not rows:
        return {"name": name, "error": f"ended with {done.returncode}: " + " | ".join(
            done.stderr.strip().splitlines()[-3:])[-500:]}
    return json.loads(rows[-1])


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2].partition("\n\n")[0])
    parser.add_argument("--measure")
    parser.add_argument("--out")
    parser.add_argument("--names")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--limit", type=float, default=120)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.measure:
        return measure(options.measure, options)
    if not options.out:
        parser.error("where to? --out FILE")
    rows = []
    for name in options.names.split(",") if options.names else NETS:
        rows.append(row_of(name, options))
        shown = {key: rows[-1].get(key) for key in ("name", "eager_us", "parts_us", "auto_us", "faster", "equal",
                                                    "launch_share", "graphs", "ways", "error") if key in rows[-1]}
        print(json.dumps(shown), flush=True)
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump({"command": " ".join(sys.argv), "result": rows}, file, indent=1)
            file.write("\n")
    wrong = [row["name"] for row in rows if "error" in row or (row["eager_repeats"] and not row["equal"])]
    print("wrong: " + (", ".join(wrong) or "none"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
