#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds the documentation site of README.md, docs/ and what these link to, for scripts/docs.sh.

The pages are copied into OUT/src, where their links are turned to what the site has; reference pages are
made from docstrings and headers; OUT/mkdocs.yml says the order. Then mkdocs builds OUT/site, and takes any
warning for an error: a dead link, a missing heading, a page that no menu leads to. Last, no page may load
anything from the network.

usage: docs.py ROOT OUT        stages, builds and checks (needs mkdocs)
       docs.py --self-test     needs nothing
"""

import pathlib
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile

import api_pages

# In the order of the menu: a title and a page of docs/, or a list of them. A page that is missing is left
# out, and "*" stands for all pages of its folder that are not named, by name.
MENU = [
    ("Home", "README.md"),
    ("Tutorial", "docs/tutorial.md"),
    ("Guides", [
        ("Inference", "docs/guides/inference.md"),
        ("Training", "docs/guides/training.md"),
        ("torch.compile", "docs/guides/compile.md"),
        ("Serving", "docs/guides/serving.md"),
        ("Graphs in parts", "docs/guides/parts.md"),
        ("Several GPUs", "docs/guides/several-gpus.md"),
        ("Installing, memory", "docs/pytorch.md"),
        ("C", "docs/guides/c.md"),
        ("C++ and CUDA", "docs/guides/cuda.md"),
        ("The command", "docs/command.md"),
        ("Without a GPU", "docs/torch-on-host.md"),
        (None, "docs/guides/*"),
    ]),
    ("Migration", [
        ("Overview", "docs/migrate.md"),
        ("torch.cuda.graph", "docs/migration/torch-cuda-graph.md"),
        ("make_graphed_callables", "docs/migration/make-graphed-callables.md"),
        ("reduce-overhead", "docs/migration/reduce-overhead.md"),
        ("Transformer Engine", "docs/migration/transformer-engine.md"),
        ("Megatron", "docs/migration/megatron.md"),
        ("Trainer, Accelerate, Lightning", "docs/migration/trainers.md"),
        (None, "docs/migration/*"),
    ]),
    ("Troubleshooting", "docs/troubleshooting.md"),
    ("API", [("Python", "api/python.md"), ("C", "api/c.md")]),
    ("Design", [("Overview", "docs/design.md"), (None, "docs/design/*")]),
    ("Benchmarks", [("Benchmarks", "docs/benchmarks.md"), (None, "docs/benchmarks/*")]),
    ("Limits", [("Limits", "docs/limits.md"), (None, "docs/limits/*"),
                ("State and evidence", "docs/status.md")]),
    ("Reference", [
        ("Environment variables", "docs/environment.md"),
        ("File formats", "docs/formats.md"),
        ("Driver functions", "docs/driver.md"),
        (None, "docs/*"),
    ]),
    ("Changelog", "CHANGELOG.md"),
    ("Contributing", [("Contributing", "CONTRIBUTING.md"), ("Security", "SECURITY.md")]),
]
HOMES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md",
         "SECURITY.md": "security.md"}
SHOWN = {".c": "c", ".h": "c", ".cu": "cuda", ".py": "python", ".sh": "sh", ".def": "c", ".txt": "text"}
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
NET = r"[\"']?(?:https?:)?//[^\"'> )]+"
LOADING = r"(?=[^>]*\brel=[\"']?(?:stylesheet|preload|preconnect|icon))"
FROM_NET = re.compile(rf"<(?:script|img|iframe)\b[^>]*\bsrc={NET}|<link\b{LOADING}[^>]*\bhref={NET}|"
                      rf"\burl\({NET}")
CONFIG = """\
site_name: Reprise
site_description: CUDA graphs for PyTorch, C and C++
docs_dir: src
site_dir: site
use_directory_urls: false
theme:
  name: material
  font: false
  icon:
    logo: material/repeat
  features: [navigation.tabs, navigation.top, navigation.indexes, content.code.copy, toc.follow]
  palette:
    - media: "(prefers-color-scheme: light)"
      scheme: default
      primary: teal
    - media: "(prefers-color-scheme: dark)"
      scheme: slate
      primary: teal
plugins: [search]
validation:
  nav: {omitted_files: warn, not_found: warn, absolute_links: warn}
  links: {not_found: warn, anchors: warn, absolute_links: warn, unrecognized_links: warn}
not_in_nav: |
  /files/
markdown_extensions:
  - tables
  - sane_lists
  - pymdownx.superfences
  - pymdownx.highlight
  - toc:
      permalink: true
      slugify: !!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}
nav:
"""


def home(source):
    """Where the site has a page or a file of the tree."""
    if source in HOMES:
        return HOMES[source]
    if source.startswith("docs/"):
        return source[len("docs/"):]
    if source.startswith("api/"):
        return source
    suffix = ".md" if pathlib.Path(source).suffix in SHOWN else ""
    return f"files/{source}{suffix}"


def outside_fences(text, change):
    """The text with all but its blocks of code changed."""
    out, last = [], 0
    for match in FENCE.finditer(text):
        out += [change(text[last:match.start()]), match.group()]
        last = match.end()
    return "".join([*out, change(text[last:])])


def lists(text):
    """Lists as Python's Markdown wants them: a blank line ahead, and four blanks for one within."""
    out, item = [], re.compile(r" *([-*]|\d+\.) ")
    for line in text.split("\n"):
        before = out[-1] if out else ""
        if item.match(line) and before.strip() and not item.match(before) and not before.startswith(" "):
            out.append("")
        out.append("  " + line if re.match(r" {2,3}(?! )\S", line) else line)
    return "\n".join(out)


