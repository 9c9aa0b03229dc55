#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Installs the wheel of dist/ the way users do, where nothing helps it, and runs what the package
# offers without a GPU. Prints every command and what it gave in a line.
#
# 1. A virtual environment, with no program on PATH but its own.
# 2. A bare Debian, made by debootstrap: Python and venv, no compiler, no jansson. Skipped where
#    chroot or mounts are not allowed, and where Debian's archive is out of reach; the latter is a
#    failure under CI=true.
#
# BARE=none leaves the second out, BARE="bookworm trixie" takes several releases. Where a release's
# Python is older than the package's, only the command runs, unpacked from the wheel.
#
# usage: [PYTHON=...] [BARE=...] scripts/wheel_test.sh WORK
set -eu

cd "$(dirname "$0")/.."
mkdir -p "$1"
work=$(cd "$1" && pwd)
python=${PYTHON:-python3}
bare=${BARE:-bookworm}
wheel=$(ls dist/reprise_cuda-*.whl 2>/dev/null) || wheel=
[ -f "$wheel" ] || {
    echo "wheel-test: dist/ must hold one wheel: make wheel" >&2
    exit 1
}

# What every place is to run; the trace and the recordings are those of the tree.
prepare() {
    rm -rf "$work/given"
    mkdir -p "$work/given"
    cp "$wheel" packaging/try_wheel.py tests/data/traces/tiny_mlp.plain.json.gz \
        examples/captures/towers4.json.gz "$work/given"
    PYTHONPATH=tests/advise PYTHONDONTWRITEBYTECODE=1 "$python" -c '
import sys, make_nsys
from make_trace import Trace
trace = Trace(python=False)
for number in range(4):
    trace.step(number, [lambda: [trace.kernel(f"k{i}", 6.0) for i in range(20)]])
make_nsys.write(trace, sys.argv[1])' "$work/given/made.sqlite"
}

in_venv() {
    echo "wheel-test: a virtual environment without other programs"
    rm -rf "$work/venv"
    "$python" -m venv "$work/venv"
    (cd "$work/given" && env -i PATH="$work/venv/bin" HOME=/nonexistent \
        "$work/venv/bin/python" try_wheel.py pip)
}

# The archive that this machine's own packages come from, where it is a Debian.
debian_archive() {
    (
        # shellcheck disable=SC1091
        . /etc/os-release
        # shellcheck disable=SC2016
        [ "$ID" != debian ] || apt-get indextargets --format '$(REPO_URI) $(COMPONENT)'
        echo "http://deb.debian.org/debian main"
    ) 2>/dev/null | grep -v security | sed -n 's/ main$//p' | head -n 1
}

make_root() { # RELEASE
    root=$work/root-$1
    [ -f "$root/complete" ] && return
    echo "wheel-test: making a bare Debian $1"
    rm -rf "$root"
    debootstrap --variant=minbase --include=python3,python3-venv "$1" "$root" \
        "$(debian_archive)" >"$work/debootstrap-$1.log" 2>&1 || {
        tail -5 "$work/debootstrap-$1.log" >&2
        return 1
    }
    touch "$root/complete"
}

has_namespaces() {
    unshare --mount --pid --fork true 2>/dev/null
}

# Within a chroot, say, where a mount must be made in the open.
has_mounts() {
    mkdir -p "$work/probe"
    mount -t proc proc "$work/probe" 2>/dev/null && umount "$work/probe"
}

in_root() { # RELEASE
    echo "wheel-test: a bare Debian $1"
    rm -rf "$work/root-$1/given" "$work/root-$1/venv"
    cp -R "$work/given" "$work/root-$1/given"
    if has_namespaces; then
        try_in "$work/root-$1" unshare --mount --pid --fork --mount-proc="$work/root-$1/proc"
        return
    fi
    mount -t proc proc "$work/root-$1/proc"
    status=0
    try_in "$work/root-$1" || status=$?
    umount "$work/root-$1/proc"
    return "$status"
}

try_in() { # ROOT COMMAND...: the command is put in front of chroot
    root=$1
    shift
    # The inner shell expands what it is given.
    # shellcheck disable=SC2016
    "$@" chroot "$root" \
        /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 sh -c '
        set -eu
        for tool in cc gcc clang ld make cmake; do
            ! command -v $tool || { echo "$tool is here: this is no bare system"; exit 1; }
        done
        [ -z "$(find /usr/lib /lib -name "libjansson*")" ]
        cd /given
        if python3 -c "import sys; sys.exit(sys.version_info < (3, 10))"; then
            python3 -m venv /venv
            /venv/bin/python try_wheel.py pip bare
        else
            python3 try_wheel.py unpack bare
        fi'
}

why_not_bare() {
    [ "$(id -u)" -eq 0 ] || echo "chroot needs root"
    command -v debootstrap >/dev/null 2>&1 || echo "debootstrap is not installed"
    has_namespaces || has_mounts || echo "this machine allows no mounts"
}

in_roots() {
    why=$(why_not_bare | head -n 1)
    if [ -n "$why" ]; then
        echo "wheel-test: skipped the bare Debian: $why"
        return
    fi
    for release in $bare; do
        if make_root "$release"; then
            in_root "$release"
        else
            echo "wheel-test: skipped Debian $release: debootstrap could not make it (above)"
            [ "${CI:-}" != true ]
        fi
    done
}

prepare
in_venv
[ "$bare" = none ] || in_roots
echo "wheel-test: all passed"
