#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Keeps the tables in documents equal to the lists and results that they show.

    docs/driver.md        src/driver/symbols.def and RPI_CAPABILITIES in src/driver/driver.h
    docs/environment.md   src/base/env.def
    README.md             TABLE in python/reprise/_base/versions.py
    docs/benchmarks.md    bench/results/h200/torch-*.json (scripts/comparison.py)

A table stands between the lines <!-- table: NAME --> and <!-- end -->; the text around it is
written by hand. A block of code after <!-- from: FILE --> must stand in that file word for word.
Also checks that each link from one file of the documentation to another file of
the tree, or to a heading of a document, leads somewhere, that the public names that documents and
the headers' comments speak of are declared, and that the environment is read in src/base/env.c
alone.

usage: check_docs.py ROOT            says what differs, exit 1
       check_docs.py --write ROOT    puts the tables right
       check_docs.py --self-test
"""

import pathlib
import re
import sys
import tempfile

import comparison

TABLE = re.compile(r"(<!-- table: ([a-z]+) -->\n).*?(<!-- end -->)", re.DOTALL)
CODE = re.compile(r"<!-- from: (\S+) -->\n```\w*\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)|<img[^>]* src=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
NAME = re.compile(r"\b(?:rp|RP)_\w*[^\W_]\b")
WITH_OTHER_NAMES = ("CHANGELOG.md",)  # those that were, and those within
BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def symbols_table(text):
    """symbols.def as one table, its comments as headings."""
    rows = ["| function | form of CUDA | without it |", "|---|---|---|"]
    entry = re.compile(r"^/\* ([^\n]*) \*/$|^X\((\w+),\s*(\w+),\s*(\d+),", re.MULTILINE)
    for match in entry.finditer(text):
        heading, need, name, version = match.groups()
        if heading:
            rows.append(f"| **{heading}** | | |")
            continue
        number = int(version)
        lost = "no driver" if need == "REQUIRED" else f"no capability `{need}`"
        rows.append(f"| `{name}` | {number // 1000}.{number % 1000 // 10} | {lost} |")
    return rows


def capabilities_table(text):
    rows = ["| capability | what is lost without it |", "|---|---|"]
    start = text.index("#define RPI_CAPABILITIES(X)")
    listed = re.match(r"(?:[^\n]*\\\n)*[^\n]*", text[start:]).group()
    for name, lost in re.findall(r'X\((\w+), \d+, "([^"]*)"\)', listed):
        rows.append(f"| `{name}` | {lost} |")
    return rows


def environment_table(text):
    rows = ["| variable | what it does |", "|---|---|"]
    for name, meaning in re.findall(r'^X\((\w+),\s*((?:"[^"]*"\s*)+)\)', text, re.MULTILINE):
        rows.append(f"| `REPRISE_{name}` | {joined(meaning)} |")
    return rows


def versions_table(text):
    """The versions of PyTorch, of the text of the module that lists them: neighbours of which the same is said
    share a row."""
    module = {"__name__": "versions"}
    exec(text, module)
    rows = []
    for version, python, state, gpu, results in module["TABLE"]:
        ran = f"{state}, {gpu} ([results]({results}))" if results else state
        if rows and rows[-1][1:] == [python, ran]:
            rows[-1][0] += f", {version}"
        else:
            rows.append([version, python, ran])
    return ["| PyTorch | its CPython | tests on a GPU |", "|---|---|---|",
            *(f"| {' | '.join(row)} |" for row in rows)]


def joined(literals):
    """The text of C string literals that stand side by side."""
    return "".join(re.findall(r'"([^"]*)"', literals))


SOURCES = {
    "symbols": ("src/driver/symbols.def", symbols_table),
    "capabilities": ("src/driver/driver.h", capabilities_table),
    "environment": ("src/base/env.def", environment_table),
    "versions": ("python/reprise/_base/versions.py", versions_table),
}


def with_tables(document, tables):
    """The document with every table as its source has it."""
    return TABLE.sub(lambda m: m.group(1) + "\n".join(tables[m.group(2)]) + "\n" + m.group(3),
                     document)


def anchors(document):
    """What links to the headings of a document are written as after #."""
    for heading in HEADING.findall(BLOCK.sub("", document)):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def dead_links(path, document):
    for match in LINK.finditer(BLOCK.sub("", document)):
        target, anchor = match.group(1) or match.group(3) or "", match.group(2)
        if re.match(r"[a-z]+:", target):
            continue
        place = path.parent / target if target else path
        if place != path and not place.exists():
            yield target
        elif anchor and place.suffix == ".md":
            text = document if place == path else place.read_text(encoding="utf-8")
            if anchor not in anchors(text):
                yield f"{target}#{anchor}"


def stale_code(root, document):
    """Files that a document shows code of which is not in them."""
    for match in CODE.finditer(document):
        if match.group(2) not in (root / match.group(1)).read_text(encoding="utf-8"):
            yield match.group(1)


def unknown_names(header, text):
    """Public names that a text speaks of and the header does not declare."""
    return sorted(set(NAME.findall(text)) - set(NAME.findall(COMMENT.sub("", header))))


def unlisted_reads(where, text):
    """Lines of a source file that read the environment past the table."""
    if where != "src/base/env.c":
        for match in re.finditer(r"\b(secure_)?getenv\s*\(|\benviron\b", text):
            yield f"{where}:{text.count(chr(10), 0, match.start()) + 1}"


def documents(root):
    return sorted([*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("examples/*.md")])


