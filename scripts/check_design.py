#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that the pages about the design lead to what is there.

    docs/design.md     terms are defined once, and the file of each exists; the map names every room of the
                       tree; a function that answers a question is in the question's file; each chapter is
                       linked
    docs/design/*.md   a section is a decision: Decision, Why, Cost and Where, in that order; each file under
                       Where exists, and so does each result, each file of the tree and each function of the
                       library that a page names

usage: check_design.py ROOT
       check_design.py --self-test
"""

import pathlib
import re
import tempfile

import breaches

FACTS = "facts.md"  # tables of figures, and no decisions
PARTS = ["Decision", "Why", "Cost", "Where"]
RESULTS = ("bench/results", "bench/results/h200")
ROOMS = ("src", "src/driver", "src/graph", "src/memory", "python/csrc", "python/reprise")
SPAN = re.compile(r"`([^`\n]+)`")
PART = re.compile(r"^\*\*(\w+)\.\*\* ?(.*?)(?=^\*\*\w+\.\*\*|\Z)", re.DOTALL | re.MULTILINE)
QUESTION = re.compile(r"^\| [^|]*\? \| ([^|]*) \| `([^`|]+)` \|$", re.MULTILINE)
FUNCTION = re.compile(r"rp[ip]?_\w+")
TERMS = re.compile(r"^\| term \| meaning \| where \|\n\|[-|]+\|\n((?:\|.*\n)*)", re.MULTILINE)


def is_path(root, name):
    """Is it meant for a file or folder of the tree?"""
    return bool(re.fullmatch(r"[\w./*-]+", name)) and "/" in name and (root / name.split("/")[0]).is_dir()


def lost_names(root, text):
    """Files of the tree, and results, that a page names and nobody has."""
    for name in SPAN.findall(text):
        if is_path(root, name):
            if "*" not in name and not (root / name).exists():
                yield name
        elif re.fullmatch(r"[\w-]+\.json", name) and not any((root / folder / name).exists() for folder in RESULTS):
            yield name


def sections(text):
    """Heading and text of each."""
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, rest = section.partition("\n")
        yield heading, rest


def decision_findings(root, text):
    for heading, section in sections(text):
        parts = PART.findall(section)
        if [name for name, _ in parts] != PARTS:
            yield f"'{heading}' does not have {', '.join(PARTS)} in this order"
            continue
        if not all(part.strip() for _, part in parts):
            yield f"'{heading}' has an empty part"
        named = SPAN.findall(parts[-1][1])
        if not named:
            yield f"'{heading}' names no file under Where"
        yield from (f"'{heading}' is said to be in {name}, which is not there"
                    for name in named if not (root / name).exists())


def term_findings(root, text):
    seen = set()
    rows = [row for table in TERMS.findall(text) for row in table.splitlines()]
    if not rows:
        yield "there are no terms"
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if len(cells) != 3:
            yield f"a term's row has not three cells: {row}"
            continue
        for term in cells[0].split(", "):
            if term in seen:
                yield f"'{term}' is defined twice"
            seen.add(term)
        files = SPAN.findall(cells[2])
        if not files or not all((root / name).is_file() for name in files):
            yield f"'{cells[0]}' is said to be in {cells[2] or 'no file'}, which is not there"


def question_findings(root, text):
    for answer, name in QUESTION.findall(text):
        words = re.findall(r"\w+", (root / name).read_text(encoding="utf-8")) if (root / name).is_file() else []
        yield from (f"{function} is said to be in {name}, which has no such name"
                    for function in SPAN.findall(answer) if function not in words)


def lost_functions(root, texts):
    """Functions of the library that pages name and nobody has, each with its page."""
    named = {(where, name) for where, text in texts.items() for name in SPAN.findall(text)
             if FUNCTION.fullmatch(name)}
    there = set()
    for folder in ("include", "src", "python/csrc"):
        for path in (root / folder).rglob("*.[ch]"):
            there.update(FUNCTION.findall(path.read_text(encoding="utf-8")))
    yield from (f"{where}: names {name}, which is nowhere in the tree"
                for where, name in sorted(named) if name not in there)


def rooms(root):
    """The folders of the tree that are rooms."""
    for floor in ROOMS:
        for folder in sorted((root / floor).glob("*/")):
            name = folder.relative_to(root).as_posix()
            if any(file.suffix in {".c", ".py"} for file in folder.rglob("*")):
                yield name


