#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Where the time goes until a module of many parts has its graph, by what the process does on its processor.

usage: ready.py [--rounds N] [--profile reads|effects] [--models NAME ...]

Each module is made anew N times and called twice: the first call is watched, the second is captured. Prints
JSON, the least milliseconds of the processor that a round took, the first left out:

    eager        a call of the module without Reprise
    first        the first call
    second       the second call
    reads        of both: looking for what the module reads (_reads/walk.py)
    keys         of both: what else is done about that
    effects      of the second: the state that is put back, before, behind each run and at the end
    rest         of both, with the runs of the module itself

The models are narrow: what is measured hangs on the number of modules and not on their width, and it needs no
GPU (scripts/torch_on_host.sh). --profile adds what cProfile says of one of these.
"""

import argparse
import collections
import cProfile
import functools
import gc
import json
import pstats
import sys
import time

import torch

import reprise
from reprise._effects.effects import Effects
from reprise._reads.reads import Reads
from reprise._reads.values import Values


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    return GPT2LMHeadModel(GPT2Config(n_layer=12, n_head=2, n_embd=16, vocab_size=64, n_positions=64,
                                      bos_token_id=0, eos_token_id=0, use_cache=False))


def bert():
    from transformers import BertConfig, BertModel
    return BertModel(BertConfig(num_hidden_layers=12, num_attention_heads=2, hidden_size=16,
                                intermediate_size=32, vocab_size=64))


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=12, num_attention_heads=2, num_key_value_heads=2,
                                        hidden_size=16, intermediate_size=32, vocab_size=64, use_cache=False))


def timm():
    import timm
    return timm.create_model("resnet18")


def resnet():
    import torchvision
    return torchvision.models.resnet18()


TEXTS, IMAGES = (gpt2, bert, llama), (timm, resnet)
PARTS = (("reads", Values, "look_again"), ("reads", Values, "look_further"), ("keys", Reads, "_state"),
         ("keys", Reads, "leave_out"), ("effects", Effects, "__init__"), ("effects", Effects, "touched"),
         ("effects", Effects, "restore"), ("effects", Effects, "_note_places"), ("effects", Effects, "_gather"))


class Clock:
    """Splits the time among the parts; one within another counts for that alone."""

    def __init__(self, profiled):
        self.spent = collections.Counter()
        self.profile = cProfile.Profile() if profiled else None
        self._profiled, self._within = profiled, []
        for what, owner, name in PARTS:
            if hasattr(owner, name):
                setattr(owner, name, self._timed(what, getattr(owner, name)))

    def _timed(self, what, function):
        @functools.wraps(function)
        def timed(*args, **kwargs):
            profiles = what == self._profiled and what not in self._within
            self._within.append(what)
            before, begin = sum(self.spent.values()), time.thread_time()
            if profiles:
                self.profile.enable()
            try:
                return function(*args, **kwargs)
            finally:
                if profiles:
                    self.profile.disable()
                self._within.pop()
                self.spent[what] += time.thread_time() - begin - (sum(self.spent.values()) - before)
        return timed

    def measure(self, call):
        """(Seconds of a call, of its parts)."""
        self.spent.clear()
        begin = time.thread_time()
        call()
        return time.thread_time() - begin, dict(self.spent)


def once(clock, make):
    torch.manual_seed(0)
    module = make().cuda().eval()
    given = torch.zeros(1, 8, dtype=torch.long, device="cuda") if make in TEXTS else (
        torch.zeros(1, 3, 32, 32, device="cuda"))
    module(given)
    eager, _ = clock.measure(lambda: module(given))
    graphed = reprise.graphed(module, strict=True)
    first, parts = clock.measure(lambda: graphed(given))
    second, more = clock.measure(lambda: graphed(given))
    found = {"eager": eager, "first": first, "second": second, "reads": 0, "keys": 0, "effects": 0}
    for some in (parts, more):
        for what, seconds in some.items():
            found[what] += seconds
    found["rest"] = first + second - found["reads"] - found["keys"] - found["effects"]
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--profile", choices=("reads", "effects"))
    parser.add_argument("--models", nargs="*", default=[make.__name__ for make in TEXTS + IMAGES])
    options = parser.parse_args()
    clock, facts = Clock(options.profile), {}
    with torch.no_grad():
        for name in options.models:
            rounds = []
            for _ in range(options.rounds):
                rounds.append(once(clock, globals()[name]))
                gc.collect()
            facts[name] = {what: round(1000 * min(r[what] for r in rounds[1:]), 2)
                           for what in rounds[0]}
    json.dump({"python": sys.version.split()[0], "torch": torch.__version__, "ms": facts}, sys.stdout, indent=1)
    print()
    if clock.profile is not None:
        pstats.Stats(clock.profile).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    __name__ = "reprise.bench"  # whose looks at the clock are none of the callable's
    main()
