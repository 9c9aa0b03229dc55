#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs `reprise advise` on real and made traces: check_advise.py REPRISE TRACES"""
import glob
import gzip
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import unittest

import make_nsys
from make_trace import Trace, model_steps

REPRISE, TRACES = sys.argv[1:3]


def run(*arguments):
    return subprocess.run([REPRISE, "advise", *arguments], capture_output=True, text=True,
                          check=False)


def advise(path):
    result = run("--json", path)
    assert result.returncode in (0, 1), result.stderr
    return json.loads(result.stdout)


def real(name):
    return advise(os.path.join(TRACES, name + ".json.gz"))


def all_traces():
    return sorted(glob.glob(os.path.join(TRACES, "*.json.gz")))


def obstacles(advice):
    return [(o["class"], o["operator"], o["python"]) for o in advice["obstacles"]]


class RealTraces(unittest.TestCase):
    """What an H200 measured against what its traces predict."""

    def test_speedups(self):
        with open(os.path.join(TRACES, "measured.json"), encoding="ascii") as file:
            measured = json.load(file)
        judged = 0
        for path in all_traces():
            name = os.path.basename(path).split(".")[0]
            if name in measured["_fitted"] or measured[name]["graph_us"] is None:
                continue  # the model knows it, or no graph was timed
            advice, times = advise(path), measured[name]
            speedup = times["eager_us"] / times["graph_us"]
            error = advice["speedup"] / speedup - 1
            print(f"{name:16} measured {speedup:5.2f} predicted {advice['speedup']:5.2f} "
                  f"({100 * error:+.1f} %)", file=sys.stderr)
            self.assertEqual(advice["verdict"] == "worth", speedup >= 1.1, name)
            self.assertLess(abs(error), 0.15, name)
            self.assertGreater(advice["speedup_error"], abs(error), name)
            judged += 1
        self.assertGreaterEqual(judged, 7)

    def test_no_trace_contradicts_itself(self):
        for path in all_traces():
            lines = run(path).stdout
            advice = advise(path)
            free = "nothing in it stands in the way" in lines
            self.assertEqual(free, advice["verdict"] in ("worth", "little")
                             and not advice["obstacles"], path)
            self.assertEqual("In the way of a capture" in lines, bool(advice["obstacles"]), path)
            self.assertEqual(advice["measuring_waits"], 1, path)
            self.assertNotIn("cudaDeviceSynchronize", [o["call"] for o in advice["obstacles"]])
            self.assertIn("Not counted: cudaDeviceSynchronize", lines)

    def test_two_digits_with_their_error(self):
        for path in all_traces():
            sentence = run(path).stdout.splitlines()[0]
            for number in re.findall(r"[\d.]+(?= times| ms| us)", sentence):
                self.assertLessEqual(len(number.replace(".", "").strip("0")), 2, sentence)
            self.assertEqual("give or take 20 %" in sentence, "not worth it" not in sentence)
        little = run(os.path.join(TRACES, "resnet50_train.plain.json.gz")).stdout.splitlines()[0]
        self.assertIn("% less time", little)
        self.assertIn("may be off by as much as that: measure it", little)

    def test_item_at_the_end(self):
        advice = real("item_each_step.stack")
        self.assertEqual(advice["way"], "model")
        self.assertEqual(advice["obstacles"][0]["operator"], "aten::item")
        self.assertIn("make_traces.py", advice["obstacles"][0]["python"])
        self.assertEqual(advice["obstacles"][0]["between"], 0)
        self.assertEqual(advice["obstacles"][0]["count"], 4)

    def test_dynamic_routing(self):
        advice = real("routed_experts.stack")
        self.assertEqual(advice["way"], "parts")
        first = advice["obstacles"][0]
        self.assertEqual((first["class"], first["operator"]), ("data-shape", "aten::nonzero"))
        self.assertEqual((first["count"], first["modules"]), (72, 6))
        self.assertEqual(advice["regions"]["count"], 24)
        self.assertLess(advice["mended_us"], advice["graph_us"])

    def test_streams_side_by_side(self):
        advice = real("two_streams.plain")
        self.assertEqual(len(advice["streams"]), 2)
        iteration = advice["iterations"]["list"][advice["iterations"]["typical"]]
        self.assertLess(iteration["chain_us"], 0.6 * iteration["busy_us"])

    def test_people_read_the_verdict_first(self):
        result = run(os.path.join(TRACES, "decoder_step.plain.json.gz"))
        self.assertEqual(result.returncode, 0)
        self.assertTrue(result.stdout.startswith("CUDA graphs are worth it here: about 3."),
                        result.stdout)
        result = run(os.path.join(TRACES, "matmul_chain.plain.json.gz"))
        self.assertEqual(result.returncode, 1)
        self.assertTrue(result.stdout.startswith("CUDA graphs are not worth it here"))

    def test_given_time(self):
        path = os.path.join(TRACES, "decoder_step.plain.json.gz")
        advice = json.loads(run("--json", "--eager-us", "3791.68", path).stdout)
        self.assertAlmostEqual(advice["eager_us"], 3791.68, 3)
        self.assertEqual(advice["speedup_error"], 0.1)
        self.assertLess(abs(advice["speedup"] / (3791.68 / 1019.05) - 1), 0.05)