def staged(source, text, wanted):
    """A page as the site has it. What its links lead to is added to wanted, by the tree's names."""
    here = posixpath.dirname(home(source))

    def link(match):
        ahead, target, behind = match.groups()
        if re.match(r"[a-z]+:", target):
            return match.group()
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        wanted.add(place)
        return ahead + posixpath.relpath(home(place), here or ".") + behind

    def change(part):
        return lists(LINK.sub(link, re.sub(r"<!--.*?-->", "\n", part, flags=re.DOTALL)))
    return outside_fences(text, change)


def menu(root, entries):
    """MENU with the pages that there are; raises where a page of docs/ is named nowhere."""
    named = {page for _, page in flat(MENU)}

    def resolved(title, page):
        if isinstance(page, list):
            inner = [entry for item in page for entry in resolved(*item)]
            return [(title, inner)] if inner else []
        if page.endswith("/*"):
            found = sorted((root / page[:-2]).glob("*.md"))
            names = [path.relative_to(root).as_posix() for path in found]
            return [(heading(root / name), name) for name in names if name not in named]
        return [(title, page)] if page.startswith("api/") or (root / page).exists() else []
    return [entry for item in entries for entry in resolved(*item)]


def flat(entries):
    for title, page in entries:
        if isinstance(page, list):
            yield from flat(page)
        else:
            yield title, page


def heading(path):
    match = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1].replace("`", "") if match else path.stem


def nav(entries, indent="  "):
    lines = []
    for title, page in entries:
        quoted = '"' + title.replace('"', '\\"') + '"'
        if isinstance(page, list):
            lines += [f"{indent}- {quoted}:", *nav(page, indent + "    ")]
        else:
            lines.append(f"{indent}- {quoted}: {home(page)}")
    return lines


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def stage(root, out):
    """Fills OUT/src and writes OUT/mkdocs.yml. Returns what links lead to that is not there."""
    src = out / "src"
    shutil.rmtree(src, ignore_errors=True)
    entries = menu(root, MENU)
    pages = {page for _, page in flat(entries)}
    done, queue, missing = set(), pages, []
    write(src / "api/python.md", api_pages.python_page(root / "python/reprise"))
    write(src / "api/c.md", api_pages.c_page(sorted((root / "include").glob("*.h"), key=lambda path: (
        path.name != "reprise.h", path.name))))
    while queue:
        wanted = set()
        for source in sorted(queue):
            path = root / source
            if source.startswith("api/"):
                continue
            if not path.is_file():
                missing.append(source)
            elif path.suffix == ".md":
                write(src / home(source), staged(source, path.read_text(encoding="utf-8"), wanted))
            elif path.suffix in SHOWN:
                text = path.read_text(encoding="utf-8")
                write(src / home(source), f"# {source}\n\n~~~~ {SHOWN[path.suffix]}\n{text}~~~~\n")
            else:
                (src / home(source)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, src / home(source))
        done |= queue
        queue = wanted - done
    write(out / "mkdocs.yml", CONFIG + "\n".join(nav(entries)) + "\n")
    return missing


def from_net(site):
    """What pages and styles would load from the network."""
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        text = re.sub(r"<(pre|code)\b.*?</\1>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for match in FROM_NET.finditer(text):
            yield f"{path.relative_to(site)}: {match.group()[:120]}"


def build(root, out):
    missing = stage(root, out)
    for source in missing:
        print(f"docs: a link leads to {source}, which is no file of the tree")
    if missing:
        return 1
    # Not --quiet: mkdocs then neither shows nor counts warnings.
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "-f",
                           str(out / "mkdocs.yml")], capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if not line.startswith("INFO")]
    if done.returncode or said:
        print("\n".join(said))
        return 1
    loads = list(from_net(out / "site"))
    for load in loads:
        print(f"docs: loads from the network: {load}")
    count = len(list((out / "site").rglob("*.html")))
    print(f"docs: {count} pages: {out / 'site/index.html'}; with its search: "
          f"python3 -m http.server -d {out / 'site'}")
    return 1 if loads else 0


def self_test():
    api_pages.self_test()
    wanted = set()
    text = staged("docs/guides/a.md", "[a](../b.md#c) [d](../../LICENSE) [e](https://x)\n"
                  "```\n[f](g.md)\n```\nWords\n- one\n  - two\n", wanted)
    assert text == ("[a](../b.md#c) [d](../files/LICENSE) [e](https://x)\n```\n[f](g.md)\n```\n"
                    "Words\n\n- one\n    - two\n"), text
    assert wanted == {"docs/b.md", "LICENSE"}, wanted
    assert staged("README.md", "![p](docs/images/p.svg)", set()) == "![p](images/p.svg)"
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        write(root / "docs/design/two.md", "# Two `words`\n")
        found = menu(root, [("A", [("B", "docs/none.md"), (None, "docs/design/*")]), ("C", "docs/none.md")])
        assert found == [("A", [("Two words", "docs/design/two.md")])], found
        write(root / "site/a.html", '<a href="https://x"><script src="https://cdn/x.js"></script>'
                                    '<code><img src="https://y"></code>'
                                    '<link href="//z/f.css" rel="stylesheet">')
        assert list(from_net(root / "site")) == ['a.html: <script src="https://cdn/x.js',
                                                 'a.html: <link href="//z/f.css']
    print("docs: links are turned, pages without a menu are found, and what comes from the network")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    return sys.exit(build(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))


if __name__ == "__main__":
    main()
