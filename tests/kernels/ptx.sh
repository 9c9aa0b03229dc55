#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The PTX of the test kernels, committed as kernels_ptx.h so that no CUDA toolkit is needed.
#
#     ptx.sh generate   compile kernels.cu with nvcc and write kernels_ptx.h
#     ptx.sh check      0 when kernels_ptx.h was made from the sources as they are now, else 1;
#                       where nvcc of the same version exists, the PTX is made again and compared
set -eu
cd "$(dirname "$0")"
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}

sources_hash() {
    cat kernels.inc kernels.cu kernels.h | sha256sum | cut -d' ' -f1
}

nvcc_version() {
    "$nvcc" --version | sed -n 's/^Cuda compilation tools, //p'
}

# The oldest PTX version that the kernels need, so that drivers older than nvcc can read it too.
# -fmad=false: a product is rounded before it is added, as on the host.
ptx_array() { # name, architecture, define
    printf 'static const char %s[] =\n' "$1"
    "$nvcc" -ptx -fmad=false -arch="$2" -D"$3" -o - kernels.cu |
        sed -e '/^\/\//d' -e '/^$/d' -e 's/^\.version .*/.version 8.0/' |
        sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/\t/\\t/g' -e 's/^/    "/' -e 's/$/\\n"/'
    printf '    "";\n'
}

header() {
    echo "/* SPDX-License-Identifier: MIT"
    echo " *"
    echo " * Made by ptx.sh from kernels.inc: do not edit."
    echo " * sources: $(sources_hash)"
    echo " * nvcc: $(nvcc_version)"
    echo " */"
    ptx_array ptx_base compute_80 BASE_KERNELS
    ptx_array ptx_sm90 compute_90 SM90_KERNELS
}

case "${1:-}" in
generate)
    header >kernels_ptx.h.new
    mv kernels_ptx.h.new kernels_ptx.h
    ;;
check)
    if ! grep -q "sources: $(sources_hash)" kernels_ptx.h; then
        echo "kernels_ptx.h is older than the kernels: run tests/kernels/ptx.sh generate"
        exit 1
    fi
    if ! [ -x "$nvcc" ] || ! grep -q "nvcc: $(nvcc_version)\$" kernels_ptx.h; then
        echo "sources unchanged; no nvcc of the same version here to make the PTX again"
        exit 0
    fi
    if ! header | cmp -s - kernels_ptx.h; then
        echo "kernels_ptx.h is not what nvcc makes of the kernels: run tests/kernels/ptx.sh generate"
        exit 1
    fi
    echo "sources unchanged, and nvcc makes the same PTX"
    ;;
*)
    echo "usage: ptx.sh generate|check" >&2
    exit 2
    ;;
esac
