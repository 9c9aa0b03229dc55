#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Builds dist/: the source distribution, and from that (not from the tree) the wheel for x86-64 Linux
# with glibc 2.28 or later. The wheel holds jansson, zlib and zstd's decoder; a zig compiler, which PyPI
# has, builds all of it against glibc 2.28. Fails, and leaves no wheel, where the wheel needs more than its tag
# says or names a folder of this machine (packaging/check_wheel.py, auditwheel).
#
# What it needs and brings is pinned: packaging/requirements.txt and packaging/sources.txt.
#
# usage: [PYTHON=...] scripts/wheel.sh WORK        WORK is kept: a second run is quick
set -eu

platform=manylinux_2_28_x86_64
target=x86_64-linux-gnu.2.28

# The flags of a distribution are for its own packages, not for a wheel for all of them.
unset CFLAGS CPPFLAGS LDFLAGS

cd "$(dirname "$0")/.."
root=$PWD
mkdir -p "$1" dist
work=$(cd "$1" && pwd)
python=${PYTHON:-python3}
if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "wheel: wheels are built on x86-64 Linux only; \`pip install .\` builds for this machine" >&2
    exit 1
fi

say() {
    echo "wheel: $*"
}

quietly() { # LOG COMMAND...: the output matters only when the command fails
    log=$work/$1.log
    shift
    "$@" >"$log" 2>&1 || {
        cat "$log" >&2
        exit 1
    }
}

# The tools, in a virtual environment of their own, once for each list of them.
make_tools() {
    if ! cmp -s packaging/requirements.txt "$work/venv/requirements.txt"; then
        say "installing the pinned tools"
        rm -rf "$work/venv"
        quietly venv "$python" -m venv "$work/venv"
        quietly pip "$work/venv/bin/python" -m pip install --disable-pip-version-check \
            --require-hashes --only-binary :all: -r packaging/requirements.txt
        cp packaging/requirements.txt "$work/venv/requirements.txt"
    fi
    python=$work/venv/bin/python
    zig=$("$python" -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent)')
}

# cc and ar as programs of one word, as configure scripts want them.
make_compilers() {
    mkdir -p "$work/bin"
    export ZIG_GLOBAL_CACHE_DIR="$work/zig-cache" ZIG_LOCAL_CACHE_DIR="$work/zig-cache"
    printf '#!/bin/sh\nexec "%s" cc -target %s -mcpu=baseline "$@"\n' "$zig/zig" "$target" \
        >"$work/bin/cc"
    for tool in ar ranlib; do
        printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$zig/zig" "$tool" >"$work/bin/$tool"
    done
    chmod +x "$work/bin/cc" "$work/bin/ar" "$work/bin/ranlib"
    export CC="$work/bin/cc" AR="$work/bin/ar" RANLIB="$work/bin/ranlib"
}

# Debian's pyconfig.h includes one of a folder that only Debian's compilers search.
find_python_headers() {
    include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [ -f "$include/Python.h" ] || {
        echo "wheel: Python.h was not found: install the headers of this Python (python3-dev)" >&2
        exit 1
    }
    triple=$(dirname "$include")/x86_64-linux-gnu
    [ ! -d "$triple/$(basename "$include")" ] && return
    mkdir -p "$work/include/x86_64-linux-gnu"
    ln -sfn "$triple/$(basename "$include")" \
        "$work/include/x86_64-linux-gnu/$(basename "$include")"
}

unpack() { # ARCHIVE FOLDER: without the folder that the archive starts with
    rm -rf "$2"
    mkdir -p "$2"
    tar -xf "$1" -C "$2" --strip-components=1
}

# Hidden symbols: the command shows its symbols to what `reprise check` loads, but none of these.
library_flags() { # SOURCE
    echo "-O2 -fPIC -fvisibility=hidden -fno-sanitize=undefined -ffile-prefix-map=$1=."
}

