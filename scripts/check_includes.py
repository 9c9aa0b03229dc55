#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that includes and calls point down the list of the house (docs/design.md), and nowhere else.

    base, explain, policy, driver, memory, graph, recording, check, profile, report      src/NAME/
    cli                              sees the public headers, how files are written and texts cleaned, and by what
                                     names people ask for explanations

A layer includes and calls itself and what stands before it. A layer with rooms has them in a list of
its own (ROOMS): each of its files lies in one, and a room sees itself and what stands before it. Calls
count as includes do, as the public headers declare functions of all layers: what a file names is looked up
where it is defined. No files call each other in a circle, but for those of WITH_CIRCLES.

Above the driver only the table is seen, never who fills it: driver/host/ and the functions that give
a provider belong to src/driver and to the one file that opens devices. NVIDIA's own headers are
included nowhere: the types are cuda_abi.h's.

usage: check_includes.py ROOT
       check_includes.py --self-test
"""

import pathlib
import re
import sys

import breaches

LAYERS = ["base", "explain", "policy", "driver", "memory", "graph", "recording", "check", "profile", "report"]
ROOMS = {"memory": ["range", "order", "place", "plan", "pool", "heap"],
         "graph": ["ground", "objects", "template", "capture", "bind", "exec", "replay", "verify", "handles",
                   "callable"]}
WITH_CIRCLES = ("src/driver/host/", "src/report/advice_")
OPENS_DEVICES = "src/graph/handles/device.c"
DRIVER_HEADERS = {"driver/driver.h", "driver/cuda_abi.h", "driver/symbols.def", "driver/results.def",
                  "driver/watch.h"}
PUBLIC = {"reprise.h", "reprise_heap.h", "reprise_framework.h", "reprise_tools.h"}
COMMAND_SEES = PUBLIC | {"base/outfile.h", "base/text.h", "explain/explain.h"}
PROVIDERS = re.compile(r"\brpi_driver_(libcuda|host)\s*\(")
NVIDIA = re.compile(r"cuda(_runtime\w*|_runtime_api)?\.h|cuda[A-Z]\w*\.h")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
TEXT = re.compile(r"'(?:[^'\\\n]|\\.)+'|" r'"(?:[^"\\\n]|\\.)*"')
NAME = re.compile(r"(?<!struct )(?<!enum )(?<!union )\brpi?_\w+\b")
# What other files may name, and what a header puts in its place: these begin a line, as clang-format sees
# to.
FUNCTION = re.compile(r"^(?!static\b|typedef\b)[a-zA-Z][\w \t\n*]*?[ *]\(?\*?(rpi?_\w+)\((?:[^;{}]*)\)\n\{",
                      re.MULTILINE)
VARIABLE = re.compile(r"^(?!static\b|extern\b|typedef\b)[a-zA-Z][\w \t*]*?[ *](rpi?_\w+)(?:\[[^\]]*\])* = ?",
                      re.MULTILINE)
INLINE = re.compile(r"^static inline [\w \t\n*]*?[ *](rpi?_\w+)\([^;{}]*\)\n(\{.*?^\})",
                    re.MULTILINE | re.DOTALL)
MACRO = re.compile(r"^#define (rpi?_\w+)\b((?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)


def place_of(path):
    """(layer, room) of src/LAYER/ROOM/..., by their places in the lists. A layer without rooms has one."""
    parts = path.split("/")[1:]
    rooms = ROOMS.get(parts[0])
    return LAYERS.index(parts[0]), rooms.index(parts[1]) if rooms else 0


def homeless(path):
    """Why a file lies in no room; None where it does."""
    parts = path.split("/")[1:]
    if parts[0] not in LAYERS:
        return "is in no layer of the list" if len(parts) > 1 else None
    if parts[0] in ROOMS and (len(parts) != 3 or parts[1] not in ROOMS[parts[0]]):
        return f"is in no room of {parts[0]}: " + ", ".join(ROOMS[parts[0]])
    return None


def above(path, target):
    """Why what lies in path may not see target; None where it may."""
    if place_of(target) <= place_of(path):
        return None
    seeing, seen = path.split("/")[1:3], target.split("/")[1:3]
    if seeing[0] == seen[0]:
        return f"{'/'.join(seeing)} may not see {'/'.join(seen)}, which stands above it"
    return f"{seeing[0]} may not see {seen[0]}, which stands above it"


def library_finding(path, quoted, name):
    """Why src/LAYER/... may not include name; None where it may."""
    layer = path.split("/")[1]
    if NVIDIA.fullmatch(name):
        return "NVIDIA's headers are not needed to build: use driver/cuda_abi.h"
    if not quoted or name in PUBLIC:
        return None
    target = name.split("/")[0]
    if target not in LAYERS or "/" not in name:
        return "write it as layer/file.h, with a layer of the list"
    if homeless("src/" + name):
        return f"{name} {homeless('src/' + name)}"
    if above(path, "src/" + name):
        return above(path, "src/" + name)
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


def without_comments(text):
    return COMMENT.sub(lambda m: "\n" * m.group().count("\n"), text)


def calls_of(texts):
    """Of each .c file of the library: the files that define what it names, each with a name and its line. A
    name that a header defines, as an inline function or a macro, stands for the names in there."""
    texts = {path: TEXT.sub('""', text) for path, text in texts.items()}
    sources = {path: text for path, text in texts.items() if path.startswith("src/") and path.endswith(".c")}
    defined = {name: path for path, text in sources.items()
               for kind in (FUNCTION, VARIABLE) for name in kind.findall(text)}
    stands_for = {name: NAME.findall(body) for path, text in texts.items() if path.endswith(".h")
                  for kind in (INLINE, MACRO) for name, body in kind.findall(text)}

    def meant(name):
        seen, left = set(), [name]
        while left:
            new = set(stands_for.get(left.pop(), ())) - seen
            seen |= new
            left += new
        return seen | {name}

    calls = {path: {} for path in sources}
    for path, text in sources.items():
        for match in NAME.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            for name in meant(match.group()) & defined.keys():
                if defined[name] != path:
                    calls[path].setdefault(defined[name], (name, line))
    return calls


def call_findings(texts):
    """Calls that point up, and circles of calls. texts: of the library's files, without comments."""
    calls = calls_of(texts)
    for path, targets in calls.items():
        for target, (name, line) in targets.items():
            if above(path, target):
                yield f"{path}:{line}: names {name}: {above(path, target)}"
    for circle in circles({path: set(targets) for path, targets in calls.items()}):
        if not all(path.startswith(WITH_CIRCLES) for path in circle):
            yield f"{min(circle)}: calls in a circle with " + ", ".join(sorted(circle - {min(circle)}))


