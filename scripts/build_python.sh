#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Builds the PyTorch package into FOLDER/lib, to import from there: for tests. Needs no network and
# nothing of pip, only CMake, a C compiler and the headers of PYTHON (python3).
#
# usage: [PYTHON=...] scripts/build_python.sh FOLDER
set -eu

cd "$(dirname "$0")/.."
mkdir -p "$1"
folder=$(cd "$1" && pwd)
python=$("${PYTHON:-python3}" -c 'import sys; print(sys.executable)')
# Ninja where it is; without it CMake's default.
if command -v ninja >/dev/null 2>&1; then
    CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}
    export CMAKE_GENERATOR
fi
cmake -S . -B "$folder/temp" -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF -DREPRISE_PYTHON=ON \
    -DPython3_EXECUTABLE="$python" >"$folder/configure.log" 2>&1 || {
    cat "$folder/configure.log" >&2
    exit 1
}
cmake --build "$folder/temp" --target python -j "${JOBS:-$(nproc)}" >"$folder/build.log" 2>&1 || {
    cat "$folder/build.log" >&2
    exit 1
}
# A file that is gone from the tree must not be imported from here.
rm -rf "${folder:?}/lib"
cmake --install "$folder/temp" --component python --prefix "$folder/lib" >/dev/null
