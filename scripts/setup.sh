#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Finds which of the tools and libraries that the build needs are missing, and installs them where
# that can be done without asking: by apt-get, as root or through sudo without a password. Otherwise
# prints the one command to run and exits 1. Says nothing and takes no time when all is there.
#
# usage: scripts/setup.sh [build|lint|wheel|docs]
set -eu

group=${1:-build}
compiler=${CC:-cc}
packages=

need() { # PACKAGE COMMAND...: the package is missing when the command fails
    package=$1
    shift
    "$@" >/dev/null 2>&1 || packages="$packages $package"
}

# need() runs these by name, which shellcheck cannot see.
# shellcheck disable=SC2317
has_header() { # HEADER: the compiler finds it
    printf '#include <%s>\n' "$1" | "$compiler" -E -x c -
}

# shellcheck disable=SC2317
has_library() { # LIBRARY: a program finds it when it runs
    python3 -c "import ctypes, sys; ctypes.CDLL(sys.argv[1])" "$1"
}

# shellcheck disable=SC2317
has_header_cmocka() { # cmocka.h wants four others before it
    printf '#include <%s.h>\n' stdarg stddef stdint setjmp cmocka | "$compiler" -E -x c -
}

need_build() {
    need gcc command -v "$compiler"
    need libc6-dev has_header stdlib.h
    need cmake command -v cmake
    need ninja-build command -v ninja
    need pkg-config command -v pkg-config
    need python3 command -v python3
    need libjansson-dev has_header jansson.h
    need zlib1g-dev has_header zlib.h
    need libzstd-dev has_header zstd.h
    need libcmocka-dev has_header_cmocka
    need libsqlite3-0 has_library libsqlite3.so.0
}

# shellcheck disable=SC2317
has_python_header() { # the Python that wheels are built with can be built against
    "${PYTHON:-python3}" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}

need_wheel() {
    need_build
    need make command -v make
    need python3-dev has_python_header
    need python3-venv "${PYTHON:-python3}" -c 'import ensurepip, venv'
    # Only root can try the wheel in a bare system.
    [ "$(id -u)" -ne 0 ] || need debootstrap command -v debootstrap
}

need_lint() {
    need clang-format command -v clang-format
    need clang-tidy command -v clang-tidy
    need cppcheck command -v cppcheck
    need shellcheck command -v shellcheck
    need python3-venv python3 -c 'import ensurepip, venv'
}

need_docs() {
    need python3 command -v python3
    need python3-venv "${PYTHON:-python3}" -c 'import ensurepip, venv'
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

can_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    [ "$(id -u)" -eq 0 ] && return 0
    command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null
}

install() { # PACKAGE...
    echo "setup: installing $*"
    # A package source that is out of reach need not matter: the install says what is missing.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update ||
        echo "setup: apt-get update failed; trying to install all the same" >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 \
        -o Dpkg::Use-Pty=0 install -y --no-install-recommends "$@"
}

case $group in
build) need_build ;;
lint) need_lint ;;
wheel) need_wheel ;;
docs) need_docs ;;
*)
    echo "usage: scripts/setup.sh [build|lint|wheel|docs]" >&2
    exit 2
    ;;
esac
[ -n "$packages" ] || exit 0
# Package names hold no blanks: splitting is meant.
# shellcheck disable=SC2086
set -- $packages

if can_install; then
    install "$@"
    exit 0
fi
{
    echo "setup: missing, and not to be installed without a password: $*"
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "setup: these are Debian's names; install what your system calls them, then try again"
    elif command -v sudo >/dev/null 2>&1; then
        echo "setup: run this, then try again:"
        echo "    sudo apt-get install $*"
    else
        echo "setup: run this, then try again:"
        echo "    su -c 'apt-get install $*'"
    fi
} >&2
exit 1