def circles(calls):
    """The sets of files that reach each other, of two or more."""
    def reached(path):
        seen, left = set(), [path]
        while left:
            new = calls[left.pop()] - seen
            seen |= new
            left += new
        return seen

    reach = {path: reached(path) for path in calls}
    rings = {frozenset(other for other in reach[path] if path in reach[other])
             for path in calls if path in reach[path]}
    return sorted(rings, key=min)


def check(root):
    """The findings in a tree, as sentences, and how many files were read."""
    findings, texts, count = [], {}, 0
    headers = {path.name for path in root.glob("cli/**/*")} - PUBLIC
    for path in sorted([*root.glob("src/**/*"), *root.glob("cli/**/*")]):
        if path.suffix not in {".c", ".h", ".def", ".inc"}:
            continue
        count += 1
        where = path.relative_to(root).as_posix()
        text = without_comments(path.read_text(encoding="utf-8"))
        if where.startswith("src/") and homeless(where):
            findings.append(f"{where}: {homeless(where)}")
            continue
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
        if where.startswith("src/"):
            texts[where] = text
    for path in root.glob("include/*.h"):
        texts[path.relative_to(root).as_posix()] = without_comments(path.read_text(encoding="utf-8"))
    return findings + list(call_findings(texts)), count


def self_test():
    """One tree with everything that is allowed, then one file for each thing that is not."""
    allowed = {
        "include/reprise.h": "#define rp_info(a) rp_info_sized(a, sizeof *(a))\n",
        "src/base/a.h": '#include "reprise.h"\n#include <stdio.h>\n',
        "src/driver/a.c": '#include "driver/host/host.h"\n#include "base/a.h"\n'
                          "const void *p = rpi_driver_host();\n",
        "src/memory/order/a.c": '#include "driver/driver.h"\n/* #include "graph/a.h" */\n',
        "src/graph/ground/a.c": "int rpi_low(int *a)\n{\n    return *a;\n}\nconst int rpi_table[] = {1};\n",
        "src/graph/exec/a.h": "static inline int rpi_lower(int *a)\n{\n    return rpi_low(a);\n}\n",
        "src/graph/exec/a.c": '#include "graph/exec/a.h"\n'
                              "int rpi_exec(int *a)\n{\n    return rpi_lower(a) + rpi_table[0];\n}\n",
        "src/graph/replay/a.c": "int rp_info_sized(int *a, size_t bytes)\n{\n"
                                '    return rpi_exec(a) + !"rpi_early";\n}\n',
        "src/graph/handles/device.c": '#include "driver/host/host.h"\nint x = rpi_driver_libcuda(0, 0);\n',
        "src/report/advice_a.c": "int rpi_a(void)\n{\n    return rpi_b();\n}\n",
        "src/report/advice_b.c": "int rpi_b(void)\n{\n    return rpi_a();\n}\n",
        "cli/cli.h": "",
        "cli/main.c": '#include "cli.h"\n#include "reprise.h"\n#include "base/text.h"\n',
    }
    refused = {
        "src/base/b.c": '#include "driver/driver.h"\n',
        "src/base/c.c": "int rpi_early(int *a)\n{\n    return rpi_exec(a);\n}\n",
        "src/memory/order/b.c": '\n#include "graph/ground/a.h"\n',
        "src/memory/order/c.c": '#include "driver/host/host.h"\n',
        "src/memory/order/d.c": "const void *p = rpi_driver_host();\n",
        "src/graph/b.c": "",
        "src/graph/attic/b.c": "",
        "src/graph/exec/b.c": '#include "a.h"\n',
        "src/graph/exec/c.c": '# include <cuda.h>\n',
        "src/graph/exec/d.c": '#include "graph/replay/a.h"\n',
        "src/graph/exec/e.c": "int rpi_early_too(int *a)\n{\n    return rp_info(a);\n}\n",
        "src/graph/bind/b.c": '#include "graph/exec/a.h"\n',
        "src/graph/bind/c.c": "rpi_status rpi_up(int *a)\n{\n    return rpi_exec(a);\n}\n",
        "src/graph/verify/b.c": "int rpi_round(int a)\n{\n    return rpi_and_round(a);\n}\n",
        "src/driver/b.c": '#include "report/svg.h"\n',
        "cli/b.c": '#include "memory/plan/plan.h"\n',
        "cli/c.c": '#include "base/vec.h"\n',
    }
    # The other half of a circle, in which nothing is found by itself.
    allowed["src/graph/verify/c.c"] = "int rpi_and_round(int a)\n{\n    return rpi_round(a);\n}\n"

    def look(root):
        findings, count = check(root)
        assert count >= len(allowed) - 1
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
    print(f"check_includes: {count} files, every include and every call points down")


if __name__ == "__main__":
    main()
