#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Reads the sources with every tool that has an opinion: clang-format, clang-tidy, cppcheck, ruff,
# the shell checker and the counter of sentences. Any finding is a failure. The build folder gives the
# compile commands.
#
# usage: scripts/lint.sh BUILD
set -eu

build=$1
jobs=$(nproc 2>/dev/null || echo 2)
failed=0

# The compilers' list of files is the truth: nothing that is built escapes.
sources() {
    python3 - "$build/compile_commands.json" <<'PYTHON'
import json, os, sys
here = os.getcwd() + os.sep
files = sorted({entry["file"] for entry in json.load(open(sys.argv[1]))})
sys.stdout.write("".join(f[len(here):] + "\0" for f in files if f.startswith(here)))
PYTHON
}

format() { # not what nvcc generated
    git ls-files -z '*.c' '*.h' ':!*_ptx.*' | xargs -0 clang-format --dry-run -Werror
}

# Asserts are on: the analyzer learns from them, and from analyzer.h, which the files that define its
# functions cannot read.
definers='^src/(base/status|driver/result)\.c$'
tidy() {
    {
        sources | grep -zE '^src/' | grep -zvE "$definers" |
            tidy_files --extra-arg=-include --extra-arg="$PWD/scripts/analyzer.h"
        sources | grep -zvE '^src/' | tidy_files
        sources | grep -zE "$definers" | tidy_files
    } 2>&1 | tidy_findings
}

tidy_files() { # EXTRA ARGUMENT...
    xargs -0 -n 1 -P "$jobs" clang-tidy --quiet -p "$build" --extra-arg=-UNDEBUG "$@" \
        --warnings-as-errors='*'
}

# clang-tidy counts the warnings that it suppressed; only the findings are of use.
tidy_findings() {
    ! grep -Ev '^[0-9]+ warnings? (generated|treated as errors?)\.?$'
}

cpp() { # "Cond" warnings guess at bounds from a comparison: clang-tidy follows the paths
    cppcheck --quiet -UNDEBUG --project="$build/compile_commands.json" -j "$jobs" --error-exitcode=1 \
        --enable=warning,performance,portability --inline-suppr --suppress=missingIncludeSystem \
        --suppress=arrayIndexOutOfBoundsCond
}

shell() {
    git ls-files -z '*.sh' '*/run' | xargs -0 shellcheck
}

python() { # pyproject.toml says which rules
    ruff=$build/lint/bin/ruff
    [ -x "$ruff" ] || {
        python3 -m venv "$build/lint"
        "$build/lint/bin/python" -m pip install -q --disable-pip-version-check ruff==0.17.6
    }
    git ls-files -z '*.py' | xargs -0 "$ruff" check --quiet
}

licence() { # every source names its licence in its first lines; not what uv wrote
    missing=$(git ls-files -z '*.c' '*.h' '*.def' '*.cu' '*.py' '*.sh' '*.txt' '*/run' Makefile \
        ':!packaging/requirements.txt' |
        xargs -0 grep -L 'SPDX-License-Identifier: MIT') || true
    [ -z "$missing" ] || {
        echo "no licence line in: $missing"
        return 1
    }
}

echo "lint: layout"
format || failed=1
echo "lint: licence lines"
licence || failed=1
echo "lint: shell scripts"
shell || failed=1
echo "lint: Python"
python || failed=1
echo "lint: sentences"
python3 scripts/check_prose.py . || failed=1
echo "lint: cppcheck"
cpp || failed=1
echo "lint: clang-tidy"
tidy || failed=1
[ "$failed" -eq 0 ] && echo "lint: clean"
exit "$failed"
