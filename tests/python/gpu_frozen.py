# SPDX-License-Identifier: MIT
"""What changes between calls is not frozen: each kind of frozen_kinds.py beside its eager twin, under
install() and without it.

usage: gpu_frozen.py [--install] [--json FILE] [KIND ...]

The verdict on each is `right` (its results are eager's to the bit, and at least half of its calls were
replays), `refused` (results are eager's, and a warning names what keeps it from replays) or `wrong`.
"""

import argparse
import json
import random
import re
import sys
import unittest
import warnings

import torch

import needs
import reprise
from frozen_kinds import KINDS, SIZE

CALLS = 9
FRESH = 14  # of kinds whose value is new at every call


def inputs(count):
    maker = torch.Generator().manual_seed(3)
    return [torch.randn(4, SIZE, generator=maker).cuda() for _ in range(count)]


def results(make, wrap):
    """What the calls of a program return, and how many of them were replays."""
    torch.manual_seed(7)
    random.seed(7)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(7)
    fn, change = make()
    called, found, replays = getattr(fn, "around", lambda call: call)(wrap(fn)), [], [0]
    is_eager = called is fn or not hasattr(called, "shapes") or called.shapes is None
    with torch.set_grad_enabled(make.grad):
        for i, x in enumerate(inputs(CALLS if make.leaps > 1 else FRESH)):
            found.append(called(x, *(change(i) or ())).detach().clone())
            replays.append(0 if is_eager else sum(s["replays"] for s in called.shapes()))
    if make.leaps > 1:
        change(0)
    return found, sum(now - before if now > before else int(now > 0)  # graphs were dropped
                      for before, now in zip(replays, replays[1:]))


def same(a, b):
    """To the bit: the sign of a zero counts."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(
        a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8)) if a.dim() else (
            a.dtype == b.dtype and a.cpu().numpy().tobytes() == b.cpu().numpy().tobytes())


def judge(make):
    """The row of a kind."""
    eager, _ = results(make, lambda fn: fn)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        graphed, replays = results(make, reprise.graphed)
    told = [str(w.message) for w in said if "reprise" in str(w.message)]
    wrong = [i for i, (a, b) in enumerate(zip(eager, graphed)) if not same(a, b)]
    row = {"name": make.__name__, "install": reprise.is_installed(), "verdict": "right",
           "replays": replays, "eager_calls": len(graphed) - replays, "told": told}
    if wrong:
        row.update(verdict="wrong", calls=wrong)
    elif make.refused is not None:
        named = any(re.search(make.refused, text) for text in told)
        row["verdict"] = "refused" if named else "wrong"
    elif 2 * replays < len(graphed):
        row["verdict"] = "wrong"
    return row


class Frozen(unittest.TestCase):
    rows = []

    def check(self, make):
        if needs.VERSION < make.since:
            self.skipTest("this PyTorch cannot do it in a capture")
        row = judge(make)
        self.rows.append(row)
        self.assertEqual(row["verdict"], "refused" if make.refused else "right", row)


for _name, _make in KINDS.items():
    setattr(Frozen, f"test_{_name}", lambda self, make=_make: self.check(make))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("kinds", nargs="*")
    given = parser.parse_args()
    if given.install:
        reprise.install()
    names = [f"Frozen.test_{name}" for name in given.kinds] or None
    done = unittest.main(argv=[sys.argv[0], *(names or [])], exit=False)
    if given.json:
        with open(given.json, "a", encoding="utf-8") as file:
            for row in Frozen.rows:
                file.write(json.dumps(row) + "\n")
    sys.exit(not done.result.wasSuccessful())


if __name__ == "__main__":
    main()
