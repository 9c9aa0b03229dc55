#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What bench/torch does around its measurements, without PyTorch and without a GPU: processes in
turns, sides that fail or hang, medians, tables, verdicts; and that the programs of streams.py are
those of `reprise bench sweep`.

usage: check_torch.py REPRISE FOLDER
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import types
from unittest import mock

FAKE = '''
import os, sys, time
SIDES = {"work": ["eager", "graph", "graph-reuse", "callables", "reprise", "reduce-overhead"]}
FRESH = %(fresh)s
TURNS = 2
def prepare(torch, side, workload):
    assert workload == "work"
    if side.name == "callables":
        raise ValueError("no such thing\\nas this")
    if side.name == "graph-reuse":
        os._exit(3)
    if side.name == "reprise":
        time.sleep(30)
    told = []
    def measure():
        told.append(len(told))
        print("not for standard output")
        return {"host_us": 10.0 + len(told), "allocator": os.environ.get("PYTORCH_ALLOC_CONF", ""),
                "cores": len(os.sched_getaffinity(0))}
    return {"pid": os.getpid(), "equal": True, "cores": len(os.sched_getaffinity(0))}, measure
'''


AHEAD = '''
import os, time
SIDES = {"work": ["eager"], "more": ["graph"]}
FRESH = False
AHEAD = 2
def prepare(torch, side, workload):
    open(%(folder)r + side.name, "w").close()
    for _ in range(1000):
        if all(os.path.exists(%(folder)r + name) for name in ("eager", "graph")):
            return {}, dict
        time.sleep(0.01)
    raise TimeoutError("the other side was not begun")
'''


def fake_torch():
    torch = types.ModuleType("torch")
    torch.__version__ = "0"
    torch.backends = types.SimpleNamespace(cudnn=types.SimpleNamespace())
    torch.set_num_threads = lambda count: None
    sys.modules["torch"] = torch


def write_group(folder, name, fresh):
    with open(os.path.join(folder, name + ".py"), "w", encoding="utf-8") as file:
        file.write(FAKE % {"fresh": fresh})


def check_kept(compare):
    """Processes stay, measure in turns, and what fails tells why and hinders nobody."""
    parts = []
    comparison = compare.Comparison("fake_kept", rounds=3, limit=4)
    comparison.run(lambda: parts.append(1))
    result = comparison.result()
    sides = result["workloads"]["work"]
    assert parts == [1]
    assert [t["host_us"] for t in sides["eager"]["turns"]] == [11, 12, 13, 14, 15, 16], sides
    assert sides["eager"]["median"]["host_us"] == 13.5
    assert sides["eager"]["spread"]["host_us"] == [11, 16]
    assert len(sides["eager"]["prepared"]) == 1
    assert sides["eager"]["prepared"][0]["cores"] == len(os.sched_getaffinity(0))
    assert all(t["cores"] == 1 for t in sides["eager"]["turns"])
    assert sides["callables"]["errors"] == ["ValueError: no such thing"]
    assert sides["graph-reuse"]["errors"] == ["the process ended with 3"]
    assert sides["reprise"]["errors"] == ["took longer than 4 s"]
    assert len(sides["reduce-overhead"]["turns"]) == 6
    pids = {s: f["median"]["pid"] for s, f in sides.items() if "pid" in f["median"]}
    assert len(set(pids.values())) == 3 and os.getpid() not in pids.values(), pids
    return result


def check_fresh(compare):
    """New processes in each round, in turns; those that take part in one round only do."""
    told = []
    comparison = compare.Comparison("fake_fresh", rounds=3, limit=20, tell=told.append,
                                    sides=["eager", "graph", "graph-reuse"])
    comparison.run()
    sides = comparison.result()["workloads"]["work"]
    assert len({p["pid"] for p in sides["eager"]["prepared"]}) == 3
    assert all(p["cores"] == 1 for p in sides["eager"]["prepared"])
    assert len(sides["graph-reuse"]["prepared"]) == 1  # see sides.py
    order = [text.split()[1] for text in told]
    assert order == ["eager", "graph", "graph-reuse", "eager", "graph", "eager", "graph"], order
    over = compare.Comparison("fake_fresh", budget=0, sides=["eager"])
    over.run()
    assert over.result()["workloads"]["work"]["eager"]["prepared"] == []


