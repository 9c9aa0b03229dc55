#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs every benchmark: the program or script bench/NAME/run of each folder, with the build folder as
# its argument. Each prints its own table.
#
# usage: scripts/bench.sh BUILD
set -eu

for bench in bench/*/run; do
    [ -x "$bench" ] || continue
    printf '\n== %s\n' "$bench"
    "$bench" "$1"
done
