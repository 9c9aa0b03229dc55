# SPDX-License-Identifier: MIT
"""Builds the wheel: CMake builds the static library, over which the extension is linked, and the
command, which the package runs (python -m reprise explain 901).

One wheel serves CPython 3.10 and later (the stable ABI) and PyTorch 2.9 and later: nothing of
PyTorch is needed to build. What the library needs to build, see scripts/setup.sh.
"""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


def version():
    """The version, which the public header states."""
    words = [line.split() for line in (ROOT / "include/reprise.h").read_text().splitlines()]
    numbers = {w[1]: w[2] for w in words if len(w) == 3 and w[0] == "#define"}
    return ".".join(numbers[f"RP_VERSION_{part}"] for part in ("MAJOR", "MINOR", "PATCH"))


class Build(build_ext):
    """build_ext, with the library and the command built first."""

    def command_path(self):
        """Where the command lies in the package that is built."""
        return Path(self.get_ext_fullpath("reprise._C")).resolve().parent / "bin" / "reprise"

    def get_outputs(self):
        return [*super().get_outputs(), str(self.command_path())]

    def run(self):
        if not Path(sysconfig.get_path("include"), "Python.h").exists():
            raise SystemExit("reprise: Python.h was not found. Install the headers of this Python "
                             "(Debian, Ubuntu: python3-dev)")
        folder = Path(self.build_temp).resolve() / "library"
        folder.mkdir(parents=True, exist_ok=True)
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        cmake = os.environ.get("CMAKE", "cmake")
        try:
            subprocess.run([cmake, "-S", ROOT, "-B", folder, *generator, "-DBUILD_TESTING=OFF",
                            "-DCMAKE_BUILD_TYPE=Release"], check=True)
            subprocess.run([cmake, "--build", folder, "--target", "reprise_static", "reprise"],
                           check=True)
        except FileNotFoundError:
            raise SystemExit("reprise: cmake was not found. Install cmake, a C compiler, "
                             "pkg-config, libjansson-dev and zlib1g-dev") from None
        except subprocess.CalledProcessError:
            raise SystemExit("reprise: the C library could not be built; the reason is above. It "
                             "needs cmake, a C compiler, pkg-config, libjansson-dev and "
                             "zlib1g-dev") from None
        for extension in self.extensions:
            extension.extra_objects = [str(folder / "libreprise.a")]
        super().run()
        self.command_path().parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / "reprise", self.command_path())


sources = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "python/csrc").glob("*.c"))
headers = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "python/csrc").glob("*.h"))
setup(
    version=version(),
    ext_modules=[Extension(
        "reprise._C", sources,
        depends=headers,
        include_dirs=["include"],
        define_macros=[("Py_LIMITED_API", "0x030A0000"), ("_GNU_SOURCE", None)],
        extra_compile_args=["-std=c17", "-fexceptions", "-fvisibility=hidden", "-Wall", "-Wextra"],
        # Only what is used comes out of the archive, and none of it is seen from outside.
        extra_link_args=["-Wl,--exclude-libs,ALL", "-Wl,--gc-sections"],
        libraries=["pthread", "dl", "m"],
        py_limited_api=True,
    )],
    cmdclass={"build_ext": Build},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
