#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares what the libraries export with what the public headers declare.

The shared library must export each function that a header marks RP_API, and nothing else. The
static library hides nothing by itself, so its global names must start with rp_ or rpi_, that no
program's own names are taken.

usage: check_exports.py [--nm NM] HEADER... SHARED STATIC
       check_exports.py --self-test
"""

import argparse
import re
import subprocess
import sys


def declared(header):
    """The functions marked RP_API in the text of a header."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", " ", header,
                  flags=re.DOTALL | re.MULTILINE)
    names = set()
    for match in re.finditer(r"\bRP_API\b([^;]*);", text):
        # The name is the first identifier with a parenthesis after it, or, for a function that
        # returns a pointer to a function, the one behind "(*".
        name = re.search(r"(?:\(\s*\*\s*)?\b(rp_\w+)\s*\(", match.group(1))
        if not name:
            raise ValueError(f"no function found in: RP_API{match.group(1)};")
        names.add(name.group(1))
    return names


def exported(nm_output):
    """Defined global symbols from the output of nm -P, without a symbol version."""
    symbols = set()
    for line in nm_output.splitlines():
        fields = line.split()
        if len(fields) >= 2 and len(fields[1]) == 1 and fields[1] not in "Uwv":
            symbols.add(fields[0].split("@")[0])
    return symbols


def is_toolchains(name):
    """Names that the compiler and linker add: the version node, sanitizers, coverage."""
    return bool(re.match(r"(REPRISE_\d+$|_|\.)", name))


def compare(header_names, shared_names, static_names):
    """The findings, as sentences."""
    shared = {name for name in shared_names if not is_toolchains(name)}
    findings = [f"{name} is declared in the header but not exported"
                for name in sorted(header_names - shared)]
    findings += [f"{name} is exported but not declared in the header"
                 for name in sorted(shared - header_names)]
    findings += [f"{name} is global in the static library without the prefix rp_ or rpi_"
                 for name in sorted(static_names)
                 if not is_toolchains(name) and not name.startswith(("rp_", "rpi_"))]
    return findings


def self_test():
    header = """
        #define RP_API __attribute__((visibility("default")))
        /* RP_API int rp_in_a_comment(void); */
        RP_API const char *rp_a(void);
        RP_API int
            rp_b(int x,
                 struct rp_error *err);
        RP_API void (*rp_c(const char *name))(void);
        """
    assert declared(header) == {"rp_a", "rp_b", "rp_c"}, declared(header)
    shared = exported("rp_a@@REPRISE_0 T 10 5\nrp_b T 20 5\nmalloc U\nREPRISE_0 A 0\nrp_x D 8 8\n")
    assert shared == {"rp_a", "rp_b", "rp_x", "REPRISE_0"}, shared
    static = exported("lib.a[one.o]:\nrp_a T 0 5\nrpi_d T 5 5\nfree U\nhelper T 9 9\n__asan_x D 0 1\n")
    findings = compare(declared(header), shared, static)
    assert [f.split()[0] for f in findings] == ["rp_c", "rp_x", "helper"], findings
    assert not compare({"rp_a"}, {"rp_a", "REPRISE_0"}, {"rp_a", "rpi_d"})
    print("check_exports: missing, undeclared and unprefixed names are all found")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("files", nargs="*", metavar="HEADER... SHARED STATIC")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    if len(options.files) < 3:
        parser.error("these files are wanted: HEADER... SHARED STATIC")
    *headers, shared, static = options.files

    def symbols(*arguments):
        return exported(subprocess.run([options.nm, "-P", *arguments], check=True,
                                       capture_output=True, text=True).stdout)

    names = set()
    for header in headers:
        with open(header, encoding="utf-8") as file:
            names |= declared(file.read())
    findings = compare(names, symbols("-D", shared), symbols("-g", static))
    for finding in findings:
        print(f"check_exports: {finding}")
    if findings:
        sys.exit(1)
    print(f"check_exports: {len(names)} functions declared and exported")


if __name__ == "__main__":
    main()
