#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs `reprise bench sweep --quick` on the host driver and checks what it prints.

usage: check_sweep.py REPRISE
"""

import json
import statistics
import subprocess
import sys

WAYS = ["c10_default", "c10_reuse", "place", "plan"]
PAIRS = [(0.40, 0.10), (0.45, 0.30), (0.30, 0.20), (0.42, 0.20)]


def run(reprise, *options, code=0):
    done = subprocess.run([reprise, "bench", *options], capture_output=True, text=True, check=False)
    assert done.returncode == code, (options, done.returncode, done.stderr)
    return done


def check_result(result):
    for way in WAYS:
        assert result[f"{way}_bytes"] > 0 and result[f"{way}_ns_per_op"] > 0, result
        assert result[f"{way}_bytes"] >= result["lower_bound_bytes"], result
    assert 0 < result["lower_bound_bytes"] <= result["plan_bytes"] <= result["place_bytes"], result
    assert result["place_bytes"] <= result["c10_reuse_bytes"] <= result["c10_default_bytes"], result
    assert result["operations"] == 2 * result["blocks"], result
    assert result["nodes"] > result["blocks"], result


def check_json(reprise):
    """What a layout takes is told only once every pair of its blocks was checked."""
    results = json.loads(run(reprise, "--driver", "host", "--quick", "--json", "sweep").stdout)
    cases = [(r["streams"], r["steps"], r["p_free"], r["p_join"], r["seed"]) for r in results]
    assert cases == [(n, 500, f, j, 1) for n in (2, 4, 8) for f, j in PAIRS], cases
    for result in results:
        check_result(result)
    assert statistics.median(r["plan_bytes"] / r["lower_bound_bytes"] for r in results) <= 1.01
    assert statistics.median(r["place_bytes"] / r["c10_reuse_bytes"] for r in results) <= 0.7
    return results


def check_options(reprise):
    """Lists are taken; the same seed gives the same capture, another one another."""
    options = ["sweep", "--driver", "host", "--streams", "3", "--steps", "60", "--json"]
    twice = [json.loads(run(reprise, *options, "--seeds", "7,8").stdout) for _ in range(2)]
    bytes_of = [[r["c10_default_bytes"] for r in results] for results in twice]
    assert bytes_of[0] == bytes_of[1]
    assert [r["seed"] for r in twice[0]] == [7, 8] * len(PAIRS)
    assert any(a["nodes"] != b["nodes"] for a, b in zip(twice[0][::2], twice[0][1::2]))
    for bad in (["sweep", "--streams", "1"], ["sweep", "--steps", "1,,2"], ["sweep", "--seeds", ""],
                ["sweep", "--driver", "vulkan"], ["sweep", "--budget-ms", "0"], [], ["walk"],
                ["sweep", "sweep"]):
        assert "reprise bench" in run(reprise, *bad, code=2).stderr


def check_table(reprise):
    text = run(reprise, "sweep", "--driver", "host", "--quick", "--streams", "2").stdout
    rows = [line for line in text.splitlines() if line.startswith("2 streams, 500 steps")]
    assert len(rows) == len(PAIRS), text
    assert "4 captures: place takes" in text and "in the median" in text, text


def main():
    reprise = sys.argv[1]
    results = check_json(reprise)
    check_options(reprise)
    check_table(reprise)
    print(f"bench sweep: {len(results)} captures, all keys, bound <= plan <= place <= c10")


main()
