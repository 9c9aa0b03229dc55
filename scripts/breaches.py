# SPDX-License-Identifier: MIT
"""The self-tests of scripts that refuse files of a tree."""

import pathlib
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
