# SPDX-License-Identifier: MIT
"""`reprise plan` as scripts see it: its JSON, its exit codes, and the figures of the bundled files.

    test_plan_command.py REPRISE SOURCE_DIR WORK_DIR
"""

import json
import os
import subprocess
import sys

REPRISE, SOURCE, WORK = sys.argv[1:4]
os.makedirs(WORK, exist_ok=True)
MIB = 1 << 20

# Lower bound and PyTorch's memory_reserved by both rules, MiB, of examples/captures/README.md.
FIGURES = {
    "bert": (139.0, 166, 166),
    "llama": (64.5, 116, 116),
    "vit": (221.6, 300, 300),
    "gpt2_train": (2098.7, 2132, 2132),
    "resnet50_train": (2640.9, 3300, 3300),
    "streams4x600x1": (154.0, 1252, 290),
    "towers4": (33.0, 122, 112),
}
FILE_KEYS = [
    "file", "pool_bytes", "lower_bound_bytes", "bound_exact", "proof", "optimal", "ms",
    "c10_default_bytes", "c10_reuse_bytes", "captures",
]
CAPTURE_KEYS = [
    "name", "blocks", "total_bytes", "peak_bytes", "lower_bound_bytes", "planned_bytes",
    "c10_default_bytes", "c10_reuse_bytes",
]


def capture_file(name):
    return os.path.join(SOURCE, "examples", "captures", name + ".json.gz")


def problem(name):
    return os.path.join(SOURCE, "tests", "data", "dsa", name)


def made(name, text):
    path = os.path.join(WORK, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def run(*args):
    done = subprocess.run(
        [REPRISE, "plan", *args], capture_output=True, encoding="utf-8", check=False
    )
    return done.returncode, done.stdout, done.stderr


def answers(*args, code=0):
    status, out, err = run("--json", *args)
    assert status == code, (args, status, err)
    return json.loads(out)


def test_figures():
    for answer, (name, figures) in zip(
        answers(*[capture_file(name) for name in FIGURES]), FIGURES.items()
    ):
        bound, default, reuse = figures
        assert answer["file"] == capture_file(name)
        assert round(answer["lower_bound_bytes"] / MIB, 1) == bound, name
        assert abs(answer["c10_default_bytes"] / MIB / default - 1) <= 0.02, name
        assert abs(answer["c10_reuse_bytes"] / MIB / reuse - 1) <= 0.02, name
        assert answer["bound_exact"] is True


def test_json_shape():
    recorded, rows = answers(capture_file("bert"), problem("A.1048576.csv"))
    for answer in recorded, rows:
        assert list(answer) == FILE_KEYS
        assert answer["proof"] in ("bound", "search", None)
        assert answer["optimal"] == (answer["proof"] is not None)
        for capture in answer["captures"]:
            assert list(capture) == CAPTURE_KEYS
            assert capture["planned_bytes"] >= capture["lower_bound_bytes"]
            assert capture["total_bytes"] >= capture["peak_bytes"]
        assert answer["pool_bytes"] == max(c["planned_bytes"] for c in answer["captures"])
    assert [c["name"] for c in recorded["captures"]] == ["b32", "b8", "b1"]
    assert recorded["captures"][0]["blocks"] == 439
    assert rows["c10_default_bytes"] is None and rows["captures"][0]["c10_reuse_bytes"] is None
    assert rows["lower_bound_bytes"] == MIB


def test_capacity():
    (fits,) = answers("--capacity", str(140 * MIB), capture_file("bert"))
    assert fits["fits"] is True
    less = str(fits["lower_bound_bytes"] - 1)
    (too_small,) = answers("--capacity", less, capture_file("bert"), code=1)
    assert too_small["fits"] is False
    pair = made("pair.csv", "id,lower,upper,size\na,0,2,10\nb,1,3,10\n")
    assert answers("--capacity", "20", pair)[0]["fits"] is True
    assert answers("--capacity", "19", pair, code=1)[0]["fits"] is False
    assert run("--capacity", "19", pair)[0] == 1


def test_bad_files_are_reported_beside_the_others():
    bad = made("bad.json", '{"format":"reprise-capture/1","captures":7}')
    good = capture_file("towers4")
    missing = os.path.join(WORK, "no such file")
    first, second, third = answers(bad, good, missing, code=2)
    assert list(first) == ["file", "error"] and first["file"] == bad
    assert "captures" in first["error"] and bad in first["error"]
    assert second["file"] == good and "pool_bytes" in second
    assert list(third) == ["file", "error"]
    status, out, err = run(bad, good)
    assert status == 2 and "4towers" in out and "bad.json" in err
    status, out, err = run(bad)
    assert status == 2 and out == "" and "bad.json" in err
    assert answers("--capacity", "1", bad, good, code=2)[1]["fits"] is False


def test_names_are_escaped():
    odd = made('odd "name"\\ é.csv', "id,lower,upper,size\na,0,2,10\n")
    assert answers(odd)[0]["file"] == odd


def test_names_that_are_no_utf8_leave_the_json_whole():
    path = os.path.join(os.fsencode(WORK), b"odd\xff\xc0.csv")
    with open(path, "wb") as file:
        file.write(b"id,lower,upper,size\na,0,2,10\n")
    done = subprocess.run([REPRISE, "plan", "--json", path], capture_output=True, check=True)
    (answer,) = json.loads(done.stdout.decode("utf-8"))
    assert answer["file"].endswith("odd\ufffd\ufffd.csv")


def test_usage():
    for args in [
        [], ["--no-such-option", "x"], ["--capacity"], ["--capacity", "0", "x"],
        ["--capacity", "12k", "x"], ["--budget-ms", "-1", "x"], ["--threads", "0", "x"],
        ["--align", "3", "x"], ["--align", "99999999999", "x"], ["--out", "o", "x", "y"],
    ]:
        status, out, err = run(*args)
        assert status == 2 and out == "" and err.startswith("reprise plan: "), args
    status, out, err = run("--help")
    assert status == 0 and err == ""
    for option in ["--json", "--capacity", "--budget-ms", "--threads", "--align", "--out"]:
        assert option in out


def test_out():
    out = os.path.join(WORK, "written.json")
    (answer,) = answers("--out", out, capture_file("vit"))
    with open(out, encoding="utf-8") as file:
        layout = json.load(file)
    assert [c["name"] for c in layout["captures"]] == ["b64", "b16", "b4", "b1"]
    assert len(layout["captures"][0]["offsets"]) == answer["captures"][0]["blocks"]
    assert not os.path.exists(out + ".part")
    status, _, err = run("--out", os.path.join(WORK, "no", "such", "folder"), capture_file("vit"))
    assert status == 2 and "no/such/folder" in err


def test_align():
    path = made("align.csv", "id,lower,upper,size\na,0,2,10\nb,1,3,10\n")
    assert answers(path)[0]["pool_bytes"] == 20
    (answer,) = answers("--align", "64", path)
    assert answer["pool_bytes"] == 128 and answer["captures"][0]["total_bytes"] == 128


def test_table():
    status, out, _ = run(capture_file("llama"), problem("K.1048576.csv"))
    assert status == 0
    lines = out.splitlines()
    assert lines[0].split()[:6] == ["MiB", "blocks", "total", "peak", "bound", "planned"]
    row = next(line.split() for line in lines if line.strip().startswith("b64"))
    assert row[1] == "781" and row[4] == "64.5"
    assert lines[-1].startswith("2 files, 8 captures: ")


def main():
    tests = [value for name, value in sorted(globals().items()) if name.startswith("test_")]
    for test in tests:
        test()
        print(f"{test.__name__}: right")


main()
