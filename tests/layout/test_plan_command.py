# SPDX-License-Identifier: MIT
"""`reprise plan` as scripts see it: its JSON, its exit codes, and the figures of the bundled files.

    test_plan_command.py REPRISE SOURCE_DIR WORK_DIR
"""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree

REPRISE, SOURCE, WORK = sys.argv[1:4]
os.makedirs(WORK, exist_ok=True)
MIB = 1 << 20
SVG = "{http://www.w3.org/2000/svg}"

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
    "file", "pool_bytes", "lower_bound_bytes", "bound_exact", "proof", "optimal", "stopped",
    "steps", "ms", "c10_default_bytes", "c10_reuse_bytes", "captures",
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
        assert answer["stopped"] is None or answer["proof"] is None
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


def test_budgets():
    hard = problem("K.1048576.csv")
    (few,) = answers("--budget-steps", "1000000", hard)
    assert few["stopped"] == "budget" and few["proof"] is None
    assert 1000000 <= few["steps"] < 2000000
    (again,) = answers("--budget-steps", "1000000", hard)
    assert all(few[key] == again[key] for key in FILE_KEYS if key != "ms")
    (more,) = answers("--budget-steps", "20000000", hard)
    assert more["pool_bytes"] <= few["pool_bytes"] and more["steps"] >= 20000000
    (timed,) = answers("--budget-ms", "1", hard)
    assert timed["stopped"] == "budget"
    assert answers(problem("A.1048576.csv"))[0]["stopped"] is None
    _, out, _ = run("--budget-steps", "1000000", hard)
    assert "stopped by the budget" in out
    status, out, _ = run("--budget-steps", "1000000", "--capacity", str(MIB), hard)
    assert status == 1 and "no fit found: stopped by the budget" in out
    status, _, err = run("--budget-steps", "5", "--budget-ms", "5", hard)
    assert status == 2 and "not both" in err


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
    for option in ["--json", "--capacity", "--budget-steps", "--budget-ms", "--threads", "--align", "--out"]:
        assert option in out


def drawn_texts(*args):
    path = os.path.join(WORK, "drawn.svg")
    status, _, err = run("--draw", path, *args)
    assert status == 0, err
    root = xml.etree.ElementTree.parse(path).getroot()
    return [(t.get("class"), "".join(t.itertext())) for t in root.iter(SVG + "text")], root


def test_drawings_tell_the_peak():
    """How much is alive at most, where, and when first."""
    for name in ("llama", "towers4", "gpt2_train"):
        texts, _ = drawn_texts(capture_file(name))
        (layout,) = answers(capture_file(name))
        told = [text.split() for style, text in texts if style == "when much"]
        assert [t[0] for t in told] == ["peak"] * len(layout["captures"]), told
        for (_, amount, unit), capture in zip(told, layout["captures"]):
            bytes_told = float(amount) * {"KiB": 1024, "MiB": MIB, "GiB": 1 << 30}[unit]
            assert abs(bytes_told / capture["peak_bytes"] - 1) < 0.06, (name, amount, capture)
    # Most is alive from 7 on, where one block ends as the next begins; the axis begins at 3.
    path = made("peak.csv", "id,lower,upper,size\na,3,7,1024\nb,7,11,4096\nc,5,9,2048\nd,12,23,6144\n")
    texts, root = drawn_texts(path)
    assert ("when much", "peak 6 KiB") in texts and ("when", "time 7") in texts, texts
    (line,) = [p.get("d") for p in root.iter(SVG + "path") if p.get("class") == "peak"]
    (base,) = [p.get("d") for p in root.iter(SVG + "path") if p.get("class") == "base"]
    left, width = float(base[1:].split()[0]), float(base.split("h")[1])
    assert abs(float(line[1:].split()[0]) - (left + width * (7 - 3) / (23 - 3))) < 0.1, (line, base)
    # The alignment counts: 3 and 2 units of 512 instead of 1100 and 1000 bytes.
    path = made("aligned.csv", "id,lower,upper,size\na,0,2,1100\nb,1,3,1000\n")
    assert ("when much", "peak 2.5 KiB") in drawn_texts("--align", "512", path)[0]


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
