#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that includes point down the list of the house (docs/design.md), and nowhere else.

    base, explain, policy, driver, memory, graph, check, profile, report      src/NAME/
    cli                              sees reprise.h, how files are written and texts cleaned, and by what names
                                     people ask for explanations

A layer includes itself and what stands before it. Above the driver only the table is seen, never
who fills it: driver/host/ and the functions that give a provider belong to src/driver and to the one
file that opens devices. NVIDIA's own headers are included nowhere: the types are cuda_abi.h's.

usage: check_includes.py ROOT
       check_includes.py --self-test
"""

import pathlib
import re
import sys

import breaches

LAYERS = ["base", "explain", "policy", "driver", "memory", "graph", "check", "profile", "report"]
OPENS_DEVICES = "src/graph/device.c"
DRIVER_HEADERS = {"driver/driver.h", "driver/cuda_abi.h", "driver/symbols.def", "driver/results.def",
                  "driver/watch.h"}
COMMAND_SEES = {"reprise.h", "base/outfile.h", "base/text.h", "explain/explain.h"}
PROVIDERS = re.compile(r"\brpi_driver_(libcuda|host)\s*\(")
NVIDIA = re.compile(r"cuda(_runtime\w*|_runtime_api)?\.h|cuda[A-Z]\w*\.h")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def library_finding(path, quoted, name):
    """Why src/LAYER/... may not include name; None where it may."""
    layer = path.split("/")[1]
    if NVIDIA.fullmatch(name):
        return "NVIDIA's headers are not needed to build: use driver/cuda_abi.h"
    if not quoted or name == "reprise.h":
        return None
    target = name.split("/")[0]
    if target not in LAYERS or "/" not in name:
        return "write it as layer/file.h, with a layer of the list"
    if LAYERS.index(target) > LAYERS.index(layer):
        return f"{layer} may not see {target}, which stands above it"
    if target == "driver" and layer != "driver" and path != OPENS_DEVICES:
        if name not in DRIVER_HEADERS:
            return "above the driver only its table is seen: driver/driver.h or driver/cuda_abi.h"
    return None


def command_finding(headers, quoted, name):
    """Why cli/... may not include name; None where it may. headers are those of cli/."""
    if NVIDIA.fullmatch(name):
        return "NVIDIA's headers are not needed to build"
    if not quoted or name in COMMAND_SEES or ("/" not in name or name.startswith("kernels/")) and \
            name.split("/")[-1] in headers:
        return None
    return "a command sees the headers of cli/, and " + ", ".join(sorted(COMMAND_SEES))


def check(root):
    """The findings in a tree, as sentences, and how many files were read."""
    findings, count = [], 0
    headers = {path.name for path in root.glob("cli/**/*")} - {"reprise.h"}
    for path in sorted([*root.glob("src/**/*"), *root.glob("cli/**/*")]):
        if path.suffix not in {".c", ".h", ".def", ".inc"}:
            continue
        count += 1
        where = path.relative_to(root).as_posix()
        text = COMMENT.sub(lambda m: "\n" * m.group().count("\n"), path.read_text(encoding="utf-8"))
        for match in INCLUDE.finditer(text):
            quoted, name = match.group(1) == '"', match.group(2)
            if where.startswith("cli/"):
                reason = command_finding(headers, quoted, name)
            else:
                reason = library_finding(where, quoted, name)
            if reason:
                line = text.count("\n", 0, match.start()) + 1
                findings.append(f"{where}:{line}: includes {name}: {reason}")
        if not where.startswith("src/driver/") and where != OPENS_DEVICES:
            for match in PROVIDERS.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                findings.append(f"{where}:{line}: {match.group().rstrip('(')}: only {OPENS_DEVICES} "
                                "chooses who provides the driver")
    return findings, count


def self_test():
    """One tree with everything that is allowed, then one file for each thing that is not."""
    allowed = {
        "src/base/a.h": '#include "reprise.h"\n#include <stdio.h>\n',
        "src/driver/a.c": '#include "driver/host/host.h"\n#include "base/a.h"\n'
                          "const void *p = rpi_driver_host();\n",
        "src/memory/a.c": '#include "driver/driver.h"\n/* #include "graph/a.h" */\n',
        "src/graph/device.c": '#include "driver/host/host.h"\nint x = rpi_driver_libcuda(0, 0);\n',
        "cli/cli.h": "",
        "cli/main.c": '#include "cli.h"\n#include "reprise.h"\n#include "base/text.h"\n',
    }
    refused = {
        "src/base/b.c": '#include "driver/driver.h"\n',
        "src/memory/b.c": '\n#include "graph/a.h"\n',
        "src/memory/c.c": '#include "driver/host/host.h"\n',
        "src/memory/d.c": "const void *p = rpi_driver_host();\n",
        "src/graph/b.c": '#include "a.h"\n',
        "src/graph/c.c": '# include <cuda.h>\n',
        "src/driver/b.c": '#include "report/svg.h"\n',
        "cli/b.c": '#include "memory/plan.h"\n',
        "cli/c.c": '#include "base/vec.h"\n',
    }
    def look(root):
        findings, count = check(root)
        assert count >= len(allowed)
        return findings

    breaches.expect(look, allowed, refused)
    print(f"check_includes: each of {len(refused)} kinds of breach is found")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    findings, count = check(pathlib.Path(sys.argv[1]))
    for finding in findings:
        print(f"check_includes: {finding}")
    if findings:
        sys.exit(1)
    if count == 0:
        sys.exit("check_includes: no sources found there")
    print(f"check_includes: {count} files, every include points down")


if __name__ == "__main__":
    main()
