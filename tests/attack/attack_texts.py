# SPDX-License-Identifier: MIT
"""Names that files bring along, on their way to terminals, SVG, HTML and JSON.

    attack_texts.py REPRISE SOURCE_DIR
"""
import json
import os
import re
import xml.etree.ElementTree

from arena import Arena, Trace, main, model_steps, run

# C0, DEL, C1 (0x9b is CSI), what turns the direction of writing, and what no text may hold.
HOSTILE = ["\x1b]0;title\x07", "\x1b[2J", "\x00", "\x08", "\x7f", "\x85", "\x9b31m", "\u202e", "\u2066",
           "\u2069", "\u200f", "\u061c", "\u2028", "\ufffe", "\uffff", "\ufdd0", "\U0001fffe"]
FORBIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
                       "\ufdd0-\ufdef\ufffe\uffff\U0001fffe]")
FRIENDLY = "größe 行列 😀"


class Texts(Arena):
    def clean(self, *outputs):
        for output in outputs:
            text = output.decode("utf-8")  # strictly
            found = FORBIDDEN.search(text)
            self.assertIsNone(found, found and text[max(0, found.start() - 40):found.end() + 20])

    def trace_with(self, *names):
        trace = model_steps(Trace(), middle=None)
        for number in range(3):
            trace.step(10 + number, [lambda: [trace.kernel(n, 500.0) for n in names]
                                     + [trace.frame(f"{n}.py(1): {n}", [trace.read_back])
                                        for n in names]])
        return self.trace("t.json", trace)

    def test_a_profilers_names(self):
        path = self.trace_with(*HOSTILE, FRIENDLY)
        page = self.path("page.html")
        for options in ((), ("--json",), ("--html", page)):
            result = run("advise", *options, path)
            self.clean(result.stdout, result.stderr)
            self.assertIn(result.returncode, (0, 1))
        self.clean(self.read("page.html"))
        self.assertIn(FRIENDLY, self.read("page.html").decode())
        self.assertIn(FRIENDLY, json.dumps(json.loads(run("advise", "--json", path).stdout),
                                           ensure_ascii=False))

    def test_bytes_that_are_no_text(self):
        """PyTorch's profiler does not look at the names that it writes."""
        trace = model_steps(Trace()).text().encode()
        for spoiled in (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x80",
                        b"\xf0\x9f\x98"):
            path = self.write("t.json", trace.replace(b"relu", spoiled))
            for options in ((), ("--json",), ("--html", self.path("p.html"))):
                result = run("advise", *options, path)
                self.clean(result.stdout, result.stderr)
                self.assertIn(result.returncode, (0, 1), result.stderr)
            self.clean(self.read("p.html"))

    def test_names_of_captures(self):
        for text in HOSTILE:
            with self.subTest(text=repr(text)):
                result = run("plan", self.recording(name="a" + text))
                self.clean(result.stdout, result.stderr)
                self.refused(result, "\\u0000" if text == "\x00" else "name: must be")
        path = self.recording(name=FRIENDLY)
        drawing, out = self.path("d.svg"), self.path("o.json")
        self.assertEqual(run("plan", "--draw", drawing, path).returncode, 0)
        self.assertEqual(run("plan", "--out", out, path).returncode, 0)
        xml.etree.ElementTree.fromstring(self.read("d.svg"))
        self.assertEqual(json.loads(self.read("o.json"))["captures"][0]["name"], FRIENDLY)

    def test_ids_of_rows(self):
        for text in HOSTILE + ["\n", "\"", "\xff"]:
            contents = ("id,lower,upper,size\na%s,0,4,8\n" % text).encode()
            if text == "\xff":
                contents = contents.replace("\xff".encode(), b"\xff")
            result = run("plan", self.write("r.csv", contents))
            self.clean(result.stdout, result.stderr)
            self.assertEqual(result.returncode, 2, repr(text))
        path = self.write("r.csv", f"id,lower,upper,size\n{FRIENDLY},0,4,8\n")
        self.assertEqual(run("plan", "--draw", self.path("d.svg"), path).returncode, 0)
        xml.etree.ElementTree.fromstring(self.read("d.svg"))

    def test_names_of_files(self):
        """The table, messages, JSON, a drawing's title and a page's."""
        for text in [t for t in HOSTILE if t != "\x00"] + ["\n", "\udcff"]:
            name = ("f" + text.replace("/", "") + ".json").encode("utf-8", "surrogateescape")
            path = os.path.join(self.folder.encode(), name)
            os.rename(self.recording("r.json"), path)
            for arguments in (["plan", path], ["plan", "--json", path], ["plan", path + b"x"],
                              ["plan", "--draw", self.path("d.svg"), path],
                              ["plan", "--out", self.path("o.json"), path]):
                result = run(*arguments)
                self.clean(result.stdout, result.stderr)
                self.assertNotIn(b"f\n", result.stdout + result.stderr)
            self.clean(self.read("d.svg"), self.read("o.json"))
            xml.etree.ElementTree.fromstring(self.read("d.svg"))
            os.rename(self.trace(), path)
            for arguments in (["advise", path], ["advise", "--json", path], ["advise", path + b"x"],
                              ["advise", "--html", self.path("p.html"), path]):
                result = run(*arguments)
                self.clean(result.stdout, result.stderr)
            self.clean(self.read("p.html"))

    def test_variables(self):
        """`doctor` shows what is set, and what a Python that it asks says."""
        for text in [t for t in HOSTILE if t != "\x00"] + ["\udcff", "a\nb"]:
            bad = text.encode("utf-8", "surrogateescape")
            python = self.write("python", b"#!/bin/sh\nprintf '%s' '" + bad + b"'\n")
            os.chmod(python, 0o700)
            for options in ((), ("--json",)):
                result = run("doctor", "--python", python, *options, env={
                    b"CUDA_VISIBLE_DEVICES": bad, b"PYTORCH_CUDA_ALLOC_CONF": bad,
                    b"REPRISE_" + bad.replace(b"\n", b""): bad, b"PATH": b"/usr/bin:/bin"})
                self.clean(result.stdout, result.stderr)

    def test_arguments(self):
        for text in [t for t in HOSTILE if t != "\x00"] + ["\udcff", "a\nb"]:
            bad = text.encode("utf-8", "surrogateescape")
            for arguments in ([bad], ["help", bad], ["plan", b"--" + bad], ["plan", "--align", bad],
                              ["advise", "--eager-us", bad, "x"], ["explain", bad],
                              ["demo", bad], ["check", bad + b":f"], ["check", bad, "f"],
                              ["check", b"/lib/" + bad + b".so:" + bad], ["check", "--driver", bad]):
                result = run(*arguments)
                self.clean(result.stdout, result.stderr)
                self.assertLessEqual(result.returncode, 2)
                self.assertGreaterEqual(result.returncode, 0)


if __name__ == "__main__":
    main()
