#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs a program of PyTorch on the host driver: without a GPU, and without NVIDIA's libraries. PYTHON
# is an interpreter that has torch 2.11, installed with or without its nvidia packages. The program
# finds the Reprise package too, built for PYTHON.
#
# Allocator, streams, captures and graphs are real; of the kernels some compute (host/kernels) and
# the others do nothing, which ones it is told at its end.
#
# usage: [BUILD=build] [QUIET=1] scripts/torch_on_host.sh PYTHON SCRIPT ARGS...
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 2 ] || {
    sed -n 's/^# usage: //p' "$0" >&2
    exit 2
}
python=$(command -v "$1") || {
    echo "torch_on_host: there is no interpreter $1" >&2
    exit 2
}
shift
build=${BUILD:-build}
case $build in /*) ;; *) build=$root/$build ;; esac

quietly() { # COMMAND...: shows what it wrote only where it failed
    "$@" >"$build/torch_on_host.log" 2>&1 || {
        cat "$build/torch_on_host.log" >&2
        exit 1
    }
}

mkdir -p "$build"
tag=$("$python" -c 'import sys; print("%d%d" % sys.version_info[:2])')
package=$build/host/python$tag
# Several programs may be started at once: one builds, the others wait.
exec 9>"$build/torch_on_host.lock"
flock 9
if [ ! -f "$build/build.ninja" ]; then
    (cd "$root" && quietly scripts/configure.sh "$build")
fi
quietly ninja -C "$build" torch_on_host
newer=$(find "$root/src" "$root/include" "$root/python" "$root/cli" "$root/cmake" -type f \
    -newer "$package/built" -print -quit 2>/dev/null || echo all)
if [ ! -f "$package/built" ] || [ -n "$newer" ]; then
    touch "$package.start"
    PYTHON=$python quietly "$root/scripts/build_python.sh" "$package"
    mv "$package.start" "$package/built"
fi
exec 9>&-

# The column of the CUDA that this torch was built for.
find='import importlib.util, pathlib, re
home = pathlib.Path(importlib.util.find_spec("torch").origin).parent
print(re.search(r"^cuda\b.*= .(\d+)", (home / "version.py").read_text(), re.M)[1])'
case $("$python" -c "$find") in
12) column=2 ;;
*) column=1 ;;
esac
preload=$(awk -v lib="$build/host/lib/" -v column="$column" \
    '!/^#/ { print lib $(NF < column ? NF : column) }' "$root/host/preload.txt" | paste -sd :)
[ -n "${QUIET:-}" ] ||
    echo "reprise host: $("$python" -V) on the host driver, a CPU in the place of an NVIDIA H200:" \
        "memory, streams, captures and graphs are real; of the kernels some compute and the others" \
        "do nothing, as is told at the end" >&2
export TRITON_LIBCUDA_PATH="$build/host/lib"
export PYTHONPATH="$root/host/python:$package/lib${PYTHONPATH:+:$PYTHONPATH}"
export LD_PRELOAD="$preload${LD_PRELOAD:+:$LD_PRELOAD}"
exec "$python" "$@"