def check_ahead(compare, scratch):
    """Workloads that are prepared at the same time."""
    with open(os.path.join(scratch, "fake_ahead.py"), "w", encoding="utf-8") as file:
        file.write(AHEAD % {"folder": os.path.join(scratch, "begun-")})
    comparison = compare.Comparison("fake_ahead", rounds=1, limit=20)
    comparison.run()
    for sides in comparison.result()["workloads"].values():
        facts, = sides.values()
        assert facts["prepared"] == [{}] and facts["turns"] == [{}] and "errors" not in facts, facts


def run_of(*turns):
    """A side's run; turns: calls, seconds and, of "auto", what it chose and how often it switched,
    which is told where it changes."""
    told, last = [], None
    for calls, seconds, *chosen in turns:
        told.append({"calls": calls, "seconds": seconds})
        if chosen and chosen != last:
            told[-1]["choices"] = [{"choice": c, "switches": n} for c, n in chosen]
        last = chosen
    return told


def rounds_of(**runs):
    """The rounds of such runs, side by side."""
    count = max(map(len, runs.values()))
    return [{name: run[i] for name, run in runs.items() if i < len(run)} for i in range(count)]


def check_policy(bench_policy):
    """Runs are extended by hand: what is paid once counts once, and what goes on goes on."""
    def judged_as(auto, cold=0.002, **others):
        n = len(auto)
        others = others or {"eager": run_of(*n * [(100, 1.0)]), "graph": run_of(*n * [(100, 0.1)])}
        rounds = rounds_of(**others, auto=auto)
        rounds[0].get("graph", {})["cold"] = {"calls": 2, "seconds": cold}
        return bench_policy.verdict(rounds)
    eager, graph = ("eager", 0), ("graph", 1)
    told = judged_as(run_of((50, 0.3, eager), (50, 0.15, graph), (100, 0.1, graph),
                            (100, 0.1, graph), (100, 0.1, graph)))
    # 400 calls in 0.75 s, then 19,600 of 1 ms; beside 20,000 of 1 ms by graph.
    assert told["first"] == 3 and not told["whole"] and told["best"] == "graph", told
    assert abs(told["auto_s"] - 20.35) < 1e-9 and abs(told["best_s"] - 20) < 1e-9, told
    assert abs(told["allowed_s"] - 20.45) < 1e-9 and told["holds"], told
    assert abs(told["early_ms"] - 350) < 1e-6 and told["ratio"] == (1, 0), told
    late = run_of((50, 0.5, eager), (50, 0.5, eager), (50, 0.5, eager), (50, 0.3, graph),
                  (100, 0.1, graph), (100, 0.1, graph))
    told = judged_as(late)  # the turn that it switched in is none of the later ones
    assert told["first"] == 4 and abs(told["auto_s"] - (2.0 + 19.6)) < 1e-9, told
    assert not told["holds"] and not told["holds_captured"], told
    told = judged_as(late, cold=1.202)  # a graph whose capture took 1.2 s
    assert abs(told["graph_capture_ms"] - 1200) < 1e-6 and not told["holds"], told
    assert told["holds_captured"] and abs(told["allowed_captured_s"] - 21.674) < 1e-9, told
    rounds = run_of(*4 * [(100, 0.1, graph)], (100, 0.1, graph), (100, 0.1, graph),
                    (100, 0.113, graph), (100, 0.1, graph))
    told = judged_as(rounds)  # a round in every fourth turn goes on: 3.25 % more
    assert abs(told["auto_s"] - (0.813 + 19.2 * 1.0325)) < 1e-9 and not told["holds"], told
    assert abs(told["ratio"][0] - 1.0325) < 1e-9 and told["ratio"][1] > 0.03, told
    whole = run_of(*8 * [(2500, 2.5, graph)])
    told = judged_as(whole)
    assert told["whole"] and abs(told["auto_s"] - 20) < 1e-9, told
    told = judged_as(whole, eager=[{"error": "no"}], graph=run_of(*8 * [(2500, 2.5)]))
    assert told["holds"] and told["errors"] == {"eager": ["no"]}, told
    assert judged_as(run_of((10, 1.0, eager))) is None  # no time was left
    assert judged_as(whole, eager=[{"error": "no"}]) is None


