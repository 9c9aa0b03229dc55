#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Counts the words of the sentences of documents: 20 on average at most, and none above 40.

Code, tables, generated parts and links' addresses do not count. Documents in NOT_YET are counted and not held
to it, as they are being written anew; nor is the changelog, which lists.

usage: check_prose.py ROOT
       check_prose.py --self-test
"""

import pathlib
import re
import sys

MOST, MEAN = 40, 20
NOT_YET = {"CHANGELOG.md"}  # and those in folders of these names
BLOCKS = re.compile(r"^```.*?^```$|<!-- table: .*?<!-- end -->|<!--.*?-->", re.DOTALL | re.MULTILINE)
PARAGRAPHS = re.compile(r"\n\s*\n|\n(?=\s*[-*|#]|\d+\. )")
ENDS = re.compile(r"(?<=[.!?:])[)\"*`]*\s+(?=[A-Z`\[(*])")


def sentences(document):
    for paragraph in PARAGRAPHS.split(BLOCKS.sub("", document)):
        if paragraph.lstrip().startswith(("|", "#", "![")):
            continue
        text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"^\s*([-*]|\d+\.)\s+", "", paragraph))
        for sentence in ENDS.split(" ".join(text.split())):
            words = sum(bool(re.search(r"\w", word)) for word in sentence.split())
            if words > 1:
                yield words, sentence


def counts(document):
    """Sentences, their mean length, and those that are too long."""
    found = list(sentences(document))
    return len(found), sum(n for n, _ in found) / max(1, len(found)), [s for n, s in found if n > MOST]


def documents(root):
    return sorted([*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("examples/*.md")])


def is_held(name, not_yet=frozenset(NOT_YET)):
    return not any(name == later or name.startswith(later.removesuffix(".md") + "/") for later in not_yet)


def self_test():
    text = ("# A title of many words\n\nOne two three. Four `five six`\nseven.\n\n- Eight [nine](ten eleven).\n"
            "\n```c\nint x; /* of no account */\n```\n| a | table |\n")
    assert [n for n, _ in sentences(text)] == [3, 4, 2], list(sentences(text))
    assert counts("word " * 41 + ".")[2] and not counts("word " * 40 + ".")[2]
    assert not list(sentences("<!-- table: x -->\n| a |\n\nMade by a script, not by hand.\n<!-- end -->\n"))
    later = {"docs/design.md"}
    assert is_held("docs/guides/c.md", later) and is_held("docs/designs.md", later)
    assert not is_held("docs/design.md", later) and not is_held("docs/design/pool.md", later)
    print("check_prose: sentences are found, and long ones")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root, failed = pathlib.Path(sys.argv[1]), False
    for path in documents(root):
        name = path.relative_to(root).as_posix()
        count, mean, long = counts(path.read_text(encoding="utf-8"))
        held = is_held(name)
        bad = mean > MEAN or bool(long)
        failed |= held and bad
        note = "" if not bad else ": too long" if held else ": too long, not held to it yet"
        print(f"check_prose: {name:40} {count:4} sentences, {mean:4.1f} words, {len(long)} above {MOST}{note}")
        for sentence in long if held else ():
            print(f"check_prose:   {sentence}")
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
