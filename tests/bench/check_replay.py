#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs `reprise bench replay` on the host driver and checks what it prints: the counts, not the
times.

usage: check_replay.py REPRISE
"""

import json
import subprocess
import sys

WAYS = ["one_each", "always_update", "holds_all", "small", "one_exec"]


def run(reprise, *options, code=0):
    done = subprocess.run([reprise, "bench", *options], capture_output=True, text=True, check=False)
    assert done.returncode == code, (options, done.returncode, done.stderr)
    return done


def check_chains(chains):
    assert [(c["kernels"], c["args"]) for c in chains] == [
        (1, 1), (10, 4), (100, 8), (100, 100), (1000, 8)]
    for chain in chains:
        assert chain["bound_args"] + chain["copied_args"] == chain["args"], chain
        assert chain["kernels"] >= 12 or chain["copied_args"] == 0, chain
        assert chain["nodes_patched_a_replay"] == chain["kernels"], chain
        for way in ("bound", "chosen", "bare", "copies"):
            assert 0 < chain[way + "_us"] <= chain[way + "_done_us"], chain


def check_memory(memory, shapes):
    one, some, each = memory
    assert [m["budget"] for m in memory] == ["one exec", "64 MiB", "one each"]
    assert one["execs"] == 1 and each["execs"] == shapes, memory
    assert each["instantiated"] == shapes and each["updates"] == 0, each
    assert one["updates"] + one["instantiated"] >= shapes, one
    assert some["exec_bytes"] <= 64 << 20, some
    for m in memory:
        assert m["exec_measured_bytes"] == 0 and m["exec_estimate_error"] is None, m
        assert m["topologies"] == 1 and m["refused"] == 0, m
        assert m["pool_bytes"] == one["pool_bytes"], memory
        assert m["all_bytes"] <= 1.02 * m["largest_bytes"] + m["budget_bytes"], m


def check_walks(walks, shapes, steps):
    assert [w["walk"] for w in walks] == ["uniform", "zipf", "ramp", "recorded"]
    for walk in walks:
        assert walk["steps"] == steps
        each, always = walk["one_each"], walk["always_update"]
        assert 1 < each["instantiated"] <= min(shapes, steps) and each["updates"] == 0, walk
        assert always["instantiated"] == 1 and 0 < always["updates"] < steps, walk
        for way in WAYS:
            assert walk[way]["instantiated"] >= 1, walk


def main():
    reprise = sys.argv[1]
    found = json.loads(run(reprise, "replay", "--driver", "host", "--quick", "--json").stdout)
    assert found["driver"] == "host" and found["shapes"] == 16
    check_chains(found["chains"])
    check_memory(found["memory"], 16)
    assert found["hot"]["own_us"] > 0 and found["hot"]["rows"] == 9, found["hot"]
    check_walks(found["walks"], 16, 64)
    text = run(reprise, "--driver", "host", "--quick", "--shapes", "3", "replay").stdout
    assert "3 shapes" in text and "always update" in text, text
    for bad in (["replay", "--shapes", "1"], ["replay", "--driver", "x"], ["replay", "replay"],
                ["replay", "--what"]):
        said = run(reprise, *bad, code=2).stderr
        assert "'reprise bench replay --help' tells more" in said and "name one" not in said, said


if __name__ == "__main__":
    main()
