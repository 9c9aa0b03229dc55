#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Builds the documentation site into BUILD/docs/site. What it is built with (mkdocs, pinned in
# packaging/docs-requirements.txt) goes into a virtual environment in BUILD/docs once.
#
# usage: [PYTHON=python3] scripts/docs.sh BUILD
set -eu

cd "$(dirname "$0")/.."
out=$1/docs
pins=packaging/docs-requirements.txt
scripts/setup.sh docs
mkdir -p "$out"
if ! cmp -s "$pins" "$out/installed"; then
    rm -rf "$out/venv"
    "${PYTHON:-python3}" -m venv "$out/venv"
    "$out/venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps -r "$pins"
    cp "$pins" "$out/installed"
fi
# The theme's makers announce another program at each build unless they are told not to.
NO_MKDOCS_2_WARNING=1 exec "$out/venv/bin/python" scripts/docs.py . "$out"
