#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Configures a build folder with CMake and Ninja, once: again only when the arguments, the compiler
# or the place of the source changed. (Ninja itself notices a changed CMakeLists.txt.)
#
# usage: scripts/configure.sh BUILD [CMAKE ARGUMENT...]    from the source's root
set -eu

build=$1
shift
wanted="$PWD ${CC:-} $*"
stamp=$build/configured-as
if [ -f "$build/build.ninja" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi
cmake --fresh -S . -B "$build" -G Ninja "$@"
printf '%s\n' "$wanted" >"$stamp"