def check_medians(common):
    rounds = [{"a": 1.0, "b": {"c": 5}, "equal": True, "n": "x"},
              {"a": 3.0, "b": {"c": 5}, "equal": False, "n": "x"}, {"a": 2.0, "d": 7}]
    assert common.median(rounds) == {"a": 2.0, "b": {"c": 5}, "equal": False, "n": "x", "d": 7}
    assert common.spread(rounds) == {"a": [1.0, 3.0]}
    following = common.turns([1, 2, 3])
    assert [following() for _ in range(4)] == [2, 3, 1, 2]


def check_tables(tables, result):
    columns = (("host_us", "host us", 1), ("nothing", "nothing", 1))
    text = tables.summary(result, columns, {})
    assert "nothing" not in text.splitlines()[1] and "13.5" in text, text
    assert "callables: ValueError: no such thing" in text, text
    figures = {"s8 0.40 0.10": {"pool_mib": 4}, "a": {"b": {"c": 1}}}
    assert tables.look_up(figures, "s8 0.40 0.10.pool_mib") == 4
    assert tables.look_up(figures, "a.b.c") == 1 and tables.look_up(figures, "a.x") is None
    sides = {"graph": {"median": {"t": 4.0, "bare": 2.0}}, "eager": {"median": {"t": 9.0}},
             "reprise": {"median": {"t": 3.0}, "spread": {"t": [2.5, 3.5]}}}
    line, = tables.compared(sides, (("t", "t", 1),), {"t": "bare"})
    assert "3.0 (reprise, 2.5 to 3.5) beside 4.0 (graph)" in line, line
    assert line.endswith("0.750; to the limit of 2.0: 1.500"), line


def forum(after, budget):
    sizes = {f"after_{n}": {"device_mib": mib, "seconds": n / 100}
             for n, mib in zip((1, 128, 512), after)}
    return {"median": {**sizes, "exec_budget_mib": budget, "pool_mib": 10.0, "bound_mib": 9.95,
                       "mapped_mib": 10.0, "estimate_mib": 10.0}}


def losses(bits):
    return {"median": {"loss_bits": bits}}