class MadeTraces(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, text, name="t.json"):
        path = os.path.join(self.folder.name, name)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return path

    def advise(self, trace):
        return advise(self.write(trace.text()))

    def test_launch_bound(self):
        advice = self.advise(model_steps(Trace()))
        self.assertEqual((advice["verdict"], advice["way"]), ("worth", "iteration"))
        self.assertEqual(advice["kernels"], 40)
        self.assertEqual(len(advice["iterations"]["list"]), 4)
        self.assertAlmostEqual(advice["device_us"], 200.0, 3)
        self.assertEqual(advice["obstacles"], [])
        self.assertEqual(advice["work_outside_iterations"], 0)

    def test_device_bound(self):
        advice = self.advise(model_steps(Trace(), kernel_us=900.0))
        self.assertEqual(advice["verdict"], "not")
        self.assertAlmostEqual(advice["device_us"], 36000.0, 3)

    def test_order_of_the_file_does_not_matter(self):
        def report(seed):
            trace = model_steps(Trace(), middle=None)
            return self.advise(trace.shuffled(seed) if seed else trace)
        first = report(0)
        for seed in range(1, 6):
            self.assertEqual(report(seed), first)

    def test_steps_found_by_repetition(self):
        marked = self.advise(model_steps(Trace(), kernels=23))
        found = self.advise(model_steps(Trace(), kernels=23).without_steps())
        self.assertEqual(found["iterations"]["found_by"], "repetition")
        self.assertEqual(len(found["iterations"]["list"]), len(marked["iterations"]["list"]))
        self.assertEqual(found["kernels"], marked["kernels"])

    def test_no_repetition(self):
        trace = Trace()
        for k in range(30):
            trace.kernel("unique%d" % (k * k), 5.0)
        advice = self.advise(trace)
        self.assertEqual(advice["iterations"]["found_by"], "none")
        self.assertEqual(advice["kernels"], 30)

    def test_item_between_kernels(self):
        trace = Trace()
        advice = self.advise(model_steps(trace, middle=lambda: trace.frame(
            "train.py(20): check", [trace.read_back])))
        first = advice["obstacles"][0]
        self.assertEqual((first["class"], first["operator"], first["python"], first["caller"]),
                         ("host-read", "aten::item", "train.py(20): check",
                          "train.py(12): forward"))
        self.assertEqual((first["count"], first["between"], first["iterations"]), (12, 12, 4))
        self.assertEqual(advice["regions"]["count"], 4)
        self.assertEqual(advice["way"], "layers")
        self.assertGreater(advice["graph_us"], advice["mended_us"])
        self.assertIn("once what cuts the iteration is fixed", advice["sentence"])

    def test_synchronisation_without_an_operator(self):
        trace = Trace(python=False)
        advice = self.advise(model_steps(trace, tail=lambda: trace.call("cudaStreamSynchronize", 9)))
        self.assertEqual(obstacles(advice), [("synchronisation", None, None)])
        self.assertEqual(advice["way"], "model")

    def steps_with(self, *which, before=False, call="cudaDeviceSynchronize"):
        """Four iterations; those of the given numbers wait for the device as well."""
        trace = Trace(python=False)
        for number in range(4):
            wait = [lambda: trace.call(call, 9)] if number in which else []
            work = [lambda: [trace.kernel("gemm", 5.0) for _ in range(20)]]
            trace.step(number, wait + work if before else work + wait)
        path = self.write(trace.text())
        return advise(path), run(path).stdout

    def test_waits_of_the_measurement(self):
        for which, before in (((3,), False), ((0,), True)):
            advice, text = self.steps_with(*which, before=before)
            self.assertEqual((advice["obstacles"], advice["measuring_waits"]), ([], 1))
            self.assertIn("nothing in it stands in the way", text)
        for which, before in (((2,), False), ((0,), False), ((3,), True), ((0, 1, 2, 3), False)):
            advice, text = self.steps_with(*which, before=before)
            self.assertEqual(advice["measuring_waits"], 0)
            self.assertEqual(obstacles(advice), [("synchronisation", None, None)])
            self.assertNotIn("nothing in it stands in the way", text)
        advice, _ = self.steps_with(3, call="cudaMalloc")  # no wait at all
        self.assertEqual(obstacles(advice), [("allocation", None, None)])

    def test_ways_say_what_the_list_says(self):
        """Whatever is listed, nothing is said to be free of it."""
        trace = Trace(python=False)
        for body in ("cudaMalloc", "cudaHostAlloc", "cudaStreamSynchronize"):
            for often in (1, 4):
                trace = Trace(python=False)
                for number in range(4):
                    trace.step(number, [
                        lambda: [trace.kernel("gemm", 5.0) for _ in range(20)],
                        lambda n=number: n < often and trace.call(body, 9),
                        lambda: [trace.kernel("gemm", 5.0) for _ in range(20)]])
                text = run(self.write(trace.text())).stdout
                self.assertIn("between kernels", text)
                self.assertNotIn("nothing in it stands in the way", text, (body, often))

    def test_runs_too_short_for_graphs(self):
        trace = Trace(python=False)
        for number in range(4):
            trace.step(number, [lambda: [(trace.kernel("gemm", 5.0),
                                          trace.call("cudaStreamSynchronize", 9))
                                         for _ in range(20)]])
        text = run(self.write(trace.text())).stdout
        self.assertIn("mend what is listed below first", text)
        self.assertNotIn(" 0 graphs", text)

    def test_allocations_and_pinned_memory(self):
        trace = Trace()

        def tail():
            trace.call("cudaMalloc", 90)
            trace.call("cudaHostAlloc", 90)

        advice = self.advise(model_steps(trace, tail=tail))
        self.assertEqual([o[0] for o in obstacles(advice)], ["pinned-memory", "allocation"])
        self.assertEqual(advice["driver_allocations"], 4)

    def test_what_the_cpu_did_in_gaps(self):
        busy_python = self.advise(model_steps(Trace(), python_us=80))["gaps"]
        self.assertGreater(busy_python["python"]["us"], 0.8 * sum(g["us"] for g in
                                                                  busy_python.values()))
        queued = self.advise(model_steps(Trace(), kernel_us=300))["gaps"]
        self.assertGreater(queued["queued"]["count"], 100)

    def test_page_needs_nothing_else(self):
        trace = Trace()
        model_steps(trace, middle=trace.read_back)
        for event in trace.events:
            event["name"] = event["name"].replace("relu", "</script><b onload=x>")
        page = os.path.join(self.folder.name, "page.html")
        path = self.write(trace.text(), "a<b>&\".json")
        self.assertEqual(run("--html", page, path).returncode, 0)
        with open(page, encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(text.count("<script>"), 1)
        self.assertEqual(text.count("</script>"), 1)
        self.assertNotIn("<b onload", text)
        for outside in ("http:", "https:", "//www", "@import", "url(", "src="):
            self.assertNotIn(outside, text)
        self.assertIn("a&lt;b&gt;&amp;&quot;.json", text)
        self.assertIn("aten::item", text)
        rows = re.findall(r'{l:"(.*?)",e:\[(.*?)\]}', text)
        self.assertEqual(rows[0][0], "stream 7")
        self.assertEqual(len(rows[0][1].split(",")), 4 * 43)  # 40 kernels and 3 copies

    def test_page_that_cannot_be_written(self):
        path = self.write(model_steps(Trace()).text())
        self.assertEqual(run("--html", "/nonexistent/page.html", path).returncode, 2)

    def test_already_graphs(self):
        trace = Trace()

        def replay():
            launch = trace.call("cudaGraphLaunch", 8)
            for k in range(20):
                trace.complete("kernel", "node", launch["ts"] + 10 + 6 * k, 5, pid=0, tid=7,
                               device=0, stream=7, correlation=launch["args"]["correlation"],
                               **{"graph node id": k + 1, "graph id": 3})
            trace.now += 200

        for number in range(3):
            trace.step(number, [replay])
        self.assertEqual(self.advise(trace)["verdict"], "already")
        self.assertNotIn("What to do", run(self.write(trace.text())).stdout)

    def test_shapes_that_change(self):
        trace = Trace()
        for number in range(4):
            trace.step(number, [lambda n=number: [trace.kernel("gemm%d" % (n % 2), 5.0)
                                                  for _ in range(20)]])
        advice = self.advise(trace)
        self.assertFalse(advice["iterations"]["same_kernels"])
        self.assertIn("differ in their kernels", run(self.write(trace.text())).stdout)

    def test_gzip_of_several_members(self):
        text = model_steps(Trace()).text().encode()
        path = self.write(gzip.compress(text[:5000]) + gzip.compress(text[5000:]), "t.json.gz")
        self.assertEqual(advise(path)["kernels"], 40)

    def refused(self, contents, word):
        result = run(self.write(contents, "bad"))
        self.assertEqual(result.returncode, 2, word)
        self.assertEqual(result.stdout, "")
        self.assertIn(word, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)

    def test_files_that_are_no_trace(self):
        text = model_steps(Trace()).text()
        self.refused(b"", "is empty")
        self.refused(gzip.compress(b""), "is empty")
        for cut in (1, 40, len(text) // 2, len(text) - 1):
            self.refused(text[:cut], "cut short")
        whole = gzip.compress(text.encode())
        for cut in (12, len(whole) // 2, len(whole) - 4):
            self.refused(whole[:cut], "cut short")
        self.refused(whole[:200] + b"\0" * 50 + whole[250:], "gzip data is damaged")
        self.refused("hello, world", "does not begin like JSON")
        self.refused(b"NSYS-REP\0", "nsys export --type sqlite")
        self.refused(b"SQLite format 3\0" + b"\0" * 100, "SQLite")
        empty = os.path.join(self.folder.name, "empty.sqlite")
        database = sqlite3.connect(empty)
        database.execute("CREATE TABLE cats (name TEXT)")
        database.commit()
        database.close()
        with open(empty, "rb") as file:
            self.refused(file.read(), "not one that Nsight Systems exports")
        self.refused("{\"a\": 1}", "without traceEvents")
        for none in ("[]", "{\"traceEvents\": []}"):
            self.refused(none, "has no events: let the profiler's schedule reach")
        self.refused(json.dumps({"traceEvents": [{"ph": "B", "name": "x", "ts": 1}]}),
                     "another tool")
        self.refused(model_steps(Trace()).without("kernel", "ac2g").text(), "no GPU work")
        self.refused(text.replace("\"dur\":", "\"dur\"", 1), "colon")
        self.refused(text + "x", "follows the end")

    def nsys(self, trace):
        path = os.path.join(self.folder.name, "made.sqlite")
        if os.path.exists(path):
            os.remove(path)
        make_nsys.write(trace, path)
        return path

    def test_nsight_systems(self):
        """The same events as Nsight Systems' export tell the same."""
        for body in (lambda t: [], lambda t: [t.read_back()],
                     lambda t: [t.kernel("gemm", 5.0) for _ in range(30)]):
            trace = Trace(python=False)
            for number in range(4):
                trace.step(number, [lambda: [trace.kernel(f"k{i}", 6.0) for i in range(20)],
                                    lambda: body(trace)])
            chrome, nsys = self.advise(trace), advise(self.nsys(trace))
            for key in ("verdict", "way", "kernels", "device_us", "eager_us", "graph_us"):
                self.assertEqual(chrome[key], nsys[key], key)
            self.assertEqual([o["class"] for o in chrome["obstacles"]],
                             [o["class"] for o in nsys["obstacles"]])
            self.assertEqual([o["operator"] for o in chrome["obstacles"]],
                             [o["operator"] for o in nsys["obstacles"]])
        no_work = self.nsys(model_steps(Trace()).without("kernel", "gpu_memcpy", "gpu_memset"))
        with open(no_work, "rb") as file:
            self.refused(file.read(), "no GPU work")

    def test_odd_values_are_taken(self):
        text = model_steps(Trace()).text()
        odd = text.replace('"dur": 5.0', '"dur": 5e0').replace(
            '"context": 1', '"context": 1, "memory bandwidth (GB/s)": inf, "deep": [[{}, [1]]]')
        self.assertEqual(advise(self.write(odd))["device_us"], 200.0)

    def test_usage(self):
        self.assertEqual(run().returncode, 2)
        self.assertEqual(run("--eager-us", "0", "x").returncode, 2)
        self.assertEqual(run("/nonexistent").returncode, 2)
        self.assertEqual(run(self.folder.name).returncode, 2)
        self.assertEqual(run("--help").returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
