#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks a wheel and the source distribution next to it.

usage: check_wheel.py --platform TAG [--forbid TEXT]... --auditwheel LOG WHEEL

- The wheel is self-contained: its programs need nothing but the C library, of a version no newer
  than the tag says, by auditwheel's account and by their own symbol versions.
- They show only what they should: the extension its init function, the command the library, the host
  driver's libraries names of NVIDIA's; these may need each other.
- Every file that should be there is, and none that should not; no file holds a forbidden text (the
  folder that it was built in).
- The source distribution has the files that git keeps, where this is a clone.

Prints what it found; exits 1 after naming every fault. Needs pyelftools.
"""

import argparse
import email.parser
import io
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).resolve().parents[1]
C_LIBRARY = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1",
             "ld-linux-x86-64.so.2"}
# What the start of a program shows, by the C library's own objects.
OF_START = {"_IO_stdin_used", "__data_start", "data_start", "_start", "__libc_csu_init",
            "__libc_csu_fini", "main", "__bss_start", "_edata", "_end", "_init", "_fini"}
LICENSES = ("LICENSE", "jansson/LICENSE", "zlib/LICENSE", "zstd/LICENSE", "zig/LICENSE")
# What stands in NVIDIA's place where there is no GPU, in the order in which it is loaded.
HOST = "reprise/_host/lib"
HOST_LIBRARIES = tuple(name for line in (ROOT / "host/preload.txt").read_text(encoding="utf-8").splitlines()
                       if not line.startswith("#") for name in line.split())
HOST_NAMES = re.compile(r"(__)?(cu|nccl|nvrtc|nvshmem)|lib\w+\.so\.\d+$")
METADATA = {"Name": "reprise-cuda", "License-Expression": "MIT", "Requires-Python": ">=3.10",
            "License-File": "LICENSE", "Description-Content-Type": "text/markdown"}


class Faults:
    """What is wrong; said once each."""

    def __init__(self):
        self.count = 0

    def add(self, text):
        self.count += 1
        print(f"check_wheel: wrong: {text}", file=sys.stderr)


def header_version():
    text = (ROOT / "include/reprise.h").read_text(encoding="utf-8")
    return ".".join(re.search(rf"#define RP_VERSION_{part} (\d+)", text)[1]
                    for part in ("MAJOR", "MINOR", "PATCH"))


def number(version):
    return tuple(int(n) for n in version.split("."))


# ---- The programs ----


def dynamic_symbols(elf):
    """The names of symbols that others can bind to."""
    for symbol in elf.get_section_by_name(".dynsym").iter_symbols():
        if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL":
            yield symbol.name


def needed_versions(elf):
    """GLIBC_x.y and the like, each with the library it is of."""
    section = elf.get_section_by_name(".gnu.version_r")
    for library, versions in section.iter_versions() if section else ():
        for version in versions:
            yield library.name, version.name


def check_paths(name, tags, in_host, faults):
    """Where it looks for libraries: the host driver's next to themselves, and nothing else anywhere."""
    for tag in tags:
        if tag.entry.d_tag == "DT_RUNPATH" and in_host and tag.runpath == "$ORIGIN":
            continue
        if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH"):
            faults.add(f"{name} has a path of its own to look for libraries")


