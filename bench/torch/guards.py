#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What it costs a call to look at all that its graph was decided by outside the arguments.

usage: guards.py [--calls N] [--install] [--models NAME ...]

A graphed callable is called by turns as it is and blind to what it reads (closures, globals, attributes,
containers; PyTorch's switches are looked at either way): both replay the same executable graph. Before each
call the program does what programs do: it sets attributes that nobody reads, moves a loop variable in the globals
of the module and, now and then, calls the net eagerly; then it waits for the device. Turns are of a few calls,
the first of which does not count, as nobody looked behind the launch ahead of it, and come in pairs, one of each
kind. Prints JSON: microseconds of the host for a call, median and the hundredth part above, of both; the median
of the pairs' differences, with the interval that holds it at 95 %; the same of the look alone, without a launch and
behind one, by turns with a look at nothing; and what is looked at.
"""

import argparse
import json
import statistics
import sys
import time

import torch

import reprise
from reprise import _C

CHANGING = 20  # attributes that are set outside of the calls
EAGER_EACH = 50
IN_A_ROW = 3  # calls of a turn that count
turn = 0  # moved by each call, in the globals of the function that is graphed


def mlp():
    layers = []
    for _ in range(3):
        layers += [torch.nn.Linear(256, 256), torch.nn.GELU()]
    return torch.nn.Sequential(*layers).cuda().eval(), (torch.randn(16, 256, device="cuda"),), lambda y: y


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=24,
                         num_attention_heads=4, num_key_value_heads=2, vocab_size=1000)
    config.use_cache = False
    ids = torch.arange(16, device="cuda").view(1, 16)
    return LlamaForCausalLM(config).cuda().eval(), (ids,), lambda y: y.logits


def bert():
    from transformers import BertConfig, BertModel
    config = BertConfig(hidden_size=256, num_hidden_layers=12, num_attention_heads=4,
                        intermediate_size=512, vocab_size=1000)
    ids = torch.arange(16, device="cuda").view(1, 16)
    return BertModel(config).cuda().eval(), (ids,), lambda y: y.last_hidden_state


def modules():
    """300 modules, each with an attribute that it reads."""
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 1.0
            self.net = torch.nn.Identity()

        def forward(self, x):
            return self.net(x) * self.scale
    net = torch.nn.Sequential(*[Scaled() for _ in range(150)]).cuda().eval()
    return net, (torch.randn(16, device="cuda"),), lambda y: y


MODELS = {"mlp": mlp, "modules": modules, "llama": llama, "bert": bert}


def disturb(net, parts):
    """What a program does between calls."""
    global turn
    turn += 1
    for i, part in enumerate(parts):
        part.note = turn + i
    if turn % EAGER_EACH == 0:
        net(*disturb.args)


def turns_of_both(count):
    """0, 1, 1, 0 and so on: what becomes slower or faster meanwhile does to both alike."""
    return ((i + i // 2) % 2 for i in range(count))


def calls_by_turns(made, net, parts, count):
    """Microseconds of each turn of calls that look, and of blind ones."""
    found, blind = ([], []), made._reads.values.handle.blind
    for which in turns_of_both(2 * count // IN_A_ROW):
        blind(which)
        turn_of_it = []
        for _ in range(1 + IN_A_ROW):
            disturb(net, parts)
            torch.cuda.synchronize()  # else launches that queue up make the host wait for the device
            start = time.perf_counter_ns()
            made(*disturb.args)
            turn_of_it.append((time.perf_counter_ns() - start) / 1000)
        found[which].append(turn_of_it[1:])
    blind(False)
    return found


def looks_by_turns(made, net, parts, count, launched):
    """Microseconds of looks alone, which are all that a call does more than a blind one, and of looks at nothing.
    launched: behind a launch each, which puts what is looked at out of the processor's caches, with the code that
    takes the time."""
    nothing = _C.Reads(torch.Tensor)
    nothing.set([])
    asked = made._reads.values.handle.holds, nothing.holds
    found = [], []
    for which in turns_of_both(2 * count):
        holds = asked[which]
        disturb(net, parts)
        if launched:
            made(*disturb.args)
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        held = holds()
        found[which].append([(time.perf_counter_ns() - start) / 1000])
        if not held:
            made(*disturb.args)
    return found


def facts(some, none):
    """Of turns of either kind: what a call takes, and what the one takes more than the other."""
    over = [statistics.median(a) - statistics.median(b) for a, b in zip(some, none)]
    return {"with": summary(some), "without": summary(none), "over_us": round(statistics.median(over), 3),
            "interval_us": interval(over)}


def summary(turns):
    ordered = sorted(us for turn in turns for us in turn)
    return {"calls": len(ordered), "median_us": round(statistics.median(ordered), 3),
            "p99_us": round(ordered[int(0.99 * (len(ordered) - 1))], 3)}


def interval(found):
    """The values between which the median of what these are drawn from lies, at 95 % (binomial, by the normal
    distribution's approximation)."""
    ordered, half = sorted(found), 0.98 * len(found) ** 0.5
    low, high = int(len(ordered) / 2 - half), int(len(ordered) / 2 + half)
    return [round(ordered[max(low, 0)], 3), round(ordered[min(high, len(ordered) - 1)], 3)]


def measure(name, calls):
    net, args, take = MODELS[name]()
    parts, disturb.args = list(net.modules())[:CHANGING], args

    def fn(*inputs):
        return take(net(*inputs))
    made = reprise.graphed(fn)
    for _ in range(6):
        made(*args)
    handle = made._reads.values.handle
    owners, always = handle.counts()
    return {"model": name, "modules": len(list(net.modules())),
            "calls": facts(*calls_by_turns(made, net, parts, calls)),
            "look": facts(*looks_by_turns(made, net, parts, calls, False)),
            "look_launched": facts(*looks_by_turns(made, net, parts, calls, True)),
            "owners": owners, "always": always, "words": handle.words(),
            "values": len(made._reads.values.walk.tokens),
            "failures": made.failures()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=4800, help="of either kind")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    given = parser.parse_args()
    if given.install:
        reprise.install()
    with torch.no_grad():
        rows = [measure(name, given.calls) for name in given.models]
    print(json.dumps({"python": sys.version.split()[0], "torch": torch.__version__,
                      "install": given.install, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
