#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs what needs an NVIDIA GPU: the conformance suite and the demo, on NVIDIA's driver. Fails where
# there is none: a skip would look like a pass.
#
# usage: scripts/gpu_test.sh BUILD
set -eu

build=$1
if ! reason=$("$build/conformance" --driver cuda --list 2>&1 >/dev/null); then
    echo "gpu-test: no usable NVIDIA GPU here: $reason" >&2
    exit 1
fi
"$build/conformance" --driver cuda
"$build/reprise" demo --driver cuda
