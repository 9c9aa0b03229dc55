#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Installs a build folder under PREFIX, within DESTDIR where that is set, or removes again what was
# installed there. BUILD/installed keeps a list for each place, so that other installations from the
# same folder change nothing; a file of an earlier version that a later one lacks is removed too.
#
# usage: [DESTDIR=...] scripts/install.sh install|uninstall BUILD PREFIX
set -eu

what=$1
build=$(cd "$2" 2>/dev/null && pwd) || {
    echo "$1: there is no build folder $2" >&2
    exit 1
}
case $3 in
/*) prefix=$3 ;;
*) prefix=$PWD/$3 ;;
esac
place=${DESTDIR:-}$prefix
list=$build/installed/$(printf '%s' "$place" | cksum | tr ' ' -)

install_files() {
    cmake --install "$build" --prefix "$prefix"
    mkdir -p "$build/installed"
    touch "$list"
    # The manifest's last line has no end.
    { cat "$build/install_manifest.txt" && echo; } | sort -u - "$list" >"$list.new"
    mv "$list.new" "$list"
}

# The folders of a file up to the prefix, as far as they are empty.
remove_folders() { # FILE
    folder=$(dirname "$1")
    while [ "$folder" != "$place" ] && rmdir "$folder" 2>/dev/null; do
        folder=$(dirname "$folder")
    done
}

uninstall_files() {
    if [ ! -f "$list" ]; then
        echo "uninstall: nothing was installed in $place from $build: name the PREFIX and DESTDIR" \
            "of \`make install\`" >&2
        exit 1
    fi
    while IFS= read -r file; do
        [ -n "$file" ] || continue
        file=${DESTDIR:-}$file
        if [ -e "$file" ] || [ -L "$file" ]; then
            rm "$file"
            echo "-- Removed: $file"
        fi
        remove_folders "$file"
    done <"$list"
    rm "$list"
}

case $what in
install) install_files ;;
uninstall) uninstall_files ;;
*)
    echo "usage: scripts/install.sh install|uninstall BUILD PREFIX" >&2
    exit 2
    ;;
esac
