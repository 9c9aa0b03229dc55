#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Reads the sources with every tool that has an opinion: clang-format, clang-tidy, cppcheck, ruff, mypy,
# the shell checker and the counter of sentences. Any finding is a failure. The build folder gives the
# compile commands.
#
# --changed: only files that differ from where the branch left main, or CHANGED_SINCE, and those that
# git does not know yet; of a header its own .c file. mypy looks at all, as types go from file to file.
#
# usage: scripts/lint.sh BUILD [--changed]
set -eu

build=$1
jobs=$(nproc 2>/dev/null || echo 2)
failed=0
changed=
if [ "${2:-}" = --changed ]; then
    since=${CHANGED_SINCE:-$(git merge-base HEAD main 2>/dev/null || echo HEAD)}
    changed=$build/lint-changed
    {
        git diff --name-only --diff-filter=d "$since"
        git ls-files --others --exclude-standard
    } | sort -u >"$changed"
    echo "lint: $(wc -l <"$changed") files that changed since $(git rev-parse --short "$since")"
elif [ $# -gt 1 ]; then
    sed -n 's/^# usage: /usage: /p' "$0" >&2
    exit 2
fi

# What of git's files matches, each ended by a 0, but for what did not change where only that counts.
tracked() { # PATTERN...
    git ls-files -z --cached --others --exclude-standard "$@" | only_changed
}

only_changed() {
    if [ -z "$changed" ]; then
        cat
    else
        tr '\0' '\n' | grep -xFf "$changed" | tr '\n' '\0' || true
    fi
}

# The compilers' list of files is the truth: nothing that is built escapes.
sources() {
    python3 - "$build/compile_commands.json" "$changed" <<'PYTHON'
import json, os, sys
here = os.getcwd() + os.sep
files = sorted({entry["file"] for entry in json.load(open(sys.argv[1]))})
files = [f[len(here):] for f in files if f.startswith(here)]
if sys.argv[2]:
    changed = set(open(sys.argv[2]).read().split("\n"))
    files = [f for f in files if f in changed or f[:-1] + "h" in changed]
sys.stdout.write("".join(f + "\0" for f in files))
PYTHON
}

format() { # not what nvcc generated
    tracked '*.c' '*.h' ':!*_ptx.*' | xargs -0 -r clang-format --dry-run -Werror
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
    } 3>&2 2>&1 | tidy_findings
}

# Tells of each 20th file that is begun, on standard error: findings are alone on standard output.
tidy_files() { # EXTRA ARGUMENT...
    # The inner shell's own arguments are meant.
    # shellcheck disable=SC2016
    xargs -0 -r -n 20 sh -c 'echo "lint: clang-tidy: $1 and what follows" >&3; printf "%s\\0" "$@"' - |
        xargs -0 -r -n 1 -P "$jobs" clang-tidy --quiet -p "$build" --extra-arg=-UNDEBUG "$@" \
            --warnings-as-errors='*'
}

# clang-tidy counts the warnings that it suppressed; only the findings are of use.
tidy_findings() {
    ! grep -Ev '^[0-9]+ warnings? (generated|treated as errors?)\.?$'
}

cpp() { # "Cond" warnings guess at bounds from a comparison: clang-tidy follows the paths
    # Names of sources hold no blanks: splitting is meant.
    # shellcheck disable=SC2046
    [ -z "$changed" ] || set -- $(sources | tr '\0' '\n' | sed 's|^|--file-filter=|')
    [ -z "$changed" ] || [ $# -gt 0 ] || return 0
    cppcheck --quiet "$@" -UNDEBUG --project="$build/compile_commands.json" -j "$jobs" --error-exitcode=1 \
        --enable=warning,performance,portability --inline-suppr --suppress=missingIncludeSystem \
        --suppress=arrayIndexOutOfBoundsCond
}

shell() {
    tracked '*.sh' '*/run' | xargs -0 -r shellcheck
}

tools() { # pinned: a newer one may find more
    "$build/lint/bin/ruff" --version 2>/dev/null | grep -q ' 0\.17\.6$' &&
        "$build/lint/bin/mypy" --version 2>/dev/null | grep -q '^mypy 2\.4\.1 ' && return
    python3 -m venv "$build/lint"
    "$build/lint/bin/python" -m pip install -q --disable-pip-version-check ruff==0.17.6 mypy==2.4.1
}

python() { # pyproject.toml says which rules
    tools && tracked '*.py' | xargs -0 -r "$build/lint/bin/ruff" check --quiet
}

types() { # all of the package, from what mypy knows of the last time
    tools && "$build/lint/bin/mypy" --cache-dir "$build/lint/mypy" --no-error-summary
}

licence() { # every source names its licence in its first lines; not what uv wrote
    missing=$(tracked '*.c' '*.h' '*.def' '*.cu' '*.py' '*.sh' '*.txt' '*/run' Makefile \
        ':!packaging/requirements.txt' |
        xargs -0 -r grep -L 'SPDX-License-Identifier: MIT') || true
    [ -z "$missing" ] || {
        echo "no licence line in: $missing"
        return 1
    }
}

begun=$(date +%s)
step() { # NUMBER, WHAT: and how long it has been
    now=$(date +%s)
    echo "lint: $1 of 8, after $((now - begun)) s: $2"
}

step 1 layout
format || failed=1
step 2 "licence lines"
licence || failed=1
step 3 "shell scripts"
shell || failed=1
step 4 Python
python || failed=1
step 5 types
types || failed=1
step 6 sentences
python3 scripts/check_prose.py . || failed=1
step 7 cppcheck
cpp || failed=1
step 8 clang-tidy
tidy || failed=1
[ "$failed" -eq 0 ] && echo "lint: clean, after $(($(date +%s) - begun)) s"
exit "$failed"