def check_needs(name, elf, newest, faults):
    """Libraries and versions; returns the highest version of the C library."""
    in_host = name.startswith(HOST + "/")
    tags = list(elf.get_section_by_name(".dynamic").iter_tags())
    needed = [tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"]
    for library in set(needed) - C_LIBRARY - (set(HOST_LIBRARIES) if in_host else set()):
        faults.add(f"{name} needs {library}, which a machine may not have")
    check_paths(name, tags, in_host, faults)
    highest = (0,)
    for library, version in needed_versions(elf):
        got = re.fullmatch(r"GLIBC_([\d.]+)", version)
        if in_host and library in HOST_LIBRARIES:
            continue
        if not got or number(got[1]) > newest:
            faults.add(f"{name} needs {version} of {library}, newer than its tag")
        else:
            highest = max(highest, number(got[1]))
    return f"needs {' '.join(sorted(needed))}, glibc {'.'.join(map(str, highest))}"


def check_program(name, data, newest, faults):
    elf = ELFFile(io.BytesIO(data))
    if elf.header.e_type != "ET_DYN":
        faults.add(f"{name} lies at a fixed address")
    shown = set(dynamic_symbols(elf))
    if name.startswith(HOST + "/"):
        wrong = {s for s in shown if not HOST_NAMES.match(s)}
    elif name.endswith(".so"):
        wrong = shown ^ {"PyInit__C"}
    else:
        wrong = {s for s in shown - OF_START if not s.startswith("rp_")}
        if "rp_version" not in shown:
            faults.add(f"{name} does not show the library to what `reprise check` loads")
    if wrong:
        faults.add(f"{name} shows or lacks the symbols {', '.join(sorted(wrong)[:5])}")
    print(f"check_wheel: {name}: {check_needs(name, elf, newest, faults)}; shows "
          f"{len(shown)} symbols")


# ---- The files ----


def expected_files(info):
    """Every file of the wheel, from the tree."""
    package = ROOT / "python/reprise"
    site = package / "_host/site"  # of an editable install
    files = {f"reprise/{p.relative_to(package).as_posix()}" for p in package.rglob("*")
             if (p.suffix in (".py", ".pyi") or p.name == "py.typed") and site not in p.parents}
    files |= {f"{HOST}/{name}" for name in (*HOST_LIBRARIES, "preload.txt", "gpus.txt")}
    files.add("reprise/_host/site/sitecustomize.py")
    files |= {f"reprise/share/reprise/captures/{p.name}"
              for p in (ROOT / "examples/captures").iterdir()}
    files |= {"reprise/_C.abi3.so", "reprise/bin/reprise"}
    files |= {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}
    return files | {f"{info}/licenses/{name}" for name in LICENSES}


def check_metadata(text, faults):
    message = email.parser.Parser().parsestr(text)
    for key, value in {**METADATA, "Version": header_version()}.items():
        if message[key] != value:
            faults.add(f"METADATA: {key} is {message[key]!r}, not {value!r}")
    for key in ("Summary", "Keywords", "Classifier"):
        if not message[key]:
            faults.add(f"METADATA: no {key}")
    if len(message.get_payload()) < 1000:
        faults.add("METADATA: the README is missing")


def check_wheel(path, platform, forbidden, faults):
    version = header_version()
    if path.name != f"reprise_cuda-{version}-cp310-abi3-{platform}.whl":
        faults.add(f"the wheel is named {path.name}")
    newest = number(re.search(r"_(\d+_\d+)_", platform)[1].replace("_", "."))
    info = f"reprise_cuda-{version}.dist-info"
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        for name in sorted(names ^ expected_files(info)):
            faults.add(f"{name} is {'not expected' if name in names else 'missing'}")
        for name in names:
            data = wheel.read(name)
            for text in forbidden:
                if text.encode() in data:
                    faults.add(f"{name} holds {text}")
            if data[:4] == b"\x7fELF":
                check_program(name, data, newest, faults)
        if not wheel.getinfo("reprise/bin/reprise").external_attr >> 16 & 0o111:
            faults.add("reprise/bin/reprise cannot be executed")
        check_metadata(wheel.read(f"{info}/METADATA").decode(), faults)
    print(f"check_wheel: {path.name}: {len(names)} files")


def check_sdist(path, faults):
    """Against git, where there is a clone."""
    top = path.name.removesuffix(".tar.gz") + "/"
    with tarfile.open(path) as archive:
        names = {m.name.removeprefix(top) for m in archive.getmembers() if m.isfile()}
    git = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True,
                         check=False)
    if git.returncode or not (ROOT / ".git").exists():
        print("check_wheel: not a clone: the files of the source distribution are not compared")
        return
    kept = {name for name in git.stdout.split("\0")
            if name and (ROOT / name).exists() and not re.search(r"(^|/)\.", name)}
    for name in sorted(names ^ (kept | {"PKG-INFO"})):
        faults.add(f"{path.name}: {name} is {'not kept by git' if name in names else 'missing'}")
    print(f"check_wheel: {path.name}: {len(names)} files")


def check_audit(log, platform, faults):
    """auditwheel names the oldest platform that the wheel runs on: no newer than the tag."""
    said = re.findall(r'platform tag[^"]*"([a-z]+)_(\d+)_(\d+)_x86_64"', log)
    limit = tuple(int(n) for n in re.search(r"_(\d+)_(\d+)_", platform).groups())
    if not said:
        faults.add("auditwheel named no platform tag")
    for kind, major, minor in said:
        if kind != "manylinux" or (int(major), int(minor)) > limit:
            faults.add(f"auditwheel says {kind}_{major}_{minor}, newer than {platform}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--platform", required=True)
    parser.add_argument("--forbid", action="append", default=[])
    parser.add_argument("--auditwheel", required=True, type=Path)
    parser.add_argument("wheel", type=Path)
    args = parser.parse_args()
    faults = Faults()
    check_audit(args.auditwheel.read_text(encoding="utf-8"), args.platform, faults)
    check_wheel(args.wheel, args.platform, args.forbid, faults)
    (sdist,) = args.wheel.parent.glob("*.tar.gz")
    check_sdist(sdist, faults)
    return 1 if faults.count else 0


if __name__ == "__main__":
    sys.exit(main())
