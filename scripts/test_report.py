#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads the JUnit file that ctest leaves.

usage: test_report.py skips FILE     a line for everything that was skipped, with its reason
       test_report.py count FILE     "N passed, N failed"; what was skipped counts as neither

A whole test is skipped by exit code 77, and its last line of output is the reason. A part of a test
that is skipped prints a line "skipped: REASON". Without a file nothing was tested: one failure.
"""

import os
import re
import sys
import xml.etree.ElementTree


def skips(suite):
    for case in suite.iter("testcase"):
        lines = (case.findtext("system-out") or "").strip().splitlines()
        parts = [line.strip() for line in lines if re.match(r"\s*skip(ped)?: ", line)]
        if case.get("status") in ("notrun", "disabled") and not parts:
            parts = lines[-1:] or ["no reason given"]
        for reason in dict.fromkeys(parts):
            yield f"{case.get('name')}: {re.sub('^skip(ped)?: ', '', reason)}"


def count(suite):
    states = [case.get("status") for case in suite.iter("testcase")]
    return f"{states.count('run')} passed, {states.count('fail')} failed"


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("skips", "count"):
        sys.exit(__doc__)
    what, path = sys.argv[1:]
    if not os.path.exists(path):
        print("0 passed, 1 failed" if what == "count" else f"test_report: no {path}")
        return
    suite = xml.etree.ElementTree.parse(path).getroot()
    if what == "count":
        print(count(suite))
    else:
        for line in skips(suite):
            print(f"skipped: {line}")


if __name__ == "__main__":
    main()
