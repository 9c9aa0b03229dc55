#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Proves that the tests can fail: builds the library with a deliberate fault and runs the tests that
should notice, for each patch in tests/faults. A patch is called NUMBER-NAME.patch, with a number and a
name that no other has, opens with

    Fault: what is wrong, in a few words
    Expect: names of tests, as ctest knows them; at least one of them has to fail

A test that is called torch:PROGRAM:ARGUMENT:... is a program of tests/python or tests/torch_on_host with a
real PyTorch on the host driver: that of TORCH_PYTHON, or else the one that `make torch-test` installed. A
fault that none but such tests could notice is skipped, and named, where there is no PyTorch. The patch goes
on as a unified diff with one or two lines of context. The tree is copied, untracked files
included, to a scratch folder; yours is never touched.

usage: deliberate_faults.py [--scratch DIR] [--list | --check] [--verbose] [NAME...]
       deliberate_faults.py --moved OLD NEW [OLD NEW...] | --moved FILE
       deliberate_faults.py --self-test

--moved renames files, or folders with all in them, in the headers of the patches; the tree itself is
left alone. All pairs apply at once, so files may change places. FILE has a pair on each line. NAME: patches whose file name contains it; all, when none is given. With --scratch the copy and its
build are kept and used again. --check only sees whether patches apply; it copies and builds nothing,
and exits 77 where there is no program to apply them. Exit code 1 when a fault goes unnoticed, a patch
does not apply or build, a test fails without any fault, or two patches share a number or a name."""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join("tests", "faults")
# A test that takes so much longer than without a fault does not end, which is noticed too.
TEST_SECONDS, TEST_TIMES = 20, 10
TORCH = "torch:"


class Broken(Exception):
    """What keeps a fault from being tried."""


class Fault:
    def __init__(self, name):
        self.name = name[: -len(".patch")]
        self.path = os.path.join(TOP, FOLDER, name)
        with open(self.path, encoding="utf-8") as file:
            text = file.read()
        self.what = self.header(text, "Fault")
        self.expect = self.header(text, "Expect").split()
        self.files = re.findall(r"^\+\+\+ b/(\S+)", text, re.M)

    def header(self, text, key):
        found = re.search(rf"^{key}: (.+)$", text, re.M)
        if not found:
            sys.exit(f"{self.path}: has no line '{key}: ...'")
        return found.group(1).strip()


def names_of(folder):
    """The files of the patches, in the order of their numbers. Raises Broken where they have not each
    a number and a name of their own."""
    found, taken = [], {}
    for file in sorted(name for name in os.listdir(folder) if name.endswith(".patch")):
        parts = re.fullmatch(r"(\d+)-(.+)\.patch", file)
        if not parts:
            raise Broken(f"{file}: is not called NUMBER-NAME.patch")
        number = int(parts.group(1))
        for kind, value in (("number", number), ("name", parts.group(2))):
            other = taken.setdefault((kind, value), file)
            if other != file:
                raise Broken(f"{file}: has the {kind} of {other}; give it one of its own")
        found.append((number, file))
    return [file for _, file in sorted(found)]


def run(command, cwd, seconds=None, environment=None):
    """Exit code and output; the code is None when it took too long. environment: what to add."""
    try:
        done = subprocess.run(command, cwd=cwd, timeout=seconds, check=False, text=True,
                              env={**os.environ, **(environment or {})}, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        return None, late.stdout if isinstance(late.stdout, str) else ""


def must(command, cwd, what):
    code, output = run(command, cwd)
    if code != 0:
        raise Broken(f"{what}\n{output[-3000:]}")
    return output


def copy_tree(scratch):
    """Brings the scratch folder to the state of this tree; files that are equal keep their time, so
    that little is built again."""
    listed = must(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], TOP,
                  "listing the files of the tree")
    wanted = [name for name in listed.split("\0") if name and os.path.isfile(os.path.join(TOP, name))]
    for name in wanted:
        source, target = os.path.join(TOP, name), os.path.join(scratch, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.isfile(target) or open(source, "rb").read() != open(target, "rb").read():
            shutil.copy(source, target)
    keep = {os.path.join(scratch, name) for name in wanted}
    for folder, folders, names in os.walk(scratch):
        if folder == scratch and "build" in folders:
            folders.remove("build")
        for name in names:
            if os.path.join(folder, name) not in keep:
                os.remove(os.path.join(folder, name))


def torch_python():
    """An interpreter that has PyTorch; None: there is none."""
    find = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('torch'))"
    for name in (os.environ.get("TORCH_PYTHON"), os.path.join(TOP, "build", "torch", "bin", "python")):
        path = shutil.which(name or "")
        if path and run([path, "-c", find], TOP)[0] == 0:
            return path
    return None


class Tests:
    """The tests of the scratch build: what to build and to start for each. Read from what CMake
    wrote, as ctest tells the command of a test only once its program is built."""

    def __init__(self, scratch, build):
        self.scratch = scratch
        self.build = build
        self.python = torch_python()
        self.commands = {}
        self.environments = {}  # what a test has beside the environment of this script
        self.seconds = {}  # that a test took without a fault
        for folder, _, names in os.walk(build):
            if "CTestTestfile.cmake" in names:
                with open(os.path.join(folder, "CTestTestfile.cmake"), encoding="utf-8") as file:
                    text = file.read()
                for name, words in re.findall(r"^add_test\(\[=\[(.+?)\]=\] (.*)\)$", text, re.M):
                    self.commands[name] = re.findall(r'"([^"]*)"', words)
                for name, pairs in re.findall(
                        r'^set_tests_properties\(\[=\[(.+?)\]=\] .*?ENVIRONMENT "([^"]*)"', text, re.M):
                    self.environments[name] = dict(pair.split("=", 1) for pair in pairs.split(";"))

    def here(self, names):
        """Those of the tests that can be run here."""
        return [name for name in names if self.python or not name.startswith(TORCH)]

    def torch_command(self, name):
        program, *arguments = name[len(TORCH):].split(":")
        for folder in ("python", "torch_on_host"):
            path = os.path.join(self.scratch, "tests", folder, program)
            if os.path.isfile(path):
                return [os.path.join(self.scratch, "scripts", "torch_on_host.sh"), self.python, path,
                        *arguments]
        raise Broken(f"there is no program '{program}'")

    def make(self, names):
        targets = []
        of_torch = [name for name in names if name.startswith(TORCH)]
        if of_torch:  # and the package, with the first that is run
            targets.append("torch_on_host")
        for name in of_torch:
            self.commands[name] = self.torch_command(name)
            self.environments[name] = {"BUILD": self.build, "QUIET": "1"}
        for name in [name for name in names if name not in of_torch]:
            if name not in self.commands:
                raise Broken(f"there is no test '{name}'")
            libraries = [value for value in self.environments.get(name, {}).values()
                         if value.endswith(".so")]
            command = os.path.join(self.build, "reprise")
            words = [word for word in self.commands[name] if word.startswith(self.build + os.sep)]
            if self.commands[name][0] not in words and words != [command]:
                return must(["ninja"], self.build, "it does not build")  # a script, of who knows what
            programs = [*words[:1], *libraries]
            targets += [os.path.relpath(program, self.build) for program in programs
                        if program.startswith(self.build + os.sep)]
        return must(["ninja", *sorted(set(targets))], self.build, "it does not build")

    def failing(self, names):
        """Those that fail, and all that they said."""
        failed, said = [], ""
        for name in names:
            start = time.monotonic()
            limit = TEST_SECONDS + TEST_TIMES * self.seconds.get(name, TEST_SECONDS)
            code, output = run(self.commands[name], self.build, limit, self.environments.get(name))
            self.seconds.setdefault(name, time.monotonic() - start)
            said += output
            if code is None:
                failed.append(name + " (no end)")
            elif code not in (0, 77):
                failed.append(name)
        return failed, said


def apply(fault, scratch, *options):
    command = ["patch", "-p1", "--no-backup-if-mismatch", "--force", "-r", "-", *options]
    with open(fault.path, encoding="utf-8") as file:
        done = subprocess.run(command, cwd=scratch, stdin=file, check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode == 0, done.stdout


def touch(path):
    """Makes a file newer than what was built of it, for tools too that compare whole seconds."""
    later = time.time() + 1
    os.utime(path, (later, later))


def try_fault(fault, expect, scratch, tests):
    """The tests that notice the fault, and what they said. Leaves the scratch tree as it was."""
    kept = {}
    for name in fault.files:
        path = os.path.join(scratch, name)
        if not os.path.isfile(path):
            raise Broken(f"the patch does not apply: there is no {name}")
        with open(path, "rb") as file:
            kept[path] = file.read()
    try:
        done, output = apply(fault, scratch)
        if not done:
            raise Broken(f"the patch does not apply\n{output}")
        for path in kept:
            touch(path)
        tests.make(expect)
        return tests.failing(expect)
    finally:
        for path, content in kept.items():
            with open(path, "wb") as file:
                file.write(content)
            touch(path)


def try_all(faults, scratch, verbose):
    build = os.path.join(scratch, "build")
    all_tests = sorted({name for fault in faults for name in fault.expect})
    copy_tree(scratch)
    must(["cmake", "-S", scratch, "-B", build, "-G", "Ninja"], scratch, "it does not configure")
    tests = Tests(scratch, build)
    all_tests = tests.here(all_tests)
    print(f"building {len(all_tests)} tests without a fault", file=sys.stderr, flush=True)
    tests.make(all_tests)
    failed, said = tests.failing(all_tests)
    if failed:
        raise Broken(f"without any fault these tests fail: {' '.join(failed)}\n{said[-3000:]}")
    bad = skipped = 0
    width = max(len(fault.name) for fault in faults)
    for fault in faults:
        start = time.monotonic()
        expect = tests.here(fault.expect)
        if not expect:
            print(f"{fault.name:{width}}  skipped: needs PyTorch", flush=True)
            skipped += 1
            continue
        try:
            failed, said = try_fault(fault, expect, scratch, tests)
            verdict = ", ".join(failed) if failed else "NOT NOTICED by " + ", ".join(expect)
            bad += not failed
        except Broken as broken:
            verdict, said = "BROKEN: " + str(broken), ""
            bad += 1
        seconds = time.monotonic() - start
        print(f"{fault.name:{width}}  {seconds:5.1f} s  {fault.what}: {verdict}", flush=True)
        if verbose and said:
            print("    " + said.strip()[-1500:].replace("\n", "\n    "), flush=True)
    print(f"{len(faults) - bad - skipped} of {len(faults)} faults noticed"
          + (f", {skipped} skipped without PyTorch" if skipped else ""))
    return bad


def check(faults):
    """Says which patches do not apply to this tree, which is left alone; their count."""
    if not shutil.which("patch"):
        print("skipped: the program patch is not installed")
        sys.exit(77)
    bad = 0
    for fault in faults:
        done, output = apply(fault, TOP, "--dry-run")
        if not done:
            print(f"{fault.name}: does not apply\n{output}", end="")
            bad += 1
    print(f"{len(faults) - bad} of {len(faults)} faults apply")
    return bad


def pairs_of(words):
    """The pairs that --moved was given: (old, new), by the longest old path first."""
    if len(words) == 1:
        with open(words[0], encoding="utf-8") as file:
            lines = [line.split() for line in file if line.strip()]
        for line in lines:
            if len(line) != 2:
                raise Broken(f"{words[0]}: not a pair: {' '.join(line)}")
        words = [word for line in lines for word in line]
    if len(words) % 2:
        raise Broken("--moved takes pairs: OLD NEW")
    pairs = [(old.rstrip("/"), new.rstrip("/")) for old, new in zip(words[::2], words[1::2])]
    twice = {old for old, _ in pairs if [other for other, _ in pairs].count(old) > 1}
    if twice:
        raise Broken(f"--moved names {min(twice)} twice")
    return sorted(pairs, key=lambda pair: -len(pair[0]))


def moved(text, pairs):
    """A patch's text with other paths for files, or for all in a folder, in its headers."""
    paths = "|".join(re.escape(old) for old, _ in pairs)
    instead = dict(pairs)

    def follow(line):
        return re.sub(rf"(?<=\s)([ab]/)({paths})(?=[/\s]|$)",
                      lambda path: path.group(1) + instead[path.group(2)], line.group())

    return re.sub(r"^(?:diff --git |--- a/|\+\+\+ b/).*$", follow, text, flags=re.M)


