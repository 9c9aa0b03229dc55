#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `reprise explain` prints: explanations, what is near, its use.

usage: check_explain.py REPRISE
"""

import subprocess
import sys


def explain(*words):
    done = subprocess.run([sys.argv[1], "explain", *words], capture_output=True, text=True,
                          check=False)
    return done.returncode, done.stdout, done.stderr


def check_found():
    code, out, err = explain("901")
    assert (code, err) == (0, ""), (code, err)
    assert out.startswith("901 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: "), out
    assert "reprise.check(fn, *args)" in out, out
    assert max(map(len, out.splitlines()[1:])) <= 78, out
    assert explain("CUDA", "error:", "operation not permitted when stream is capturing")[1] \
        == explain("900")[1]
    code, out, err = explain("RuntimeError: RNG op during graph capture but could not find the "
                             "CUDAGraph object. This should not happen.")
    assert code == 0 and out.startswith("random-in-unknown-capture: "), out
    assert "begin the capture with reprise.graphed" in " ".join(out.split()), out
    code, out, err = explain("Generator", "not", "registered", "with", "the", "capturing", "graph.")
    assert code == 0 and out.startswith("random-generator: ") and "generators=[g]" in out, out
    code, out, err = explain("901", "904")
    assert code == 0 and out.index("\n904 ") > out.index("901 "), out


def check_near():
    code, out, err = explain("item")
    assert (code, out) == (1, ""), (code, out)
    first, *near = err.splitlines()
    assert first.startswith("reprise explain: nothing is known of 'item'; "), err
    assert [line.split()[0] for line in near] == ["aten::item"], err
    code, out, err = explain("memory")
    assert len(err.splitlines()) == 9, err  # eight of many
    for nothing in ("frobnicate", "a b", "x" * 100):
        code, out, err = explain(nothing)
        assert (code, out, len(err.splitlines())) == (1, "", 1), err
        assert err.endswith("'reprise explain --list' shows what is\n"), err


def check_use():
    assert explain()[0] == 2
    assert explain("--nonsense")[0] == 2
    code, out, err = explain("--help")
    assert (code, err) == (0, "") and out.startswith("usage: reprise explain"), out
    for line in out.splitlines():  # each example is known
        if line.startswith("    reprise explain "):
            words = line.split()[2:]
            assert explain(*(word.strip("'") for word in words))[0] == 0, line


def main():
    check_found()
    check_near()
    check_use()
    print("explain: codes, messages and names are explained, and what is near is listed")


if __name__ == "__main__":
    main()
