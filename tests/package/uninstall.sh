#!/bin/sh
# SPDX-License-Identifier: MIT
#
# `make install` and `make uninstall`: what was installed is gone afterwards and nothing else, in
# each of several places, with a DESTDIR and without.
#
# usage: uninstall.sh BUILD WORK
set -eu

build=$1
work=$2/uninstall
cd "$(dirname "$0")/../.."
unset DESTDIR

fail() {
    echo "uninstall: $*" >&2
    exit 1
}

is_whole() { # PLACE
    for file in bin/reprise include/reprise.h include/reprise_tools.h share/reprise/captures/towers4.json.gz; do
        [ -e "$1/$file" ] || fail "$1/$file is not there"
    done
}

rm -rf "$work"
mkdir -p "$work/one place/bin" "$work/destdir"
one="$work/one place"
echo kept >"$one/bin/other"

scripts/install.sh install "$build" "$one" >/dev/null
scripts/install.sh install "$build" "$work/two" >/dev/null
DESTDIR="$work/destdir" scripts/install.sh install "$build" /opt/reprise >/dev/null
is_whole "$one"
is_whole "$work/two"
is_whole "$work/destdir/opt/reprise"

# A file of an earlier version, which the next installation no longer has.
list=$(grep -l "^$one/bin/reprise$" "$build"/installed/*)
echo old >"$one/include/reprise_old.h"
echo "$one/include/reprise_old.h" >>"$list"
scripts/install.sh install "$build" "$one" >/dev/null

scripts/install.sh uninstall "$build" "$one" >/dev/null
left=$(cd "$one" && find . | sort | tr '\n' ' ')
[ "$left" = ". ./bin ./bin/other " ] || fail "left in one place: $left"
is_whole "$work/two"
is_whole "$work/destdir/opt/reprise"

# A file that somebody removed already is no error.
rm "$work/two/include/reprise.h"
scripts/install.sh uninstall "$build" "$work/two" >/dev/null
[ -z "$(ls -A "$work/two")" ] || fail "left in the second place: $(ls -A "$work/two")"
DESTDIR="$work/destdir" scripts/install.sh uninstall "$build" /opt/reprise >/dev/null
[ -z "$(find "$work/destdir" ! -type d)" ] || fail "left in DESTDIR"

if said=$(scripts/install.sh uninstall "$build" "$one" 2>&1); then
    fail "removed twice"
fi
case $said in
*"nothing was installed in $one from $build"*) ;;
*) fail "said: $said" ;;
esac
echo "uninstall: three places installed and removed"
