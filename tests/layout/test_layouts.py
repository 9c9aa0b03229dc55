# SPDX-License-Identifier: MIT
"""Layouts that `reprise plan` writes are right, bounds are exact, and the checker finds faults.

    test_layouts.py REPRISE SOURCE_DIR WORK_DIR
"""

import glob
import importlib.util
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import programs  # noqa: E402

REPRISE, SOURCE, WORK = sys.argv[1:4]
os.makedirs(WORK, exist_ok=True)
CHECKER = os.path.join(SOURCE, "scripts", "check_layout.py")
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("check_layout", CHECKER)
check_layout = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_layout)


def plan(path, *options):
    out = os.path.join(WORK, "layout.out")
    done = subprocess.run(
        [REPRISE, "plan", "--json", "--out", out, *options, path], capture_output=True, check=True
    )
    (answer,) = json.loads(done.stdout)
    return answer, out


def check(path, layout, *options):
    """The checker's exit code, by its own command line."""
    return subprocess.run(
        [sys.executable, CHECKER, *options, path, layout], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, check=False
    ).returncode


def faults_in(path, layout):
    """The same, without a process."""
    faults = check_layout.Faults()
    check_layout.check_captures(
        check_layout.read_text(path), check_layout.read_text(layout), None, faults
    )
    return faults.count


def test_bundled_files():
    captures = sorted(glob.glob(os.path.join(SOURCE, "examples", "captures", "*.json.gz")))
    problems = sorted(glob.glob(os.path.join(SOURCE, "tests", "data", "dsa", "*.csv")))
    assert len(captures) == 7 and len(problems) == 5
    for path in captures + problems:
        answer, layout = plan(path)
        assert answer["pool_bytes"] >= answer["lower_bound_bytes"]
        assert check(path, layout) == 0, path
    _, layout = plan(captures[0], "--align", "4096")
    assert check(captures[0], layout, "--align", "4096") == 0
    _, layout = plan(problems[0], "--align", "64")
    assert check(problems[0], layout, "--align", "64") == 0