def judged(folder, script, *results):
    paths = []
    for i, (group, workloads) in enumerate(results):
        paths.append(os.path.join(folder, f"result{i}.json"))
        with open(paths[-1], "w", encoding="utf-8") as file:
            json.dump({"result": {"group": group, "workloads": workloads}}, file)
    done = subprocess.run([sys.executable, script, "--json", *paths], capture_output=True, text=True,
                          check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, {v["target"]: v for v in json.loads(done.stdout)}


def check_verdicts(folder, script):
    """Each target can hold and can fail, and says nothing of what was not measured."""
    ours = {"reprise-install": forum((100, 100, 174), 64), "graph": forum((100, 300, 500), 0),
            "eager": forum((0, 0, 0), 0),
            "reprise-install-one-exec": forum((100, 100, 112), 2)}
    code, found = judged(folder, script, ("forum", {"mlp": ours}))
    assert code == 0 and found[1]["holds"] and found[2]["holds"], found
    assert found[3]["holds"] is None and found[6]["holds"] is None
    ours["reprise-install"] = forum((100, 100, 175), 64)
    code, found = judged(folder, script, ("forum", {"mlp": ours}))
    assert code == 1 and found[1]["holds"] is False and found[4]["holds"], found
    ours["reprise-install"]["median"].update(pool_mib=10.1)
    ours["reprise-install"]["median"]["after_512"]["device_mib"] = 501
    _, found = judged(folder, script, ("forum", {"mlp": ours}))
    said = [f for f in found[2]["figures"] if f["holds"] is False]
    assert len(said) == 3, said  # bound, PyTorch's best, estimate
    times = {"host_us": 10.0, "wall_us": 20.0, "throughput_us": 9.0}
    calls = {"graph": {"median": {**times, "bare": {"host_us": 7.1}}},
             **{s: {"median": dict(times)} for s in ("reprise-install", "reduce-overhead",
                                                     "reprise-install-compiled")}}
    code, found = judged(folder, script, ("inference", {"mlp": calls}))
    assert code == 0 and found[3]["holds"], found
    calls["reprise-install"]["median"]["host_us"] = 10.2
    code, found = judged(folder, script, ("inference", {"mlp": calls}))
    assert len([f for f in found[3]["figures"] if f["holds"] is False]) == 2, found
    calls["reprise-install"]["turns"] = [{**times, "host_us": h} for h in (10.2, 5.0, 10.2)]
    calls["graph"]["turns"] = [{**times, "host_us": h} for h in (10.3, 5.1, 5.0)]
    _, found = judged(folder, script, ("inference", {"mlp": calls}))
    said = [f["text"] for f in found[3]["figures"] if f["holds"] is False]
    assert len(said) == 1 and "bare replay" in said[0], said  # turn by turn it is ahead
    calls["reprise-install"]["turns"][1]["host_us"] = 5.2
    _, found = judged(folder, script, ("inference", {"mlp": calls}))
    assert any("turn by turn: 1.02, at most 1" in f["text"] for f in found[3]["figures"]), found
    eager = {s: {"median": {"wall_us": w, "reserved_mib": 5, "device_mib": 5}}
             for s, w in (("eager", 1000.0), ("reprise-eager", 1010.0))}
    train = {"eager": losses("a"), "graph": losses("b"), "reprise-install-whole": losses("a")}
    code, found = judged(folder, script, ("allocator", {"resnet50": eager}),
                         ("training", {"gpt2": train}))
    assert code == 0 and found[5]["holds"] and found[6]["holds"], found
    eager["reprise-eager"]["median"]["wall_us"] = 1011.0
    train["reprise-install-whole"] = losses("b")
    code, found = judged(folder, script, ("allocator", {"resnet50": eager}),
                         ("training", {"gpt2": train}))
    assert code == 1 and found[5]["holds"] is False and found[6]["holds"] is False, found
    done = subprocess.run([sys.executable, script, os.devnull], capture_output=True, check=False)
    assert done.returncode == 2


def check_programs(streams, reprise):
    """As many blocks and nodes, in each configuration: other random numbers would give others."""
    done = subprocess.run([reprise, "bench", "sweep", "--driver", "host", "--steps", "500", "--seeds",
                           str(streams.SEED), "--json"], capture_output=True, text=True, check=True)
    for case in json.loads(done.stdout):
        steps = list(streams.program(case["streams"], case["steps"], case["p_free"], case["p_join"],
                                     case["seed"]))
        made = [step for step in steps if step[0] == "make"]
        assert len(made) == case["blocks"], (case, len(made))
        assert 2 * len(made) <= case["nodes"], case
        # The default rule keeps every block to the end, and PyTorch's segments hold them.
        total = sum(size for _, _, size, _ in made)
        assert total <= case["c10_default_bytes"] <= 1.2 * total, (case, total)


def check_front_door(folder, scratch, result):
    """The list names sides that exist; kept results are shown, others are told to be none."""
    script = os.path.join(folder, "bench_torch.py")

    def run(*options):
        return subprocess.run([sys.executable, "-B", script, *options], capture_output=True, text=True,
                              check=False)
    listed = run("--list")
    assert listed.returncode == 0, listed.stderr
    import sides
    for line in listed.stdout.splitlines():
        workload, names = line.split(": ")
        assert all(name in sides.SIDES for name in names.split(", ")), line
        assert len(workload.split(" ", 1)) == 2, line
    path = os.path.join(scratch, "kept.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"result": {**result, "group": "inference"}}, file)
    shown = run("--show", path)
    assert shown.returncode == 0 and "inference work" in shown.stdout, shown.stderr
    assert run("--show", os.path.join(folder, "common.py")).returncode == 2
    assert run().returncode == 2


def check_others(others, scratch):
    """The verdict on a program of others."""
    right = {"verdict": "right"}
    kept = {"calls": 8, "replays": 4}
    eager = {"calls": 8, "replays": 3}
    for wanted, result, counted, code in (
            ("right", right, kept, 0), ("right", {"equal": True}, {"calls": 0, "replays": 0}, 0),
            ("refused", right | {"warned": ["it prints"]}, eager, 0),
            ("refused", {"warnings": ["it prints"]}, eager, 0),
            ("eager", right | {"warned": []}, eager, 0),
            ("wrong", {"verdict": "WRONG IN SILENCE"}, kept, 0), ("wrong", {"equal": False}, kept, 0),
            ("wrong", {"verdict": "wrong, warned", "warned": ["it prints"]}, eager, 0),
            ("wrong", {"eager_len": 8, "graphed_len": 3}, kept, 0),
            ("error", {"error": "TypeError"}, kept, 0), ("crash", None, None, -6),
            ("crash", right, kept, -6)):
        found = others.judge(result, counted, code)
        assert found == wanted, (found, wanted, result)
    program = os.path.join(scratch, "cases.py")
    with open(program, "w", encoding="utf-8") as file:
        file.write("def helper(): pass\n@print\ndef one(): pass\n@print\ndef two(): pass\n")
    assert others.cases_of(program) == ["one", "two"]
    beside, alone = others.cases([program], ["two"])
    assert beside == [(program, "one", False), (program, "one", True)]
    assert alone == [(program, "two", False), (program, "two", True)]
    check_alone(others, program, scratch)


def check_alone(others, program, scratch):
    """Those that run by themselves come last, one after the other."""
    running, seen, lock = [], [], threading.Lock()

    def row_of(_, name, install, limit_s):
        with lock:
            running.append(name)
            seen.append((name, len(running)))
        time.sleep(0.02)
        with lock:
            running.remove(name)
        return {"program": program, "name": name, "install": install, "verdict": "right"}
    argv = ["others.py", os.path.join(scratch, "others.json"), "--program", program, "--jobs", "4"]
    with mock.patch.object(others, "row_of", row_of), mock.patch("sys.argv", argv + ["--alone", "one"]), \
            contextlib.redirect_stdout(io.StringIO()) as told:
        assert others.main() == 0
    assert told.getvalue() == "4 right\n"
    assert [name for name, _ in seen] == ["two", "two", "one", "one"]
    assert [beside for _, beside in seen[2:]] == [1, 1]
    told = io.StringIO()
    with mock.patch("sys.argv", argv + ["--alone", "three"]), contextlib.redirect_stderr(told), \
            contextlib.suppress(SystemExit):
        others.main()
    assert "no program has a case three" in told.getvalue()


def main():
    reprise, folder = sys.argv[1:]
    sys.path.insert(0, folder)
    fake_torch()
    with tempfile.TemporaryDirectory() as scratch:
        sys.path.insert(0, scratch)
        write_group(scratch, "fake_kept", False)
        write_group(scratch, "fake_fresh", True)
        import bench_policy
        import common
        import compare
        import others
        import streams
        import tables
        check_medians(common)
        result = check_kept(compare)
        check_fresh(compare)
        check_ahead(compare, scratch)
        check_policy(bench_policy)
        check_tables(tables, result)
        check_verdicts(scratch, os.path.join(folder, "judge.py"))
        check_front_door(folder, scratch, result)
        check_programs(streams, reprise)
        check_others(others, scratch)
    print("check_torch: passed")


if __name__ == "__main__":
    main()
