#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds the lists of host/symbols against what wheels of PyTorch ask of NVIDIA's libraries.

usage: host_symbols.py [--write] PYTHON...

PYTHON: an interpreter that has a torch; its libraries' undefined symbols are read with nm. Prints each
name that a list lacks, and fails where there is one; with --write adds it: as written in C where a source
of that library defines it, else as one that answers "not supported". Names that no PyTorch given asks for
stay, as others may. What is asked of libcuda is in host/libcuda/refused.def or in C, and is only told."""
import argparse
import re
import subprocess
import sys
from pathlib import Path

HOST = Path(__file__).resolve().parents[1] / "host"
# The list that a name belongs to, by how it begins; the first that fits.
PREFIXES = (("cublasLt", "cublasLt"), ("cublas", "cublas"), ("cudnn", "cudnn"), ("cufft", "cufft"),
            ("cuFile", "cufile"), ("cupti", "cupti"), ("curand", "curand"), ("cusolver", "cusolver"),
            ("cusparseLt", "cusparseLt"), ("cusparse", "cusparse"), ("cuda", "cudart"),
            ("__cuda", "cudart"), ("nccl", "nccl"), ("nvrtc", "nvrtc"), ("nvshmem", "nvshmem"))
IS_DRIVER = re.compile(r"cu[A-Z]")


def asked_by(python):
    """Names that the libraries of this interpreter's torch leave to others."""
    find = "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"
    folder = subprocess.run([python, "-c", find], check=True, capture_output=True, text=True).stdout.strip()
    libraries = sorted(Path(folder, "lib").glob("*.so"))
    text = subprocess.run(["nm", "-D", "--undefined-only", *libraries], check=True, capture_output=True,
                          text=True).stdout
    return {line.split()[-1].split("@")[0] for line in text.splitlines() if len(line.split()) == 2}


def list_of(name):
    """The file of a name's list; None: it is none of NVIDIA's libraries'."""
    for prefix, stem in PREFIXES:
        if name.startswith(prefix):
            return HOST / "symbols" / f"{stem}.txt"
    return None


def names_in(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    return {line.split()[0] for line in lines if line and not line.startswith(("#", "library "))}


def is_written(path, name):
    """Does a source of the library define it, by itself or by a macro?"""
    return any(re.search(rf"\b{name}\b\s*([(,)]|$)", source.read_text(encoding="utf-8"), re.M)
               for source in (HOST / path.stem).glob("*.[ch]"))


def add(path, names):
    """Adds names to a list, in their order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("library ")) + 1
    lines[head:] = sorted(lines[head:] + [name + " own" * is_written(path, name) for name in names])
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def driver_lacks(names):
    text = "".join(path.read_text(encoding="utf-8") for path in (
        HOST / "libcuda" / "refused.def", HOST.parent / "src" / "driver" / "symbols.def",
        *(HOST / "libcuda").glob("*.c")))
    return sorted(name for name in names if IS_DRIVER.match(name) and list_of(name) is None
                  and not re.search(rf"\b{name.removesuffix('_v2')}(_v2)?\b", text))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("python", nargs="+")
    args = parser.parse_args()
    asked = set().union(*map(asked_by, args.python))
    missing = 0
    for path in sorted(set(filter(None, map(list_of, asked)))):
        lacks = sorted({name for name in asked if list_of(name) == path} - names_in(path))
        for name in lacks:
            print(f"{path.name}: {name}")
        if args.write:
            add(path, lacks)
        missing += 0 if args.write else len(lacks)
    lacks = driver_lacks(asked)
    for name in lacks:
        print(f"libcuda: {name}")
    return 1 if missing or lacks else 0


if __name__ == "__main__":
    sys.exit(main())
