#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Does what a packager and the packager's users do: install, then build and run a program by
# pkg-config and by find_package, with the shared library and with the static one. Also moves the
# installation, as the packages do not hold its place.
#
# usage: run.sh BUILD WORK LIBDIR VERSION    CC and CFLAGS from the environment
set -eu

build=$1
work=$2
libdir=$3
version=$4
here=$(dirname "$0")
consumer=$here/consumer.c
example=$here/../../examples/replay.c

fail() {
    echo "package: $*" >&2
    exit 1
}

# PROGRAM LIBRARIES: runs it, and sees which Reprise the linker bound it to.
try() {
    got=$(LD_LIBRARY_PATH=$prefix/$libdir "$1")
    [ "$got" = "$version" ] || fail "$1 says version $got, not $version"
    case $2 in
    shared) readelf -d "$1" | grep -q 'NEEDED.*\[libreprise\.so\.0\]' || fail "$1 is not dynamic" ;;
    static) ! readelf -d "$1" | grep -q 'NEEDED.*libreprise' || fail "$1 is not static" ;;
    esac
    echo "package: $(basename "$1") runs"
}

# SOURCE OUT PKG-CONFIG-ARGUMENT...: pkg-config quotes for the shell, so the shell must read its words.
compile() {
    source=$1
    out=$2
    shift 2
    flags=$(pkg-config "$@" --cflags --libs reprise)
    eval "set -- $flags"
    # CFLAGS are several words.
    # shellcheck disable=SC2086
    "$CC" $CFLAGS "$source" -o "$out" "$@"
}

install_tree() {
    rm -rf "$work/first place" "$prefix"
    cmake --install "$build" --prefix "$work/first place" >/dev/null
    mv "$work/first place" "$prefix"
}

check_files() {
    for file in bin/reprise include/reprise.h include/reprise_heap.h \
        include/reprise_framework.h include/reprise_tools.h "$libdir/libreprise.a" \
        "$libdir/libreprise.so.$version" share/reprise/captures/towers4.json.gz \
        share/bash-completion/completions/reprise share/zsh/site-functions/_reprise; do
        [ -e "$prefix/$file" ] || fail "$file was not installed"
    done
    [ "$("$prefix/bin/reprise" --version)" = "reprise $version" ] || fail "the command does not run"
    "$prefix/bin/reprise" plan "$prefix/share/reprise/captures/towers4.json.gz" >/dev/null ||
        fail "the command does not plan"
}

prefix="$work/a prefix"
install_tree
check_files
export PKG_CONFIG_PATH="$prefix/$libdir/pkgconfig"

compile "$consumer" "$work/pkg-config-shared"
try "$work/pkg-config-shared" shared
compile "$example" "$work/replay"
LD_LIBRARY_PATH="$prefix/$libdir" "$work/replay" || fail "the example does not run"

rm -rf "$work/consumer/build"
cmake -S "$work/consumer" -B "$work/consumer/build" -G Ninja -DCMAKE_C_FLAGS="$CFLAGS" \
    -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
ninja -C "$work/consumer/build" >/dev/null
try "$work/consumer/build/with_shared" shared
try "$work/consumer/build/with_static" static

# Where both libraries lie side by side the linker takes the shared one: leave it the other.
rm "$prefix/$libdir"/libreprise.so*
compile "$consumer" "$work/pkg-config-static" --static
try "$work/pkg-config-static" static
