#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs `reprise demo` on the host driver and checks what it says and writes.

usage: check_demo.py REPRISE
"""

import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

PROGRAM = os.path.abspath(sys.argv[1])
CAPTURES = pathlib.Path(__file__).parents[2] / "examples" / "captures"
BATCHES = [64, 32, 16, 8, 4, 2, 1]
CHUNK_MOST = 32 << 20


def demo(*options, code=0, cwd=None, **environment):
    done = subprocess.run([PROGRAM, "demo", *options], capture_output=True, text=True, cwd=cwd,
                          check=False, env=os.environ | environment)
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
    check_pytorch(facts["recordings"])
    check_chart(facts["chart"], facts["recordings"])


SVG = "{http://www.w3.org/2000/svg}"


def measured_table():
    """What examples/captures/README.md says that PyTorch held, MiB by setting."""
    lines = (CAPTURES / "README.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]
    return {row[0].split()[0]: [int(cell.split()[0]) for cell in row[4:7]]
            for row in cells if len(row) == 9 and row[4][:1].isdigit()}


def check_pytorch(recordings):
    table = measured_table()
    assert len(table) == 7, table
    for recording in recordings:
        assert recording["pytorch_measured"] is True, recording
        assert recording["pytorch_best_bytes"] == min(table[recording["name"]]) << 20, recording


def circles(root, name):
    return [(float(c.get("cx")), float(c.get("cy"))) for c in root.iter(SVG + "circle")
            if c.get("class") == name][1:]  # the first is the legend's


def check_chart(path, recordings):
    root = xml.etree.ElementTree.parse(path).getroot()
    assert root.tag == SVG + "svg"
    texts = ["".join(t.itertext()) for t in root.iter(SVG + "text")]
    saved = {r["name"]: 1 - r["pool_bytes"] / r["pytorch_best_bytes"] for r in recordings}
    names = sorted(saved, key=saved.get, reverse=True)
    assert [t for t in texts if t in saved] == names, texts
    for name in names:
        assert f"{100 * saved[name]:.0f} %" in texts, (name, texts)
    rows = [{r["name"]: r for r in recordings}[name] for name in names]
    marks = {"theirs": "pytorch_best_bytes", "ours": "pool_bytes", "least": "lower_bound_bytes"}
    points = []
    for mark, key in marks.items():
        drawn = circles(root, mark)
        assert len(drawn) == len(rows), (mark, drawn)
        points += [(row[key], x) for row, (x, _) in zip(rows, drawn)]
        assert [y for _, y in drawn] == [y for _, y in circles(root, "ours")]
    # Twice as much is equally far everywhere, and nothing is cut.
    (low, left), (high, right) = min(points), max(points)
    for amount, x in points:
        share = math.log(amount / low) / math.log(high / low)
        assert abs(left + share * (right - left) - x) < 0.2, (amount, x)
    markup = pathlib.Path(path).read_text()
    assert "<script" not in markup and "http" not in markup.replace("http://www.w3.org/2000/svg", "")


def check_recordings_of_others(directory):
    """Another file under a known name is none of ours; one recording makes a chart too."""
    folder = os.path.join(directory, "mine")
    os.mkdir(folder)
    shutil.copy(CAPTURES / "towers4.json.gz", os.path.join(folder, "llama.json.gz"))
    out = os.path.join(directory, "mine-out")
    facts = json.loads(demo("--driver", "host", "--batches", "1", "--json", "--recordings", folder,
                            "--out", out).stdout)
    (recording,) = facts["recordings"]
    assert recording["pytorch_measured"] is False, recording
    assert recording["pytorch_best_bytes"] == min(recording["c10_default_bytes"],
                                                  recording["c10_reuse_bytes"])
    check_chart(facts["chart"], facts["recordings"])


def check_nothing_to_draw(directory):
    folder = os.path.join(directory, "hollow")
    os.mkdir(folder)
    capture = {"name": "none", "nodes": ["kernel"], "edges": [], "streams": 1, "events": []}
    pathlib.Path(folder, "none.json").write_text(
        json.dumps({"format": "reprise-capture/1", "captures": [capture]}))
    facts = json.loads(demo("--driver", "host", "--batches", "1", "--json", "--recordings", folder,
                            "--out", folder).stdout)
    assert facts["recordings"][0]["pool_bytes"] == 0, facts["recordings"]
    assert "There are no recorded captures to draw" in pathlib.Path(facts["chart"]).read_text()


def check_text(directory):
    empty = os.path.join(directory, "empty")
    os.mkdir(empty)
    cache = os.path.join(directory, "cache")
    done = demo("--driver", "host", "--batches", "1,4", "--recordings", empty, cwd=directory,
                XDG_CACHE_HOME=cache)
    assert "batch 4" in done.stdout and "to the bit" in done.stdout
    assert "to the byte" in done.stdout and "has not been replayed yet" in done.stdout
    assert "none copied" in done.stdout
    assert "nothing to hold the estimate against" in done.stdout
    assert "The host driver stands in for a GPU" in done.stdout
    assert cache + "/reprise/demo/demo.svg" in done.stdout
    assert os.path.exists(cache + "/reprise/demo/demo.svg")
    assert not os.path.exists(os.path.join(directory, "build"))


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
    check_recordings_of_others(temporary)
    check_nothing_to_draw(temporary)
    check_text(temporary)
    check_refusals(temporary)
print("demo: as it should be")
