#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Opens the page of `reprise advise` in a real browser: no console messages, no network, and the
script ran. A page that breaks both rules on purpose shows that breaches are seen. Exit code 77, with
the reason, when no browser is installed.

usage: check_page.py REPRISE TRACES [PICTURE.png]"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
from browser import Opened, check_breaches_are_seen, find_browser  # noqa: E402
from make_trace import Trace  # noqa: E402


def check_page(reprise, browser, trace, folder, *more):
    page = os.path.join(folder, "page.html")
    done = subprocess.run([reprise, "advise", "--json", "--html", page, trace],
                          capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    opened = Opened(browser, page, folder, *more)
    assert opened.console == [], opened.console
    assert opened.requests == [], opened.requests
    assert json.loads(done.stdout)["kernels"] > 0
    return opened


def odd_names(folder):
    """Names that would end a script, or a text, if they were not quoted."""
    trace = Trace()
    for number in range(3):
        trace.step(number, [lambda: [trace.kernel(name, 5.0) for name in
                                     ("</script><script>console.error(1)</script>", "a\"b'c<d>&e",
                                      "\u00e4\u4e2d\U0001f600")]])
    path = os.path.join(folder, "odd.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(trace.text())
    return path


def main():
    reprise, traces, *picture = sys.argv[1:]
    browser = find_browser()
    with tempfile.TemporaryDirectory() as folder:
        check_breaches_are_seen(browser, folder)
        opened = check_page(reprise, browser, odd_names(folder), folder)
        assert "zoom in" in opened.dom
        more = ["--screenshot=" + os.path.abspath(picture[0])] if picture else []
        opened = check_page(reprise, browser,
                            os.path.join(traces, "routed_experts.stack.json.gz"), folder, *more)
        # The timeline is drawn by the script.
        assert "<canvas" in opened.dom or opened.dom.count("<rect") > 100, len(opened.dom)
    print("check_page: opened without console messages or requests")


main()
