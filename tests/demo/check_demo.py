#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs `reprise demo` on the host driver and checks what it says and writes.

usage: check_demo.py REPRISE
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

PROGRAM = os.path.abspath(sys.argv[1])
BATCHES = [64, 32, 16, 8, 4, 2, 1]
CHUNK_MOST = 32 << 20


def demo(*options, code=0, cwd=None):
    done = subprocess.run([PROGRAM, "demo", *options], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == code, (options, done.returncode, done.stderr)
    return done


def check_facts(directory):
    out = os.path.join(directory, "a chart & more")
    done = demo("--driver", "host", "--json", "--out", out)
    assert done.stderr == "", "progress is for terminals only: " + done.stderr
    facts = json.loads(done.stdout)
    assert facts["driver"] == "host" and facts["device"]
    assert 0 < facts["rehearsal_bytes"] <= CHUNK_MOST
    execs = facts["execs"]
    assert 0 < execs["count"] <= len(facts["captures"]) and execs["topologies"] == 1, execs
    assert 0 < execs["bytes"] <= execs["budget_bytes"], execs
    assert execs["hits"] + execs["updates"] + execs["instantiated"] - 1 == sum(
        c["samples"] for c in facts["captures"]), execs
    # The host driver's execs take none of the device's memory: there is nothing to compare with.
    assert execs["most_bytes"] >= execs["bytes"], execs
    assert execs["measured_bytes"] == execs["measured_step_bytes"] == 0, execs
    assert execs["estimate_error"] is None, execs
    captures = facts["captures"]
    assert [c["name"] for c in captures] == [f"batch {b}" for b in BATCHES]
    for capture in captures:
        assert capture["outputs_equal"] is True
        assert capture["bound_args"] > 0 and capture["copied_args"] == 0
        assert capture["nodes"] > 70
        assert capture["pool_bytes_after"] == captures[0]["pool_bytes_after"]
        assert 0 < capture["lower_bound_bytes"] <= capture["pool_bytes_after"]
        assert capture["graph_lower_bound_bytes"] <= capture["graph_planned_bytes"]
        assert capture["graph_planned_bytes"] <= capture["pool_bytes_after"]
        assert capture["eager_us"] > 0 and capture["replay_us"] > 0
    estimate = facts["estimate"]
    assert 0 < estimate["planned_bytes"] == estimate["taken_planned_bytes"]
    assert 0 < estimate["mapped_bytes"] == estimate["taken_mapped_bytes"]
    assert estimate["exec_bytes"] > 0
    assert "'decode" in facts["refused"] and "'encode" in facts["refused"]
    assert len(facts["recordings"]) == 7
    for recording in facts["recordings"]:
        assert recording["lower_bound_bytes"] <= recording["pool_bytes"]
        assert recording["pool_bytes"] < recording["c10_default_bytes"]
    check_chart(facts["chart"], captures, facts["recordings"])


def check_chart(path, captures, recordings):
    root = xml.etree.ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = {"".join(t.itertext()) for t in root.iter("{http://www.w3.org/2000/svg}text")}
    for name in [c["name"] for c in captures] + [r["name"] for r in recordings]:
        assert name in texts, name
    markup = pathlib.Path(path).read_text()
    assert "<script" not in markup and "http" not in markup.replace("http://www.w3.org/2000/svg", "")


def check_text(directory):
    empty = os.path.join(directory, "empty")
    os.mkdir(empty)
    done = demo("--driver", "host", "--batches", "1,4", "--recordings", empty, cwd=directory)
    assert "batch 4" in done.stdout and "to the bit" in done.stdout
    assert "to the byte" in done.stdout and "has not been replayed yet" in done.stdout
    assert "none copied" in done.stdout
    assert "nothing to hold the estimate against" in done.stdout
    assert "The host driver stands in for a GPU" in done.stdout
    assert "build/demo/demo.svg" in done.stdout
    assert os.path.exists(os.path.join(directory, "build/demo/demo.svg"))


def check_refusals(directory):
    for options in (["--batches", "0"], ["--batches", "4,"], ["--batches", "x"], ["--driver", "gpu"],
                    ["more"], ["--none"], ["--batches", ",".join(["1"] * 17)]):
        done = demo(*options, code=2)
        assert "--help" in done.stderr and not done.stdout
    bad = os.path.join(directory, "bad")
    os.mkdir(bad)
    pathlib.Path(bad, "x.json").write_text("{")
    quick = ["--driver", "host", "--batches", "1"]
    done = demo(*quick, "--recordings", bad, code=2)
    assert "x.json" in done.stderr and not done.stdout
    done = demo(*quick, "--recordings", os.path.join(directory, "absent"), code=2)
    assert "absent" in done.stderr
    done = demo(*quick, "--out", os.path.join(bad, "x.json", "y"), code=2)
    assert "x.json" in done.stderr
    assert "usage" in demo("--help").stdout


with tempfile.TemporaryDirectory() as temporary:
    check_facts(temporary)
    check_text(temporary)
    check_refusals(temporary)
print("demo: as it should be")
