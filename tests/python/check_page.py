#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Opens the page of reprise.report in a real browser: made of facts that are written down, and of a
layout that the library draws. No console messages, no network, all rows and drawings are there. Exit
code 77, with the reason, when no browser is installed.

usage: check_page.py REPRISE [PICTURE.png]"""
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent)]
from browser import Opened, check_breaches_are_seen, find_browser  # noqa: E402
from report_facts import facts  # noqa: E402


def load_page():
    """The module that makes pages; it needs nothing of the package."""
    spec = importlib.util.spec_from_file_location("page", ROOT / "python/reprise/_report/page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    reprise, *picture = sys.argv[1:]
    browser = find_browser()
    with tempfile.TemporaryDirectory() as folder:
        check_breaches_are_seen(browser, folder)
        drawing, page = Path(folder) / "pool.svg", Path(folder) / "page.html"
        subprocess.run([reprise, "plan", "--draw", drawing,
                        ROOT / "examples/captures/towers4.json.gz"], check=True,
                       stdout=subprocess.DEVNULL)
        page.write_text(load_page().page(facts(drawing.read_text(encoding="utf-8"))),
                        encoding="utf-8")
        more = ["--screenshot=" + str(Path(picture[0]).resolve())] if picture else []
        opened = Opened(browser, str(page), folder, *more)
    assert opened.console == [], opened.console
    assert opened.requests == [], opened.requests
    assert opened.dom.count("<tr>") == 2 + 3, opened.dom.count("<tr>")
    assert opened.dom.count("<svg") == 2, opened.dom.count("<svg")
    assert opened.dom.count("<rect") > 500, opened.dom.count("<rect")
    assert "Executable graphs" in opened.dom and "64.0 MiB" in opened.dom
    print("check_page: opened without console messages or requests")


main()
