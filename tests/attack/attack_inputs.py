# SPDX-License-Identifier: MIT
"""Files that the command reads: pipes, marks, long paths, limits, times, cost.

    attack_inputs.py REPRISE SOURCE_DIR
"""
import gzip
import io
import json
import os
import re
import shutil
import threading
import time

from arena import Arena, Trace, main, model_steps, recording, run

REASON = "No such file or directory"


class Reading(Arena):
    def test_pipes(self):
        text = model_steps(Trace()).text().encode()
        for contents in (text, gzip.compress(text)):
            for name in ("/dev/stdin", "-"):
                self.assertEqual(run("advise", name, input=contents).returncode, 0)
        fifo = self.path("fifo")
        os.mkfifo(fifo)

        def feed():
            with open(fifo, "wb") as file:
                file.write(text)
        feeder = threading.Thread(target=feed)
        feeder.start()
        result = run("advise", fifo, timeout=20)
        feeder.join()
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_slow_pipe(self):
        """The first bytes come one by one."""
        text = model_steps(Trace()).text().encode()
        for contents in (text, gzip.compress(text), b"\xef\xbb\xbf" + text):
            fifo = self.path("fifo")
            os.mkfifo(fifo)

            def feed(path=fifo, data=contents):
                with open(path, "wb", buffering=0) as file:
                    for i in range(5):
                        file.write(data[i:i + 1])
                        time.sleep(0.01)
                    file.write(data[5:])
            feeder = threading.Thread(target=feed)
            feeder.start()
            result = run("advise", fifo, timeout=20)
            feeder.join()
            self.assertEqual(result.returncode, 0, result.stderr)
            os.unlink(fifo)

    def test_a_database_through_a_pipe(self):
        self.refused(run("advise", "/dev/stdin", input=b"SQLite format 3\0" + bytes(4096)),
                     "SQLite", "pipe")

    def test_byte_order_marks(self):
        text = model_steps(Trace()).text()
        result = run("advise", self.write("t.json", b"\xef\xbb\xbf" + text.encode()))
        self.assertEqual(result.returncode, 0, result.stderr)
        for contents in (b"\xff\xfe" + text.encode("utf-16-le"), text.encode("utf-16-le"),
                         b"\xfe\xff" + text.encode("utf-16-be"), text.encode("utf-16-be")):
            self.refused(run("advise", self.write("wide", contents)), "UTF-16")
        path = self.write("r.json", b"\xef\xbb\xbf" + json.dumps(recording()).encode())
        self.assertEqual(run("plan", path).returncode, 0)

    def test_long_paths_keep_the_reason(self):
        for depth in (3, 15):
            path = self.folder + ("/" + "d" * 250) * depth + "/missing.json"
            for command in ("advise", "plan"):
                self.refused(run(command, path), REASON)
        self.refused(run("advise", "/" + "x" * 100000), "File name too long")
        self.refused(run("plan", "--out", self.folder + ("/" + "d" * 250) * 3 + "/out",
                         self.recording()), REASON)

    def test_limits_have_names(self):
        """What is too much is named, as no lack of memory."""
        def work(i, stream, tid):
            return ('{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":1,"ts":%d,"dur":1,'
                    '"args":{"device":0,"stream":%d,"correlation":%d}},'
                    '{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":%d,'
                    '"ts":%d,"dur":1,"args":{"correlation":%d}}') % (2 * i + 1, stream, i, tid,
                                                                     2 * i, i)
        def file(name, streams, threads):
            count = max(streams, threads)
            return self.write(name, "[" + ",".join(work(i + 1, i % streams, i % threads)
                                                   for i in range(count)) + "]")
        self.refused(run("advise", file("streams", 1025, 1)), "more than 1024 streams")
        self.assertIn(run("advise", file("fewer", 1024, 1)).returncode, (0, 1))
        self.refused(run("advise", file("threads", 1, 65536)), "more than 65535 threads")

    def test_folders(self):
        os.mkdir(self.path("folder"))
        self.refused(run("plan", self.path("folder")), "no recording")
        for name in ("b.json", "a.json"):
            shutil.copy(self.recording(), os.path.join(self.folder, "folder", name))
        self.write("folder/c.csv", "id,lower,upper,size\nx,0,1,4\n")
        self.write("folder/notes.txt", "no recording")
        result = run("plan", "--json", self.path("folder"))
        self.assertEqual([os.path.basename(one["file"]) for one in json.loads(result.stdout)],
                         ["a.json", "b.json", "c.csv"])
        self.refused(run("plan", "--out", self.path("out"), self.path("folder")),
                     "--out takes one input, not 3")


