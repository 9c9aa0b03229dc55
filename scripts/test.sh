#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs the tests of a build folder with ctest, but those labelled slow, and says what was skipped
# and why. The results stay in BUILD/tests.xml.
#
# usage: scripts/test.sh BUILD JOBS
set -eu

results=$(cd "$1" && pwd)/tests.xml
rm -f "$results"
status=0
ctest --test-dir "$1" -LE slow --output-on-failure --timeout 300 -j "$2" --output-junit "$results" || status=$?
python3 scripts/test_report.py skips "$results"
exit "$status"