def move(folder, pairs):
    """Renames files or folders in all patches of a folder; says in how many."""
    count = 0
    for name in names_of(folder):
        path = os.path.join(folder, name)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        after = moved(text, pairs)
        if after != text:
            count += 1
            with open(path, "w", encoding="utf-8") as file:
                file.write(after)
    print(f"{count} patches follow {len(pairs)} moved")
    return 0 if count else 1


def refusal_of(*files):
    with tempfile.TemporaryDirectory(prefix="reprise-faults-") as folder:
        for file in files:
            open(os.path.join(folder, file), "w", encoding="utf-8").close()
        try:
            return " ".join(names_of(folder))
        except Broken as broken:
            return str(broken)


def self_test():
    for files, expected in (
            (("10-b.patch", "9-c.patch", "100-a.patch", "notes"), "9-c.patch 10-b.patch 100-a.patch"),
            (("1-a.patch", "1-b.patch"), "1-b.patch: has the number of 1-a.patch"),
            (("1-a.patch", "01-b.patch"), "1-a.patch: has the number of 01-b.patch"),
            (("1-a.patch", "2-a.patch"), "2-a.patch: has the name of 1-a.patch"),
            (("a.patch",), "a.patch: is not called")):
        got = refusal_of(*files)
        if not got.startswith(expected):
            sys.exit(f"self test: {files} gave '{got}', not '{expected}'")
    patch = "Fault: src/a\n--- a/{0}.c\n+++ b/{0}.c\n@@ -1 +1 @@\n-src/a.c\n+b/src/a.c\n"
    for words, before, after in (
            ("src/a.c src/x/b.c", "src/a", "src/x/b"), ("src/a src/b", "src/ab", "src/ab"),
            ("src/ lib", "src/a", "lib/a"), ("src x", "lib/src/a", "lib/src/a"),
            ("src/a.c src/b.c src/b.c src/a.c", "src/a", "src/b"),
            ("src lib src/a.c x/y.c", "src/a", "x/y")):
        got = moved(patch.format(before), pairs_of(words.split()))
        if got != patch.format(after):
            sys.exit(f"self test: moving {words} gave\n{got}")
    with tempfile.NamedTemporaryFile("w", suffix=".pairs") as file:
        file.write("src/a.c src/b.c\n\nsrc/c/ src/d\n")
        file.flush()
        if pairs_of([file.name]) != [("src/a.c", "src/b.c"), ("src/c", "src/d")]:
            sys.exit("self test: a file of pairs is not read as such")
    for words in ("a b c", "a b a c"):
        try:
            pairs_of(words.split())
        except Broken:
            continue
        sys.exit(f"self test: '{words}' was taken for pairs")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--scratch", help="where to copy and build; kept")
    parser.add_argument("--list", action="store_true", help="list the faults, try none")
    parser.add_argument("--check", action="store_true", help="only see whether they apply")
    parser.add_argument("--moved", nargs="+", metavar="PATH",
                        help="rename files or folders in the patches: OLD NEW..., or a file of pairs")
    parser.add_argument("--self-test", action="store_true", help="test this script itself")
    parser.add_argument("--verbose", action="store_true", help="show what the tests say")
    parser.add_argument("names", nargs="*", help="patches whose file name contains one of these")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    try:
        if args.moved:
            return move(os.path.join(TOP, FOLDER), pairs_of(args.moved))
        return try_those(args)
    except Broken as broken:
        sys.exit(str(broken))


def try_those(args):
    """What the options ask for; the exit code."""
    faults = [Fault(name) for name in names_of(os.path.join(TOP, FOLDER))]
    if args.names:
        faults = [fault for fault in faults if any(name in fault.name for name in args.names)]
    if not faults:
        sys.exit("there is no such fault")
    if args.list:
        for fault in faults:
            print(f"{fault.name}: {fault.what} ({' '.join(fault.expect)})")
        return 0
    if args.check:
        return 1 if check(faults) else 0
    if args.scratch:
        scratch = os.path.abspath(args.scratch)
        os.makedirs(scratch, exist_ok=True)
        return 1 if try_all(faults, scratch, args.verbose) else 0
    with tempfile.TemporaryDirectory(prefix="reprise-faults-") as folder:
        return 1 if try_all(faults, os.path.realpath(folder), args.verbose) else 0


if __name__ == "__main__":
    sys.exit(main())
