#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Tests the package with a real PyTorch where there is no GPU: PyTorch 2.11 without NVIDIA's libraries
# is installed into BUILD/torch once (half a gigabyte), and tests/torch_on_host/run.py runs the tests
# on the host driver. TORCH_PYTHON names an interpreter that has it already.
#
# VERSION: another PyTorch, which goes into BUILD/torch-VERSION; `oldest` and `newest` are those that
# the package supports. It is skipped, by name, where it cannot be installed.
#
# usage: [PYTHON=...] [TORCH_PYTHON=...] scripts/torch_test.sh BUILD JOBS [VERSION]
set -eu

cd "$(dirname "$0")/.."
build=$1
jobs=$2
main=2.11.0
case ${3:-} in
oldest | newest)
    row=$([ "$3" = oldest ] && echo 0 || echo -1)
    version=$(cd python/reprise/_base && python3 -c "import versions; print(versions.TABLE[$row].version)")
    ;;
*) version=${3:-$main} ;;
esac
python=${TORCH_PYTHON:-}
if [ "$version" != "$main" ]; then
    home=$build/torch-$version
    python=$home/bin/python
    if [ ! -f "$home/installed" ]; then
        rm -rf "$home"
        "${PYTHON:-python3}" -m venv "$home"
        "$python" -m pip install -q --disable-pip-version-check --no-deps "torch==$version" || {
            echo "torch_test: skipped PyTorch $version: it cannot be installed for $("$python" -V)"
            echo "0 passed, 0 failed"
            exit 0
        }
        "$python" -m pip install -q --disable-pip-version-check filelock typing-extensions sympy \
            networkx jinja2 fsspec numpy setuptools
        touch "$home/installed"
    fi
elif [ -z "$python" ]; then
    python=$build/torch/bin/python
    if [ ! -f "$build/torch/installed-$version" ]; then
        rm -rf "$build/torch"
        "${PYTHON:-python3}" -m venv "$build/torch"
        "$python" -m pip install -q --disable-pip-version-check --no-deps "torch==$version"
        "$python" -m pip install -q --disable-pip-version-check filelock typing-extensions sympy \
            networkx jinja2 fsspec numpy setuptools
        # For the models; without what they ask of PyTorch.
        "$python" -m pip install -q --disable-pip-version-check --no-deps "torchvision==0.26.*" "timm==1.*" \
            "transformers==5.24.*"
        "$python" -m pip install -q --disable-pip-version-check safetensors huggingface_hub \
            tokenizers regex pyyaml requests tqdm packaging pillow
        touch "$build/torch/installed-$version"
    fi
fi
BUILD=$(cd "$build" && pwd)
export BUILD
exec python3 tests/torch_on_host/run.py "$python" --jobs "$jobs"