def check(root, write):
    tables = {name: make((root / source).read_text(encoding="utf-8"))
              for name, (source, make) in SOURCES.items()}
    tables["comparison"] = comparison.table(root)
    headers = {path.name: path.read_text(encoding="utf-8") for path in sorted(root.glob("include/*.h"))}
    header = "".join(headers.values())
    findings = [f"include/{where}: speaks of {name}, which no public header declares"
                for where, text in headers.items() for name in unknown_names(header, text)]
    seen = set()
    for path in documents(root):
        document = path.read_text(encoding="utf-8")
        where = path.relative_to(root)
        right = with_tables(document, tables)
        seen.update(match.group(2) for match in TABLE.finditer(document))
        if right != document and write:
            path.write_text(right, encoding="utf-8")
            print(f"check_docs: wrote {where}")
        elif right != document:
            findings.append(f"{where}: a table is out of date: run scripts/check_docs.py --write .")
        findings += [f"{where}: shows code that is not in {source}"
                     for source in stale_code(root, document)]
        findings += [f"{where}: a link leads nowhere: {link}"
                     for link in dead_links(path, document)]
        if where.as_posix() not in WITH_OTHER_NAMES:
            findings += [f"{where}: speaks of {name}, which no public header declares"
                         for name in unknown_names(header, document)]
    for path in sorted([*root.glob("src/**/*.c"), *root.glob("src/**/*.h")]):
        where = path.relative_to(root).as_posix()
        findings += [f"{place}: reads the environment past src/base/env.def"
                     for place in unlisted_reads(where, path.read_text(encoding="utf-8"))]
    findings += [f"no document shows the table '{name}'" for name in sorted(set(tables) - seen)]
    return findings


def self_test():
    rows = symbols_table('/* Streams */\nX(REQUIRED, cuA, 10020,\n  (int a), (a))\nX(CAP, cuB, 12040, '
                         "(void), ())\n")
    assert rows[2:] == ["| **Streams** | | |", "| `cuA` | 10.2 | no driver |",
                        "| `cuB` | 12.4 | no capability `CAP` |"], rows
    rows = capabilities_table('#define RPI_CAPABILITIES(X) \\\n  X(CAP, 0, "copies") \\\n'
                              '  X(DOG, 1, "barks")\nX(NOT, 2, "seen")\n')
    assert rows[2:] == ["| `CAP` | copies |", "| `DOG` | barks |"], rows
    rows = environment_table('X(ONE, "does " "this")\nX(TWO,\n  "that")\n')
    assert rows[2:] == ["| `REPRISE_ONE` | does this |", "| `REPRISE_TWO` | that |"], rows
    rows = versions_table('TABLE = [("2.9", "3.10", "not run", "", ""), ("3.0", "4", "all", "G", "f")]')
    assert rows[2:] == ["| 2.9 | 3.10 | not run |", "| 3.0 | 4 | all, G ([results](f)) |"], rows
    rows = versions_table('TABLE = [(v, "3.10", "all", "G", "f") for v in ("2.9", "3.0")]')
    assert rows[2:] == ["| 2.9, 3.0 | 3.10 | all, G ([results](f)) |"], rows
    document = "before\n<!-- table: symbols -->\nold\n<!-- end -->\nafter\n"
    right = with_tables(document, {"symbols": ["new"]})
    assert right == "before\n<!-- table: symbols -->\nnew\n<!-- end -->\nafter\n", right
    links = "[a](nowhere.md) [b](https://example.org) [c](check_docs.py#part)"
    here = pathlib.Path(__file__)
    assert list(dead_links(here, links)) == ["nowhere.md"]
    assert list(dead_links(here, "```python\nx[0](y)\n```\n")) == []
    headed = "# A B's `c/d`\n```\n# comment\n```\n[a](#a-bs-cd) [b](#comment) [c](there.md#a-bs-cd)\n"
    found = list(dead_links(here.with_name("here.md"), headed))
    assert found == ["#comment", "there.md"], found
    shown = f"<!-- from: {here.name} -->\n```py\nimport re\n```\n"
    assert not list(stale_code(here.parent, shown))
    assert list(stale_code(here.parent, shown.replace("re\n", "nothing\n"))) == [here.name]
    assert list(unlisted_reads("src/a.c", "int x;\nchar *p = getenv(n);\n")) == ["src/a.c:2"]
    assert not list(unlisted_reads("src/base/env.c", "getenv(n)"))
    header = "/* As rp_b does. */\nint rp_a(void); /* RP_C, rp_a, rp_a_... */\n"
    assert unknown_names(header, header) == ["RP_C", "rp_b"], unknown_names(header, header)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a.md", "docs/guides/b.md", "docs/c.md", "build/d.md"):
            (pathlib.Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            (pathlib.Path(folder) / name).touch()
        names = [path.relative_to(folder).as_posix() for path in documents(pathlib.Path(folder))]
        assert names == ["a.md", "docs/c.md", "docs/guides/b.md"], names
    comparison.self_test()
    print("check_docs: changed lists and code, dead links, names that are not declared and unlisted "
          "variables are found")


def main():
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        return self_test()
    write = "--write" in arguments
    places = [argument for argument in arguments if argument != "--write"]
    if len(places) != 1 or not pathlib.Path(places[0]).is_dir():
        sys.exit(__doc__)
    findings = check(pathlib.Path(places[0]), write)
    for finding in findings:
        print(f"check_docs: {finding}")
    if findings:
        sys.exit(1)
    print("check_docs: tables and links are right")


if __name__ == "__main__":
    main()
