#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs `reprise inspect` on the host driver and checks the sites of the decoder's step.

usage: check_inspect.py REPRISE
"""

import json
import subprocess
import sys

LAYERS, HIDDEN, VOCAB, CACHED = 4, 256, 1024, 64
TOKENS, POSITIONS, LOGITS = range(3)


def run(reprise, *options, code=0):
    done = subprocess.run([reprise, "inspect", "--driver", "host", *options], capture_output=True,
                          text=True, check=False)
    assert done.returncode == code, (options, done.returncode, done.stderr)
    return done


def check_sites(found, batch):
    sites = found["sites"]
    assert [s["node"] for s in sites] == sorted(s["node"] for s in sites)
    assert all(s["kind"] == "kernel" and s["parameter"] == 0 and s["delta"] == 0 for s in sites)
    of = {k: [s for s in sites if s.get("argument") == k] for k in (TOKENS, POSITIONS, LOGITS)}
    assert [s["function"] for s in of[TOKENS]] == ["decoder_embed"]
    assert len(of[POSITIONS]) == LAYERS * 5, of[POSITIONS]
    assert [s["function"] for s in of[LOGITS]] == ["decoder_matmul"]
    assert of[LOGITS][0]["node"] == found["nodes"] - 1
    assert of[LOGITS][0]["bytes"] == batch * VOCAB * 4
    assert of[TOKENS][0]["bytes"] == of[POSITIONS][0]["bytes"] == batch * 4
    blocks = {s["block"] for s in sites if "block" in s}
    assert blocks == set(range(found["blocks"])), "every block is written and read"
    assert sites[0]["block"] == 0 and sites[0]["bytes"] == batch * HIDDEN * 4
    stores = [s for s in sites if s["function"] == "decoder_store" and "block" in s]
    assert len(stores) == 2 * LAYERS and {s["bytes"] for s in stores} == {batch * CACHED * 4}


def main():
    reprise = sys.argv[1]
    for batch in (1, 4, 64):
        found = json.loads(run(reprise, "--batch", str(batch), "--json").stdout)
        assert found["driver"] == "host" and found["batch"] == batch
        check_sites(found, batch)
    text = run(reprise).stdout.splitlines()
    assert text[2].split() == ["0", "kernel", "decoder_embed", "p0+0", "block", "0,", "p0+16", "arg",
                               "0"], text[2]
    assert text[-1].endswith(f"of {found['blocks']} blocks"), text[-1]
    for bad in (["--batch", "0"], ["--batch", "65"], ["file"], ["--what"]):
        assert "reprise inspect" in run(reprise, *bad, code=2).stderr


if __name__ == "__main__":
    main()
