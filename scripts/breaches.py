# SPDX-License-Identifier: MIT
"""Scripts that refuse files of a tree, and their self-tests."""

import pathlib
import sys
import tempfile


def _write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def expect(check, allowed, refused):
    """Asserts what `check` finds in a tree. check(root) returns findings, "FILE:...". allowed: texts of files by
    name, in which it finds nothing. refused: likewise, and it finds each of them once beside these."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        _write(root, allowed)
        assert not check(root), check(root)
        _write(root, refused)
        assert sorted(finding.split(":")[0] for finding in check(root)) == sorted(refused), check(root)


def main(usage, check, self_test, well):
    """What a script does: its self-test where that is asked for, or else what check(root) finds, which ends it with 1.
    well: said where it finds nothing."""
    name = pathlib.Path(sys.argv[0]).stem
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(usage)
    findings = check(pathlib.Path(sys.argv[1]))
    for finding in findings:
        print(f"{name}: {finding}")
    if findings:
        sys.exit(1)
    print(f"{name}: {well}")
