# SPDX-License-Identifier: MIT
"""A real browser, for tests of pages: its console and what it asks the network for."""
import os
import re
import shutil
import subprocess
import sys

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


def find_browser():
    """The browser; exits with 77, and the reason, when none is installed."""
    browser = next((found for found in map(shutil.which, BROWSERS) if found), None)
    if not browser:
        print(f"skipped: no browser is installed (none of {', '.join(BROWSERS)}); Debian's is "
              "'chromium'")
        sys.exit(77)
    return browser