def conflicts(raw):
    """Sizes, and for each block of the file a bit for each that it may not share memory with."""
    captures = {c["name"]: check_layout.Capture(c) for c in raw["captures"]}
    paths = check_layout.paths_of(raw["compose"])
    blocks = [(c, b) for c in captures.values() for b in c.bytes]
    masks = [0] * len(blocks)
    for i, (c, a) in enumerate(blocks):
        for j, (d, b) in enumerate(blocks[:i]):
            if c is d:
                clash = not c.gives(a, b) and not c.gives(b, a)
            else:
                kind, first = check_layout.relation(paths[c.name], paths[d.name])
                earlier, block = (c, a) if first else (d, b)
                clash = kind == "concurrent" or (
                    kind == "sequence" and block not in earlier.freed
                )
            if clash:
                masks[i] |= 1 << j
                masks[j] |= 1 << i
    return [-(-c.bytes[b] // 512) * 512 for c, b in blocks], masks


def heaviest_clique(sizes, masks, candidates):
    best = 0
    while candidates:
        top = candidates.bit_length() - 1
        candidates &= ~(1 << top)
        best = max(best, sizes[top] + heaviest_clique(sizes, masks, candidates & masks[top]))
    return best


def test_random_programs():
    path = os.path.join(WORK, "random.json")
    for seed in range(100):
        small = seed % 3 > 0
        raw = programs.recording(seed, 1 + seed % 6, 25 if small else 200, 3 if small else 50)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(raw, file)
        answer, layout = plan(path, "--budget-steps", "5000000")
        assert faults_in(path, layout) == 0, f"seed {seed}: {raw['compose']}"
        assert answer["pool_bytes"] == max(c["planned_bytes"] for c in answer["captures"])
        assert answer["bound_exact"] is True
        if small:
            sizes, masks = conflicts(raw)
            exact = heaviest_clique(sizes, masks, (1 << len(sizes)) - 1)
            assert answer["lower_bound_bytes"] == exact, f"seed {seed}: {raw['compose']}"


def test_alternatives_beside_what_is_placed():
    """A left-out alternative, beside a concurrent capture and before a later one that overlap."""
    compose = {"sequence": [{"concurrent": [{"alternatives": ["c0", "c1"]}, "c2"]}, "c3"]}
    path = os.path.join(WORK, "random.json")
    for seed in range(40):
        raw = dict(programs.recording(seed, 4, 60, 12), compose=compose)
        write(path, raw)
        _, layout = plan(path, "--budget-steps", "5000000")
        assert faults_in(path, layout) == 0, f"seed {seed}"


def write(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)


def test_checker_finds_faults():
    path = os.path.join(SOURCE, "examples", "captures", "towers4.json.gz")
    _, layout = plan(path)
    with open(layout, encoding="utf-8") as file:
        good = json.load(file)
    assert check(path, layout) == 0
    bad = os.path.join(WORK, "bad.json")

    def broken(change):
        copy = json.loads(json.dumps(good))
        change(copy)
        write(bad, copy)
        return check(path, bad)

    offsets = good["captures"][0]["offsets"]
    used = sorted(range(len(offsets)), key=lambda i: offsets[i][1])

    def move(copy):
        copy["captures"][0]["offsets"][used[-1]][1] = 0

    assert broken(move) == 1
    assert broken(lambda c: c["captures"][0]["offsets"].pop()) == 1
    assert broken(lambda c: c["captures"][0]["offsets"].append(offsets[0])) == 1
    assert broken(lambda c: c["captures"][0]["offsets"].append([10**6, 0])) == 1
    assert broken(lambda c: c["captures"].pop()) == 1
    assert broken(lambda c: c["captures"].append(c["captures"][0])) == 1
    assert broken(lambda c: c.update(pool_bytes=c["pool_bytes"] + 512)) == 1

    def shift(copy):
        for pair in copy["captures"][0]["offsets"]:
            pair[1] += 1

    assert broken(shift) == 1
    assert broken(lambda c: c.pop("captures")) == 2
    assert check(path, os.path.join(WORK, "missing")) == 2


def test_checker_finds_overlaps_between_captures():
    one = {
        "name": "a", "nodes": ["kernel"], "edges": [], "streams": 1,
        "events": [["alloc", 1, 512, 0, [0]], ["alloc", 2, 512, 0, [0]], ["free", 1, 0, [0]]],
    }
    path, bad = os.path.join(WORK, "two.json"), os.path.join(WORK, "bad.json")
    over = {"captures": [{"name": "a", "offsets": [[1, 0], [2, 512]]},
                         {"name": "b", "offsets": [[1, 512], [2, 0]]}]}
    behind = {"captures": [over["captures"][0],
                           {"name": "b", "offsets": [[1, 0], [2, 1024]]}]}
    apart = {"captures": [over["captures"][0],
                          {"name": "b", "offsets": [[1, 1024], [2, 1536]]}]}
    for kind, layout, code in [
        ("alternatives", over, 0), ("sequence", over, 1), ("concurrent", over, 1),
        ("sequence", behind, 0), ("concurrent", behind, 1), ("concurrent", apart, 0),
    ]:
        raw = {"format": "reprise-capture/1", "captures": [one, dict(one, name="b")],
               "compose": {kind: ["a", "b"]}}
        write(path, raw)
        write(bad, layout)
        assert check(path, bad) == code, kind


def test_checker_reads_csv():
    path, bad = os.path.join(WORK, "in.csv"), os.path.join(WORK, "bad.csv")
    with open(path, "w", encoding="utf-8") as file:
        file.write("id,lower,upper,size\na,0,2,10\nb,1,3,5\nc,2,4,10\n")
    for offsets, code in [((0, 10, 0), 0), ((0, 9, 0), 1), ((0, 10, 11), 1), ((0, 10, -1), 1)]:
        with open(bad, "w", encoding="utf-8") as file:
            file.write("id,lower,upper,size,offset\n")
            for row, offset in zip(["a,0,2,10", "b,1,3,5", "c,2,4,10"], offsets):
                file.write(f"{row},{offset}\n")
        assert check(path, bad) == code, offsets
    with open(bad, "w", encoding="utf-8") as file:
        file.write("id,lower,upper,size,offset\na,0,2,10,0\nb,1,3,5,10\n")
    assert check(path, bad) == 1


def main():
    tests = [value for name, value in sorted(globals().items()) if name.startswith("test_")]
    for test in tests:
        test()
        print(f"{test.__name__}: right")


main()