class Numbers(Arena):
    def test_sizes(self):
        source = self.recording(block=32 << 20)
        for text, code in (("64MiB", 0), ("64M", 0), ("16MiB", 1), ("1GiB", 0), ("0.03125GiB", 0),
                           ("31.9MiB", 1), ("33554432", 0), ("33554431", 1), ("33554432B", 0),
                           ("33.6MB", 0), ("33MB", 1), ("32768KiB", 0), ("1TiB", 0), ("32 MiB", 0)):
            result = run("plan", "--capacity", text, source)
            self.assertEqual(result.returncode, code, (text, result.stdout, result.stderr))
        for text in ("", "MiB", "-1", "0", "0MiB", "1e9", "0x10", "1..5GiB", "9999999999TiB", "nan",
                     "infMiB", "64Mib ", "64XiB", "1.", "+5", "0.0000001KiB", " 5", "64MiBB"):
            self.refused(run("plan", "--capacity", text, source), "--capacity")

    def test_times(self):
        trace = self.trace()
        for text in ("0x10", "nan", "inf", "1e400", "-1", "0", "", "1 ", " 1", "12,5", "+3", "1e12",
                     "infinity", ".", "1e"):
            self.refused(run("advise", "--eager-us", text, trace), "--eager-us")
        for text in ("10", "10.5", "0.5", ".5", "1e3"):
            self.assertIn(run("advise", "--eager-us", text, trace).returncode, (0, 1), text)

    def test_no_other_number_is_more_lenient(self):
        source = self.recording()
        for text in ("0x10", "1e3", " 7", "+7", "7 ", ""):
            self.refused(run("plan", "--budget-ms", text, source), "--budget-ms")
            self.refused(run("plan", "--align", text, source), "--align")
            self.refused(run("demo", "--driver", "host", "--batches", text), "--batches")
            self.refused(run("bench", "sweep", "--seeds", text), "--seeds")


class Times(Arena):
    def advise(self, text):
        return json.loads(run("advise", "--json", self.write("t.json", text)).stdout)

    def spoil(self, pattern, value, every, category="kernel"):
        """The text of a trace in which every n-th time of the category is `value`."""
        events = model_steps(Trace()).events
        count = spoiled = 0
        for event in events:
            if event.get("ph") != "X" or event.get("cat") != category:
                continue
            count += 1
            if count % every == 0:
                spoiled += 1
                event[pattern] = "SPOILED"
        text = json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "H200"}],
                           "traceEvents": events})
        return text.replace('"SPOILED"', value), spoiled

    def test_times_that_are_none_are_left_out(self):
        whole = self.advise(model_steps(Trace()).text())
        for field in ("ts", "dur"):
            for value in ("NaN", "Infinity", "-Infinity", "1e300", "null", "\"1\"", "[1]"):
                with self.subTest(field=field, value=value):
                    text, spoiled = self.spoil(field, value, 41)
                    advice = self.advise(text)
                    self.assertEqual(advice["events_left_out"], spoiled)
                    self.assertLessEqual(advice["kernels"], whole["kernels"])
                    self.assertEqual(len(advice["iterations"]["list"]), 4)
        shown = run("advise", self.path("t.json")).stdout.decode()
        self.assertRegex(shown, r"%d events? .*left out" % spoiled)

    def test_too_many_are_an_error(self):
        for every in (1, 2, 5):
            for field in ("ts", "dur"):
                text, _ = self.spoil(field, "NaN", every)
                self.refused(run("advise", self.write("t.json", text)), "times")

    def test_no_usable_time_at_all(self):
        text = re.sub(r'"(ts|dur)": [0-9.e+]+', r'"\1": NaN', model_steps(Trace()).text())
        self.refused(run("advise", self.write("t.json", text)), "times")

    def test_a_first_event_far_from_all_others(self):
        trace = model_steps(Trace())
        trace.events.insert(0, {"ph": "X", "cat": "cpu_op", "name": "x", "pid": 1, "tid": 1,
                                "ts": 9e15, "dur": 1})
        self.refused(run("advise", self.trace(trace=trace)), "times")


class Cost(Arena):
    def test_streams_that_nothing_names(self):
        """20,000 captures of 65,536 streams are some 100 KB when zipped. Tables of the streams took
        15 GB to fill; the memory that a process may have is what tells, not its time."""
        text = io.BytesIO()
        many = recording(streams=65536, captures=20000)
        with gzip.GzipFile(fileobj=text, mode="wb") as file:
            file.write(json.dumps(many).encode())
        start = time.monotonic()
        result = run("plan", "--json", self.write("many.json.gz", text.getvalue()))
        took = time.monotonic() - start
        self.assertEqual(result.returncode, 0, result.stderr)
        answer, = json.loads(result.stdout)
        self.assertEqual(len(answer["captures"]), 20000)
        self.assertLessEqual(answer["ms"], took * 1000)
        self.assertGreater(answer["ms"], took * 1000 * 0.5)


if __name__ == "__main__":
    main()
