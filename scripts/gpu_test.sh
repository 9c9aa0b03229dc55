#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs what needs an NVIDIA GPU: the conformance suite, the demo, the heap's check, copies and
# examples, on NVIDIA's driver.
# Fails where there is none: a skip would look like a pass. The results stay in BUILD/gpu-test, with
# machine, versions and command: bench/results/ keeps some of them.
#
# Then the PyTorch package, where PYTHON (python3) has PyTorch: built into BUILD/python, its tests run
# with install() and without.
#
# usage: [PYTHON=...] scripts/gpu_test.sh BUILD
set -eu

build=$1
out=$build/gpu-test
mkdir -p "$out"

status=0
scripts/record_result.py "$out/conformance.json" "$build/conformance" --driver cuda --json @ ||
    status=$?
if [ "$status" -eq 77 ]; then
    echo "gpu-test: nothing was tested: no usable NVIDIA GPU here (the reason is above)" >&2
    exit 1
fi
[ "$status" -eq 0 ] || exit "$status"
scripts/record_result.py "$out/demo.json" "$build/reprise" demo --driver cuda --json \
    --recordings examples/captures --out "$out"
scripts/record_result.py "$out/heap.json" "$build/device_heap" --driver cuda
scripts/record_result.py "$out/doctor.json" "$build/reprise" doctor --driver cuda --no-python \
    --json
python3 tests/check/check_command.py "$build/reprise" "$build/tests/check/libcheck_subjects.so" cuda
"$build/example_replay"
"$build/example_serve"
# Only where nvcc was there to build it.
if [ -x "$build/example_runtime" ]; then "$build/example_runtime"; fi
"$build/estimate_programs" --driver cuda --groups 50
"$build/callable_threads" --driver cuda
"$build/bench_copies" --driver cuda --quick

python=${PYTHON:-python3}
if "$python" -c 'import torch' 2>/dev/null; then
    PYTHON=$python scripts/build_python.sh "$build/python"
    PYTHONPATH=$(cd "$build/python/lib" && pwd)
    export PYTHONPATH
    scripts/record_result.py "$out/doctor.json" "$build/reprise" doctor --driver cuda \
        --python "$python" --json
    "$python" -m unittest discover -s tests/python -p 'test_*.py'
    scripts/test_versions.py --list | while read -r program flags; do
        "$python" "tests/python/$program" ${flags:+"$flags"} </dev/null
    done
else
    echo "gpu-test: skipped the PyTorch package: $python has no PyTorch (set PYTHON)" >&2
fi
echo "gpu-test: all passed; results in $out"
