#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Fuzzes the readers of what others made, under the address and undefined behaviour sanitizers.
#
#     scripts/fuzz.sh SECONDS [NAME...]
#
# NAMEs are those of tests/fuzz/CMakeLists.txt; without any, all run, one after the other. What is
# found lies in build-fuzz/found; new inputs that reach new code lie in build-fuzz/corpus_NAME.
set -eu
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '3,10p' "$0" >&2; exit 2; }
seconds=$1
shift
[ $# -ge 1 ] || set -- recording layout csv trace database params
[ -f build-fuzz/build.ninja ] ||
    cmake -S . -B build-fuzz -G Ninja -DREPRISE_FUZZ=ON -DCMAKE_C_COMPILER=clang > /dev/null
for name in "$@"; do
    ninja -C build-fuzz "fuzz_$name" > build-fuzz/log || { tail -30 build-fuzz/log >&2; exit 1; }
    mkdir -p "build-fuzz/corpus_$name" build-fuzz/found
    case $name in
    recording | layout) seeds="tests/fuzz/corpus" limit="-max_len=4096 -dict=tests/fuzz/recording.dict" ;;
    database) seeds="tests/fuzz/corpus_database" limit="-max_len=16384" ;;
    trace) seeds="tests/fuzz/corpus_trace" limit="-max_len=16384 -dict=tests/fuzz/trace.dict" ;;
    *) seeds="tests/fuzz/corpus_$name" limit="-max_len=1024" ;;
    esac
    # shellcheck disable=SC2086 # several options in one word
    "build-fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 $limit \
        -print_final_stats=1 -artifact_prefix=build-fuzz/found/ "build-fuzz/corpus_$name" $seeds \
        2> "build-fuzz/$name.txt" || { tail -40 "build-fuzz/$name.txt" >&2; exit 1; }
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "build-fuzz/$name.txt") runs in" \
        "$seconds s, nothing found"
done
