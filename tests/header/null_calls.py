#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads the public headers and writes calls.inc for null_calls.c: for each function and each pointer
that it takes a call with NULL there and good arguments elsewhere, and one with all of them good, for
a process that was forked.

    null_calls.py HEADER... OUT

A function that is new in the header is in the test without anybody's doing. That it takes a NULL is
said in MAY_BE_NULL, where the header says so.
"""

import re
import sys

# Pointers that the header says may be NULL, by name in any function, or in one.
MAY_BE_NULL = {"err", "options", "user", "stream", "args"}
MAY_BE_NULL_IN = {
    "rp_device_trim": {"out_bytes"}, "rp_pool_trim": {"out_bytes"},
    "rp_device_restore_pace": {"out_pace"},
    "rp_callable_capture": {"progress", "out_failed"},
    "rp_set_host_memory": {"functions"}, "rp_set_log": {"log"},
    "rp_explain": {"query"},  # NULL is no such entry
}
# Counts of what a pointer leads to: with 0 of them the pointer may be NULL.
COUNTS = {"count", "value_count", "arg_count", "room", "bytes", "capacity"}


def prototypes(header):
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    text = re.sub(r"^#.*(?:\\\n.*)*$", "", text, flags=re.M)
    for found in re.finditer(r"RP_API\s+([^;{]*?);", text):
        declared = re.sub(r"\s+", " ", found.group(1)).strip()
        declared = re.sub(r"void \(\*log\)\([^)]*\)", "rp_log_fn log", declared)
        declared = re.sub(r"void \(\*(rp_device_function)\((.*?)\)\)\(void\)", r"void * \1(\2)",
                          declared)
        parts = re.fullmatch(r"(.*?)(rp_\w+)\((.*)\)", declared)
        if not parts:
            sys.exit(f"null_calls.py: cannot read: {declared}")
        result, name, parameters = (part.strip() for part in parts.groups())
        yield result, name, [] if parameters == "void" else parameters.split(", ")


def split(parameter):
    kind, name = re.fullmatch(r"(.*?)(\w+)", parameter).groups()
    return re.sub(r"\bconst\b ?", "", kind).strip().replace("*const", "*"), name


def is_pointer(kind):
    return kind.endswith("*") or kind.endswith("_fn")


def good(kind, name):
    if name == "err":
        return "&good.err"
    if name in ("options", "stream"):
        return "NULL"
    if kind == "rp_callable_fn":
        return "good_callable"
    if kind == "rp_progress_fn":
        return "good_progress"
    if is_pointer(kind):
        return "(void *)good.out" if name.startswith("out_") else "good.object"
    return "1" if name in COUNTS else "0"


def write(out, functions):
    for result, name, parameters in functions:
        taken = [split(parameter) for parameter in parameters]
        if not any(is_pointer(kind) for kind, _ in taken):
            continue
        arguments = [good(kind, each) for kind, each in taken]
        is_status = int(result == "rp_status")
        may = MAY_BE_NULL | MAY_BE_NULL_IN.get(name, set())
        if name.endswith("_destroy"):
            may = may | {taken[0][1]}
        for at, (kind, each) in enumerate(taken):
            if not is_pointer(kind) or each in may:
                continue
            call = ", ".join(arguments[:at] + ["NULL"] + arguments[at + 1:])
            out.write(f'NULL_CALL({is_status}, {name}, "{each}", ({call}))\n')
        if name.endswith("_destroy"):
            out.write(f"NULL_DESTROY({name})\n")
        device = not re.match(r"rp_(recording|layout|advi|expl|findings|set_|heap_snapshot_[sbej])",
                              name)
        if is_status and device:
            out.write(f"FORKED_CALL({name}, ({', '.join(arguments)}))\n")


def main():
    *headers, target = sys.argv[1:]
    functions = []
    for header in headers:
        with open(header, encoding="utf-8") as file:
            functions += prototypes(file.read())
    with open(target, "w", encoding="utf-8") as out:
        out.write("/* Written by null_calls.py. */\n")
        write(out, functions)


main()
