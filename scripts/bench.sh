#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs every benchmark: the program or script bench/NAME/run of each folder, with the build folder as
# its argument. Each prints its own table, and exits with 77 where its driver is not there: then the
# next one has its turn.
#
# usage: scripts/bench.sh BUILD
set -eu

for bench in bench/*/run; do
    [ -x "$bench" ] || continue
    printf '\n== %s\n' "$bench"
    code=0
    "$bench" "$1" || code=$?
    [ "$code" -eq 0 ] || [ "$code" -eq 77 ] || exit "$code"
done