def check(root):
    page = root / "docs/design.md"
    text = page.read_text(encoding="utf-8")
    findings = [f"docs/design.md: {finding}" for finding in term_findings(root, text)]
    findings += [f"docs/design.md: {finding}" for finding in question_findings(root, text)]
    findings += [f"docs/design.md: the map lacks {name}" for name in rooms(root) if f"| `{name}` |" not in text]
    chapters = sorted((root / "docs/design").glob("*.md"))
    linked = {match.split("#")[0] for match in re.findall(r"\]\((design/[^)\s]+)\)", text)}
    findings += [f"docs/design.md: no link leads to design/{chapter.name}"
                 for chapter in chapters if f"design/{chapter.name}" not in linked]
    texts = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in [page, *chapters]}
    findings += lost_functions(root, texts)
    for path in [page, *chapters]:
        where = path.relative_to(root).as_posix()
        text = texts[where]
        if path != page and path.name != FACTS:
            findings += [f"{where}: {finding}" for finding in decision_findings(root, text)]
        findings += [f"{where}: names {name}, which is not there" for name in lost_names(root, text)]
    return list(dict.fromkeys(findings))


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name in ("src/base/a.c", "docs/design/one.md", "bench/results/h200/b.json"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("int rpi_do(void);\n", encoding="utf-8")
        terms = "| term | meaning | where |\n|---|---|---|\n| word | what it means | `src/base/a.c` |\n"
        page = terms + ("\n| `src/base` | bricks |\n\n[One](design/one.md#x).\n\n"
                        "| Who does? | [One](design/one.md), `rpi_do` | `src/base/a.c` |\n")
        chapter = ("# One\n\n## A\n\n**Decision.** It `b.json`.\n\n**Why.** So.\n\n**Cost.** None.\n\n"
                   "**Where.** `src/base/a.c`.\n")

        def findings(page, chapter):
            (root / "docs/design.md").write_text(page, encoding="utf-8")
            (root / "docs/design/one.md").write_text(chapter, encoding="utf-8")
            return check(root)

        assert findings(page, chapter) == [], check(root)
        for wrong_page, finding in ((page.replace("a.c", "b.c"), "'word' is said to be in `src/base/b.c`"),
                                    (page.replace(terms, terms + terms.splitlines()[2] + "\n"), "defined twice"),
                                    (page.replace("`src/base` |", "`src/bass` |"), "the map lacks src/base"),
                                    (page.replace("one.md", "two.md"), "no link leads to design/one.md"),
                                    (page.replace("rpi_do", "rpi_did"), "rpi_did is said to be in src/base/a.c"),
                                    (page + "`src/none.c`", "names src/none.c")):
            found = findings(wrong_page, chapter)
            assert finding in " ".join(found), (finding, found)
        for wrong, finding in ((chapter.replace("a.c", "b.c"), "is said to be in src/base/b.c"),
                               (chapter.replace("b.json", "c.json"), "names c.json"),
                               (chapter.replace("b.json", "rpi_not"), "names rpi_not, which is nowhere"),
                               (chapter.replace("**Why.** So.\n\n", ""), "does not have Decision, Why"),
                               (chapter.replace("So.", ""), "has an empty part"),
                               (chapter.replace("`src/base/a.c`", "there"), "names no file")):
            found = findings(page, wrong)
            assert finding in " ".join(found), (finding, found)
    print("check_design: lost files, functions, terms, rooms, chapters and parts of decisions are found")


if __name__ == "__main__":
    breaches.main(__doc__, check, self_test, "all that the pages of the design name is there")
