#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/bench.sh, in a folder of benchmarks made for it.

usage: check_script.py BENCH_SH
"""

import pathlib
import subprocess
import sys
import tempfile


def run(script, root, codes):
    """Runs the benchmarks a, b, ..., which exit with these codes; those that had their turn."""
    for name, code in zip("abc", codes):
        path = root / "bench" / name / "run"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {name} in $1\nexit {code}\n", encoding="utf-8")
        path.chmod(0o755)
    (root / "bench" / "library").mkdir(exist_ok=True)
    done = subprocess.run([script, "out"], cwd=root, capture_output=True, text=True, check=False)
    return done.returncode, [line[0] for line in done.stdout.splitlines() if line.endswith("in out")]


def main():
    script = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        assert run(script, root, (0, 0, 0)) == (0, ["a", "b", "c"])
        assert run(script, root, (0, 77, 0)) == (0, ["a", "b", "c"])  # no GPU here
        assert run(script, root, (0, 77, 77)) == (0, ["a", "b", "c"])
        assert run(script, root, (0, 3, 0)) == (3, ["a", "b"])
    print("bench.sh: a benchmark without its driver is passed over, one that fails ends it")


main()
