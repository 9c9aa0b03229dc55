#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Opens the page of `reprise advise` in a real browser: no console messages, no network, and the
script ran. A page that breaks both rules on purpose shows that breaches are seen. Exit code 77, with
the reason, when no browser is installed.

usage: check_page.py REPRISE TRACES [PICTURE.png]"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from make_trace import Trace

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# The browser's own errands, which no switch stops altogether.
OWN_HOSTS = re.compile(r"^https?://([a-z0-9-]+\.)*(google|googleapis|gstatic|gvt1)\.com/")
BROKEN = """<!doctype html><title>broken</title><script>
console.error("deliberate"); fetch("http://127.0.0.1:9/out").catch(() => 0); nothing.at.all();
</script>"""


class Opened:
    """What a browser made of a page: its console, the addresses it asked for, the final DOM."""

    def __init__(self, browser, page, folder, *more):
        log = os.path.join(folder, "net.json")
        command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                   "--disable-background-networking", "--disable-component-update",
                   "--disable-sync", "--disable-default-apps", "--disable-extensions",
                   "--user-data-dir=" + os.path.join(folder, "profile"), "--window-size=1200,1600",
                   "--virtual-time-budget=2000", "--enable-logging=stderr", "--v=0",
                   "--log-net-log=" + log, *more, "--dump-dom", "file://" + page]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                              timeout=90, check=False)
        self.dom = done.stdout
        self.console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        with open(log, encoding="utf-8", errors="replace") as file:
            urls = set(re.findall(r'"url":"(https?://[^"]*)"', file.read()))
        self.requests = sorted(url for url in urls if not OWN_HOSTS.match(url))


def check_breaches_are_seen(browser, folder):
    path = os.path.join(folder, "broken.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(BROKEN)
    opened = Opened(browser, path, folder)
    assert any("deliberate" in line for line in opened.console), opened.console
    assert any("nothing is not defined" in line for line in opened.console), opened.console
    assert opened.requests == ["http://127.0.0.1:9/out"], opened.requests


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
    browser = next((found for found in map(shutil.which, BROWSERS) if found), None)
    if not browser:
        print(f"skipped: no browser is installed (none of {', '.join(BROWSERS)}); Debian's is "
              "'chromium'")
        sys.exit(77)
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