build_jansson() {
    unpack "$work"/sources/jansson_*.tar.* "$work/jansson"
    quietly jansson-configure cmake -S "$work/jansson" -B "$work/jansson/build" -G Ninja \
        -DCMAKE_BUILD_TYPE=Release -DCMAKE_AR="$AR" -DCMAKE_RANLIB="$RANLIB" \
        -DCMAKE_C_FLAGS="$(library_flags "$work/jansson")" -DCMAKE_INSTALL_LIBDIR=lib \
        -DCMAKE_INSTALL_PREFIX="$work/libraries" -DJANSSON_BUILD_DOCS=OFF \
        -DJANSSON_WITHOUT_TESTS=ON -DJANSSON_EXAMPLES=OFF
    quietly jansson-build cmake --build "$work/jansson/build" --target install
    install -D -m 644 "$work/jansson/LICENSE" "$work/licenses/jansson/LICENSE"
}

build_zlib() {
    unpack "$work"/sources/zlib_*.tar.* "$work/zlib"
    (
        cd "$work/zlib"
        quietly zlib-configure env CFLAGS="$(library_flags "$work/zlib")" \
            ./configure --static --prefix="$work/libraries"
        quietly zlib-build make libz.a
        quietly zlib-install make install
    )
    install -D -m 644 "$work/zlib/LICENSE" "$work/licenses/zlib/LICENSE"
}

# The decoder alone: the host driver reads PyTorch's fat binaries.
build_zstd() {
    unpack "$work"/sources/libzstd_*.tar.* "$work/zstd"
    (
        cd "$work/zstd/lib"
        set -- ZSTD_LIB_COMPRESSION=0 ZSTD_LIB_DICTBUILDER=0 ZSTD_LIB_DEPRECATED=0 \
            ZSTD_LEGACY_SUPPORT=0 ZSTD_NO_ASM=1 PREFIX="$work/libraries" \
            CFLAGS="$(library_flags "$work/zstd")"
        quietly zstd-build make libzstd.a "$@"
        quietly zstd-install make install-static install-includes install-pc "$@"
    )
    install -D -m 644 "$work/zstd/LICENSE" "$work/licenses/zstd/LICENSE"
}

# Once for each list of sources and tools.
make_libraries() {
    stamp="$(cat packaging/sources.txt packaging/requirements.txt scripts/wheel.sh | sha256sum)"
    [ "$(cat "$work/libraries/stamp" 2>/dev/null)" = "$stamp" ] && return
    packaging/fetch_sources.py "$work/sources"
    rm -rf "$work/libraries" "$work/licenses"
    say "building jansson, zlib and zstd for $target"
    build_jansson
    build_zlib
    build_zstd
    # The compiler's own routines, which it adds to all that it links.
    install -D -m 644 "$zig/LICENSE" "$work/licenses/zig/LICENSE"
    echo "$stamp" >"$work/libraries/stamp"
}

build_sdist() {
    rm -rf "$work/out" "$work/tree"
    quietly sdist "$python" -m build --no-isolation --sdist --outdir "$work/out" "$root"
    unpack "$work"/out/*.tar.gz "$work/tree"
}

build_wheel() {
    export CFLAGS="-fno-sanitize=undefined -idirafter $work/include"
    export PKG_CONFIG_LIBDIR="$work/libraries/lib/pkgconfig" CMAKE_GENERATOR=Ninja
    (cd "$work/tree" && quietly wheel "$python" -m build --no-isolation --wheel \
        --outdir "$work/out" -C "wheel.tags=cp310-abi3-$platform" \
        -C "cmake.define.REPRISE_LICENSES=$work/licenses" \
        -C "cmake.define.CMAKE_AR=$AR" -C "cmake.define.CMAKE_RANLIB=$RANLIB")
}

audit() { # WHEEL: what auditwheel finds must be no newer than the tag
    "$work/venv/bin/auditwheel" show "$1" >"$work/auditwheel.log"
    cat "$work/auditwheel.log"
    "$python" packaging/check_wheel.py --platform "$platform" --forbid "$work" \
        --auditwheel "$work/auditwheel.log" "$1"
}

make_tools
make_compilers
find_python_headers
make_libraries
say "building the source distribution, and the wheel from it"
build_sdist
build_wheel
audit "$work"/out/*.whl
rm -f dist/reprise_cuda-*
mv "$work"/out/*.whl "$work"/out/*.tar.gz dist/
for file in dist/reprise_cuda-*; do
    say "$file"
done
