#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fetches the sources that packaging/sources.txt names into FOLDER, each checked by its SHA-256.

usage: [REPRISE_SOURCES=...] fetch_sources.py FOLDER

A file that is in FOLDER already is kept. Otherwise it comes from the first of these that has it:
the folder REPRISE_SOURCES, for a machine without network; the archives that apt of this machine is
set up with, on Debian and its kin; deb.debian.org, on any other system. Exits 1 where none has it.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

LIST = Path(__file__).resolve().with_name("sources.txt")
APT_HELPER = "/usr/lib/apt/apt-helper"
ARCHIVE = "http://deb.debian.org/debian"  # every file is checked by its sum


def wanted():
    """The sum and the path of each source."""
    lines = [line.split() for line in LIST.read_text(encoding="utf-8").splitlines()]
    return [(words[0], words[1]) for words in lines if words and words[0] != "#"]


def is_right(path, total):
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == total


def apt_archives():
    """Where apt gets the packages of this machine, without repeats."""
    if not os.path.exists(APT_HELPER):
        return []
    done = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)"],
                          capture_output=True, text=True, check=False)
    return list(dict.fromkeys(uri.rstrip("/") for uri in done.stdout.split()))


def copy_from(folder, name, out):
    shutil.copyfile(Path(folder, name), out)


def with_apt(archive, path, out):
    """apt's own download, which knows the machine's proxy and certificates."""
    done = subprocess.run([APT_HELPER, "download-file", f"{archive}/pool/{path}", str(out)],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("E: ")]
        raise OSError(errors[0] if errors else f"apt-helper failed: {done.returncode}")


def with_python(path, out):
    with urllib.request.urlopen(f"{ARCHIVE}/pool/{path}", timeout=60) as answer:
        out.write_bytes(answer.read())


def places(path):
    """Every place that may have the source: its name, and the function that gets the file."""
    name = Path(path).name
    folder = os.environ.get("REPRISE_SOURCES")
    if folder:
        yield folder, lambda out: copy_from(folder, name, out)
    for archive in apt_archives():
        yield archive, lambda out, archive=archive: with_apt(archive, path, out)
    yield ARCHIVE, lambda out: with_python(path, out)


def fetch(total, path, folder):
    """True once the file lies in the folder."""
    target = folder / Path(path).name
    if is_right(target, total):
        return True
    part = target.with_name(target.name + ".part")
    reasons = []
    for place, get in places(path):
        part.unlink(missing_ok=True)
        try:
            get(part)
        except OSError as error:
            reasons.append(f"{place}: {error}")
            continue
        if is_right(part, total):
            part.replace(target)
            print(f"sources: {target.name} from {place}")
            return True
        reasons.append(f"{place}: the file there has another SHA-256 than {total}")
    part.unlink(missing_ok=True)
    print(f"sources: {target.name} could not be fetched:", *reasons, sep="\n  ", file=sys.stderr)
    print("sources: put the file into a folder and name that in REPRISE_SOURCES", file=sys.stderr)
    return False


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    return 0 if all([fetch(total, path, folder) for total, path in wanted()]) else 1


if __name__ == "__main__":
    sys.exit(main())
